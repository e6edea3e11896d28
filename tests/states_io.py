"""How many bytes of members a generation hashes and writes: counted, not timed.

Two generations of 4 teachers and 4 students on the bundled base, with adapters of a rank so high that members are all
that counts, and children in the second; every member learns. A hash is counted where bytes are read for it, a write
where bytes come to lie on the disk; a link or a rename is neither. Files smaller than half an adapter are left out.
Every shard knows its own hashes alone, as in a process of its own.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from populora_core.compute.work import Worker
from populora_core.config.load import Config
from populora_core.learner import update
from populora_core.model.base import base_digest
from populora_core.model.state import MemberState
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.engine import run_generation
from populora_core.store.adapters import WEIGHTS
from populora_core.support import digest

RANK, GENERATIONS = 256, 2
VECTORS = 3  # of a member's state: weights and Adam's two moments
SETTINGS: dict[str, dict[str, Any]] = {
    "run": {"generations": GENERATIONS},
    "population": {"teachers": 4, "students": 4},
    "adapters": {"rank": RANK, "alpha": 2.0 * RANK},
    "propose": {"per_type": 1, "max_tokens": 24},
    "solve": {"attempts": 1, "max_tokens": 24},
    "evolve": {"every": GENERATIONS, "minimum_age": 1, "last_share": 0.0},
    "compute": {"backend": "inline", "shards": 2, "threads": 1},
}


@dataclass(frozen=True, slots=True)
class Moved:
    """What one generation hashed and wrote: bytes, in those of all members' states.

    Attributes:
        share: of what it may: three times the states and two of the adapters.
    """

    hashed: float
    written: float
    share: float


def count(config: Config, directory: Path) -> list[Moved]:
    """Run the generations in a new run directory; what each hashed and wrote."""
    run = Run.create(directory, config, base_digest(config.base.folder()))
    found = []
    with Session(run) as session, _processes_of_their_own(), _everybody_learns():
        run_generation(session, 0)
        (founder, *_) = directory.glob(f"members/*/g0000/{WEIGHTS}")
        size = founder.stat().st_size
        for generation in range(1, config.run.generations + 1):
            with counting(size // 2) as counted:
                run_generation(session, generation)
            # Whoever learnt, and whoever was born: a child has moments of its own.
            adapters = size * len(list(directory.glob(f"members/*/g{generation:04d}")))
            states = VECTORS * adapters
            share = (counted["hashed"] + counted["written"]) / (3 * states + 2 * adapters)
            found.append(Moved(counted["hashed"] / states, counted["written"] / states, share))
    return found


@contextmanager
def counting(least: int) -> Iterator[Counter[str]]:
    """Counts bytes "hashed" and "written" in this process, of files that hold at least so many."""
    counted: Counter[str] = Counter()

    def add(what: str, path: Path) -> None:
        size = path.stat().st_size
        counted[what] += size if size >= least else 0

    hashed, written, copied = hashlib.file_digest, Path.write_bytes, shutil.copyfile

    def file_digest(file: Any, *rest: Any) -> Any:
        add("hashed", Path(f"/proc/self/fd/{file.fileno()}"))  # a file may have no name but its number
        return hashed(file, *rest)

    def write_bytes(path: Path, data: bytes) -> int:
        done = written(path, data)
        add("written", path)
        return done

    def copyfile(source: Path, target: Path, **how: Any) -> Any:
        done = copied(source, target, **how)
        add("written", Path(target))
        return done

    with (
        patch.object(hashlib, "file_digest", file_digest),
        patch.object(Path, "write_bytes", write_bytes),
        patch.object(shutil, "copyfile", copyfile),
    ):
        yield counted


@contextmanager
def _processes_of_their_own() -> Iterator[None]:
    """Lets every shard know the hashes that it found itself, and no others."""
    known: dict[int, dict[Any, str]] = {}
    perform: Callable[..., Any] = Worker.perform

    def apart(worker: Any, shard: Any, progress: Any) -> Any:
        with patch.object(digest, "known", known.setdefault(shard.number, {})):
            return perform(worker, shard, progress)

    with patch.object(Worker, "perform", apart):
        yield


@contextmanager
def _everybody_learns() -> Iterator[None]:
    """Lets every member make a step, whatever its completions were: then all have moments."""
    learn = update.update_members

    def stepped(*arguments: Any) -> Any:
        states, stats = learn(*arguments)
        return {name: _stepped(state) for name, state in states.items()}, stats

    with patch.object(update, "update_members", stepped):
        yield


def _stepped(state: MemberState) -> MemberState:
    weights = state.weights + 1e-3
    return MemberState(weights, 0.1 * weights, weights.square(), state.steps + 1)
