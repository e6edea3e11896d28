"""Choice of the trainer for `run` and `resume`: the plain loop, or Prefect where somebody can look at it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

import typer

from populora_core.support.errors import EXIT_INTERRUPTED, ConfigError, RunDirectoryError
from populora_core.support.shipped import IN_CLONE
from populora_core.support.typed import shown, typed

if TYPE_CHECKING:
    from populora_core.runs.run import Run
    from populora_core.runs.session import Session

    Trainer = Callable[[Session, int], object]


def train(opened: Run, generations: int, chosen: Trainer) -> None:
    """Go on with a run to this generation, tell of it, and say at the end what there is."""
    from populora_core.commands.console import closing
    from populora_core.terminal.screen import console

    further = "" if generations == opened.config.run.generations else f" --generations {generations}"
    with watched(opened, generations, f"populora resume {shown(opened.directory)}{further}") as session:
        chosen(session, generations)
    closing(console, opened)


def going_on(run: Run) -> str:
    """The command that trains a run further, for ten generations more where it has reached its last."""
    from populora_core.stages.following import newest_generation

    more = ""
    with suppress(RunDirectoryError):  # no generation is complete yet
        if (newest := newest_generation(run)) >= run.config.run.generations:
            more = f" --generations {newest + 10}"
    return typed(f"populora resume {shown(run.directory)}{more}")


def trainer(prefect: bool | None) -> Trainer:
    """The function that trains a session up to a generation; call it first, since Prefect's part may be missing.

    Args:
        prefect: whether Prefect runs it; None for where it has a server already. One that is started for a run ends
            with it, so no one could look at it.

    Raises:
        ConfigError: Prefect is asked for, and its part is not here.
    """
    if prefect or (prefect is None and prefect_serves()):
        under_prefect = prefect_part().train

        def told(session: Session, generations: int) -> None:
            from populora_core.terminal.screen import say

            under_prefect(session, generations, say)

        return told
    from populora_core.lifecycle.loop import train

    return train


def prefect_serves() -> bool:
    """True if a Prefect server is configured, or runs under `populora ui`."""
    return has_prefect() and bool(prefect_part().server_url())


def has_prefect() -> bool:
    """True if `prefect_part` can be imported here: in a clone, beside Prefect, by a user with a home folder."""
    return IN_CLONE and find_spec("prefect") is not None and _has_home()


def prefect_part() -> ModuleType:
    """Prefect's part, which is found by name: an installed package has none of it.

    Raises:
        ConfigError: this is no clone, Prefect is not installed, or the user has no home folder.
    """
    without = "; populora run and resume give the same results without it"
    if not IN_CLONE:
        raise ConfigError(
            "Prefect's part is not in the installed package",
            expected="a clone of the repository, with its folders flows/ and tasks/",
            fix=f"work in a clone{without}",
        )
    if find_spec("prefect") is None:
        raise ConfigError("Prefect is not installed", fix=f"make install, or pip install -e .{without}")
    if not _has_home():
        raise ConfigError(
            "Prefect needs a home folder, and this user has none",
            expected="HOME in the environment, also where PREFECT_HOME is set",
            fix=f"set HOME to a folder that you may write to{without}",
        )
    return import_module("flows.commands")


def _has_home() -> bool:
    return os.path.expanduser("~") != "~"


@contextmanager
def watched(opened: Run, generations: int, again: str) -> Iterator[Session]:
    """An open session whose progress is drawn, and which an interruption leaves in order.

    Args:
        again: the command that goes on after one.
    """
    from populora_core.commands.console import ConsoleObserver
    from populora_core.runs.session import Session
    from populora_core.terminal.screen import console, say

    observer = ConsoleObserver(console, opened.directory, generations)
    try:
        with Session(opened, observer) as session, observer:
            yield session
    except (KeyboardInterrupt, SystemExit) as ending:
        say(
            ("\ninterrupted", "yellow"),
            f" in {observer.position}: that stage was given up, everything committed stays.\n  ",
            (typed(again), "green"),
            " goes on from there",
        )
        if isinstance(ending, SystemExit):
            raise
        raise typer.Exit(EXIT_INTERRUPTED) from None
