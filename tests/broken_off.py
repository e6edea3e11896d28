"""Runs that are broken off and forked: how they end, and what they held."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conftest import GENERATIONS, contents

from populora_core.config.load import apply_overrides
from populora_core.lifecycle.loop import fork, train
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.engine import run_stage
from populora_core.stages.table import STAGES


class Died(BaseException):
    """Stands for a kill: nothing after it is done, no cleaning up either."""


def raising(error: BaseException) -> Callable[..., None]:
    """A function that does nothing but raise it."""

    def fail(*arguments: object, **options: object) -> None:
        raise error

    return fail


full = raising(OSError(28, "No space left on device"))


def after(calls: int, function: Callable[..., None], instead: Callable[[], object]) -> Callable[..., None]:
    """The function; from its `calls`-th call on something else."""
    count = 0

    def counted(*arguments: object) -> None:
        nonlocal count
        count += 1
        if count >= calls:
            instead()
        function(*arguments)

    return counted


def forked(directory: Path, generation: int, folder: Path, *settings: str) -> Run:
    """The run as it was after a generation, with these settings instead of its own."""
    source = Run.open(directory)
    return fork(source, generation, folder / "fork", apply_overrides(source.config, settings))


def first_two(finished: Path) -> dict[str, str]:
    """What its first two generations hold."""
    return {name: content for name, content in contents(finished).items() if name < "0003"}


def resume(directory: Path, generations: int = GENERATIONS) -> None:
    with Session(Run.open(directory)) as session:
        train(session, generations)


def drawn_again(directory: Path) -> Run:
    """The run as a resume leaves it that made a stage of generation 1 again, and was broken off behind it."""
    run = Run.open(directory)
    run.save_redraws({"0001/solve": 3})
    with Session(run) as session:
        run_stage(session, 1, STAGES["solve"])
    return run
