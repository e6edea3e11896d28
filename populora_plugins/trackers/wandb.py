"""Weights & Biases. Offline, the default, everything stays in RUN/wandb until `wandb sync RUN/wandb/offline-run-*`.

Offline, each process that works on the run writes the whole history again under the same id, and removes the folder of
the one before: `wandb sync` replaces what the server has of an id rather than appending to it, and what a process had
told when it was killed may never have reached the disk. Online, the server knows the last step and goes on. It takes no
step back, so when a generation was made again and came out different, the run goes on under a new id, with its whole
history.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from typing import Any

import wandb

from populora_core.runs.run import Run
from populora_core.support import durable
from populora_core.support.errors import ConfigError
from populora_plugins.trackers.log import Kept
from populora_plugins.trackers.once import Once

FOLDER = "wandb"
os.environ.setdefault(
    "WANDB_ERROR_REPORTING", "false"
)  # read by its service: no reports of errors to its makers


def tracker(run: Run) -> Once:
    """Follow the run in Weights & Biases."""
    return Once("wandb", run, open_wandb)


def open_wandb(run: Run, kept: Kept) -> WandbRun:
    """Go on under the same id, or with a new one.

    Raises:
        ConfigError: online without a login; no one is asked for one in the middle of a run.
    """
    settings = run.config.trackers.wandb
    online = settings.mode == "online"
    if online and not wandb.login(prompt=False):
        raise ConfigError(
            "trackers.wandb.mode is online, but this machine has no login",
            fix='wandb login, or set WANDB_API_KEY, or start runs with trackers.wandb.mode = "offline"',
        )
    fresh = not kept.id or (online and kept.agreed < kept.told)
    id = secrets.token_hex(8) if fresh else kept.id
    if not online:
        for folder in (run.directory / FOLDER).glob(f"offline-run-*-{id}"):
            with durable.writing(folder):
                shutil.rmtree(folder)
    opened = wandb.init(
        project=settings.project,
        entity=settings.entity or None,
        mode=settings.mode,
        id=id,
        resume="allow",
        name=run.name,
        dir=run.directory,
        config=run.config.as_json(),
        settings=wandb.Settings(
            silent=True,
            console="off",
            disable_git=True,
            disable_code=True,
            disable_job_creation=True,
            x_disable_stats=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        ),
    )
    return WandbRun(opened, max(0, opened.step - 1))


class WandbRun:
    """An open W&B run; its step is the generation."""

    def __init__(self, run: Any, holds: int) -> None:
        self.id: str = run.id
        self.holds = holds
        self._run = run

    def tell(self, generation: int, figures: Mapping[str, float]) -> None:
        self._run.log(dict(figures), step=generation, commit=True)
        self.holds = generation

    def flush(self) -> None:
        """Its service writes and sends by itself."""

    def close(self) -> None:
        self._run.finish()
        wandb.teardown()
