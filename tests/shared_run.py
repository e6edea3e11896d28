"""Runs that share a store, with one stage that takes no model: it writes an adapter of the given weights.

As a program: makes that stage in a run directory and dies by SIGKILL at a named moment of its commit.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from made_runs.filled import filled
from populora_core.config.load import build_config
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.sharing import places
from populora_core.stages import engine
from populora_core.stages.context import StageContext, hash_columns
from populora_core.stages.engine import StageResult, run_stage
from populora_core.stages.table import Stage
from populora_core.store.adapters import MOMENTS as MOMENTS_FILE
from populora_core.store.adapters import WEIGHTS, Probe, write_probe
from populora_core.store.artifacts import StageWriter
from populora_core.store.manifest import stage_dir
from populora_plugins.cluster.sweeping import DAY

MEMBER = "student-00-g0000"
MOMENTS = ("before objects", "inside an object", "between objects and manifest", "after the manifest")


class Written(Stage):
    """Stands for `found`; what it writes is given from outside, as a GPU's rounding would be."""

    weights = b"weights"
    times = 0  # it was made here, rather than brought


def _perform(stage: Stage, ctx: StageContext, real: Callable[..., None] = engine.perform) -> None:
    return _write(ctx) if isinstance(stage, Written) else real(stage, ctx)


engine.perform = _perform


def _write(ctx: StageContext) -> None:
    Written.times += 1
    folder = ctx.shards.files / MEMBER
    folder.mkdir(parents=True)
    (folder / WEIGHTS).write_bytes(Written.weights)
    (folder / "adapter_config.json").write_text("{}")
    sha256 = hashlib.sha256(Written.weights).hexdigest()
    write_probe(folder, Probe(sha256, "float32", (1,), (2,), (-0.5,), (-0.25,)))
    moments = Written.weights * 3
    (folder / MOMENTS_FILE).write_bytes(moments)
    hashes = {WEIGHTS: sha256, MOMENTS_FILE: hashlib.sha256(moments).hexdigest()}
    ctx.write_adapters({MEMBER: hashes})
    ctx.write(
        "population",
        [
            filled(
                "population",
                member_id=MEMBER,
                role="student",
                operator="founder",
                mu=25.0,
                sigma=25.0 / 3.0,
                **hash_columns(hashes),
            )
        ],
    )


STAGE = Written("found", version=1, needs={}, gives=("population", "adapters"), config=("population",))


def begin(directory: Path, url: str, seed: int = 0) -> Run:
    """Start a run with a shared store."""
    config = build_config({"run": {"seed": seed}, "store": {"url": url}}, "the test's configuration")
    return Run.create(directory, config, "digest")


def make(directory: Path, weights: bytes = b"weights", force: bool = False) -> StageResult:
    """Make the stage in a run directory as a run does, unless it is there or in the store."""
    Written.weights = weights
    with Session(Run.open(directory)) as session:
        return run_stage(session, 0, STAGE, force=force)


def files(directory: Path) -> dict[str, bytes]:
    """Everything that the stage is in a run directory: its folder, manifest included, and its adapters."""
    folders = (stage_dir(directory, 0, "found"), directory / "members")
    found = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}


def kill_at(moment: str, store: type[Any]) -> None:
    """Let this process die when it comes to the moment of a stage's commit."""
    put = store.put_if_absent

    def die(*arguments: object, **named: object) -> NoReturn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("nobody outlives it")

    def put_or_die(self: Any, key: str, data: bytes) -> bool:
        return die() if key.startswith("stages/") else put(self, key, data)

    if moment == "before objects":
        store.put = die
    elif moment == "inside an object" and store is places.LocalObjects:
        places.require_digest = die  # written aside, not yet renamed
    elif moment == "inside an object":
        _die_once_an_object_is_sent(die)
    elif moment == "between objects and manifest":
        store.put_if_absent = put_or_die
    else:
        StageWriter.commit = die  # type: ignore[method-assign]


def _die_once_an_object_is_sent(die: Callable[[], NoReturn]) -> None:
    from obstore.store import S3Store

    send = S3Store.put

    def put(self: Any, key: str, *arguments: Any, **named: Any) -> Any:
        answer = send(self, key, *arguments, **named)
        return (
            die() if key.startswith("objects/") else answer
        )  # before the server was asked whether it has it

    S3Store.put = put


def age(path: Path, days: float) -> None:
    long_ago = time.time() - days * DAY
    os.utime(path, (long_ago, long_ago))


if __name__ == "__main__":
    kill_at(sys.argv[1], type(places.open_objects(sys.argv[2])))
    make(Path(sys.argv[3]))
