"""assemble:SUITE: the ways of making one model of the members after a generation, chosen on one half of a suite.

It stands beside the loop, in `generations/0012/assemble-SUITE`, as an evaluation does. There are every answer of the
reported half, what was chosen, and the soup's adapter where several members are in it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from typing import Annotated, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from populora_core.benchmarks.suite import Part, Suite
from populora_core.lifecycle.progress import suite_again
from populora_core.lifecycle.run_evaluation import SOLVERS, chosen_members
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.context import StageContext
from populora_core.stages.engine import run_stage
from populora_core.stages.evaluation import BASE_PLAYER, Exam, players_of
from populora_core.stages.evaluation import ITEMS as ANSWERS
from populora_core.stages.following import newest_generation
from populora_core.stages.measure import SANDBOX
from populora_core.stages.table import Stage, When
from populora_core.store.adapters import ADAPTER_FILES
from populora_core.store.catalogue import publish
from populora_core.store.manifest import Manifest, stage_dir
from populora_core.store.schema import table_of
from populora_core.support.errors import DamagedText
from populora_core.support.plain import open_plain, read_plain
from populora_core.support.received import MemberId, Sha256, validated
from populora_plugins.harvest.assemble import HOWS, SOUP, SURENESS, Assembler, Assembly

FOLDER: Final = "assemble-"  # and the suite
ITEMS, CHOICE = "items.parquet", "choice.json"
ROWS = table_of(ANSWERS).arrow.append(pa.field(SURENESS, pa.float64(), nullable=False))


class Choice(TypedDict):
    """The choice on validation, as it is stored; see `Assembly`."""

    adapters: dict[MemberId, Sha256]
    soup: Annotated[tuple[MemberId, ...], Field(min_length=1)]
    energy_kept: float
    router: Literal["problem type", "log-probability"]
    by_type: dict[str, MemberId]
    validation: dict[str, float]


_CHOICE = TypeAdapter(Choice)


def assemble(
    session: Session,
    suite: Suite,
    generation: int | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Assembly:
    """Try every way on the members that answer after a generation, unless that is done.

    Args:
        say: called with a line on each step.

    Raises:
        BenchmarkError: the suite cannot be used with this run, or holds nothing back for validation.
        SandboxUnavailable: the sandbox went down; what was answered stays for the next time.
    """
    run = session.run
    at = newest_generation(run) if generation is None else generation
    if not run_stage(session, at, assembly(session, suite, at, say)).reused:
        publish(run.directory)
    return read_assembly(run, at, suite)


def assembly(
    session: Session, suite: Suite, generation: int, say: Callable[[str], None] = lambda line: None
) -> Stage:
    """The stage in which members are assembled; arguments and errors are those of `assemble`."""
    players = players_of(chosen_members(session.run, generation, SOLVERS))
    held_back = Exam(suite, Part.VALIDATION, players).decides(session)["problems"]
    reported = Exam(suite, Part.TEST, [*players, BASE_PLAYER]).decides(session)
    return Stage(
        FOLDER + suite.suite,
        version=1,
        needs={"population": When.NOW},
        gives=(),
        config=("adapters", "compute"),
        base=True,
        sandbox=True,
        sampler=True,
        own={**reported, "held_back": held_back},
        own_seed=suite.seed,
        code=partial(_make, suite, say),
    )


def assembly_again(session: Session, manifest: Manifest, seed: int | None) -> Stage:
    """The assembly that a manifest records, with another seed or with its own."""
    return assembly(session, suite_again(manifest, seed), manifest.generation)


def read_assembly(run: Run, generation: int, suite: Suite) -> Assembly:
    """The assembly that a generation holds.

    Raises:
        DamagedText: its files are not what `assemble` writes.
    """
    folder = stage_dir(run.directory, generation, FOLDER + suite.suite)
    choice = validated(_CHOICE, read_plain(folder / CHOICE), folder / CHOICE)
    if missing := {*HOWS} - choice["validation"].keys():
        raise DamagedText(f"{folder / CHOICE}: no score of {', '.join(sorted(missing))}")
    try:
        with open_plain(folder / ITEMS) as file:
            items = pq.ParquetFile(file).read().cast(ROWS).to_pylist()
    except (pa.ArrowException, ValueError) as error:
        raise DamagedText(f"{folder / ITEMS}: {error}") from error
    first = run.adapter_folder(choice["soup"][0], generation)
    return Assembly(
        run=run,
        generation=generation,
        suite=suite,
        soup_folder=folder / SOUP if len(choice["soup"]) > 1 else first,
        items=items,
        **choice,
    )


def _make(suite: Suite, say: Callable[[str], None], ctx: StageContext) -> None:
    assembler = Assembler(ctx, suite, say)
    found = assembler.run()
    pq.write_table(pa.Table.from_pylist(found.items, ROWS), ctx.writer.path(ITEMS), compression="zstd")
    choice = {name: getattr(found, name) for name in Choice.__annotations__}
    ctx.writer.path(CHOICE).write_text(json.dumps(choice, indent=1) + "\n")
    if len(found.soup) > 1:
        ctx.writer.path(SOUP).mkdir()
        for name in ADAPTER_FILES:
            shutil.copyfile(found.soup_folder / name, ctx.writer.path(SOUP) / name)
    ctx.extra |= assembler.tokens | {"summary": found.told, SANDBOX: ctx.session.sandbox.identity}
