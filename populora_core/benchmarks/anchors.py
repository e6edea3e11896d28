"""Anchors: problems from a generator or a data set of the user's, or the run's own, played again.

A source is a function (random numbers, count, problem type, *, settings) -> drafts that `anchors.source` names: ours,
one of another package's entry points, or a place. What it gives is checked as a teacher's proposal is: nothing is
played that the sandbox has not run. `replay` and `peers` alone see what was played, and give some of it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from statistics import fmean

import numpy as np
from pydantic import TypeAdapter, ValidationError

from populora_core.benchmarks import cruxeval
from populora_core.benchmarks.files import OwnFile, read_rows
from populora_core.benchmarks.items import in_order
from populora_core.config.sections import AnchorSection
from populora_core.problems.archive import Graded
from populora_core.problems.buffer import Buffer
from populora_core.problems.model import Draft
from populora_core.problems.normal import program_key
from populora_core.problems.parsing import ProgramSyntaxError
from populora_core.problems.types import PROBLEM_TYPES, TypeRules
from populora_core.support.digest import file_sha256
from populora_core.support.errors import ProblemError
from populora_core.support.registry import Registry, Share

AnchorSource = Callable[..., Iterable[Draft]]
DATASET = "dataset"
REPLAY = "replay"
PEERS = "peers"
AGAIN = (REPLAY, PEERS)
"""Sources that give problems of the run's own, which are known and are played nevertheless."""
RECENT, LEAST = 64, 8  # programs that say how much of a length is solved
ANCHOR_FILE = OwnFile(Path("problems", "train.parquet"), "data set of anchors", "path in anchors.parameters")
_DRAFT = TypeAdapter(Draft)


def dataset(
    rng: np.random.Generator,
    count: int,
    problem_type: str,
    *,
    path: str,
    first: int = 0,
    end: int | None = None,
    again: bool = False,
) -> list[Draft]:
    """All problems of the type in a data set, in random order.

    Args:
        count: is passed over: what was played before is skipped, so any of them may be needed.
        path: a folder that `populora problems` wrote, or a .parquet, .jsonl or .json file whose rows have
            problem_type, program, inputs and perhaps message; or code, input, output and id, as CRUXEval has.
        first, end: only these of CRUXEval's problems, counted as a suite counts its `rows`.
        again: is passed over here: nothing is skipped (see `may_repeat`).
    """
    drafts = [draft for draft in read_drafts(path, first, end) if draft.problem_type == problem_type]
    return [drafts[place] for place in rng.permutation(len(drafts))]


def replay(
    rng: np.random.Generator,
    count: int,
    problem_type: str,
    past: Iterable[Graded],
    *,
    largest: Share = 1.0,
    frontier: Share = 0.0,
) -> list[Draft]:
    """The run's own problems of the type that someone solved, in random order, to be played again.

    Students forget what teachers no longer ask; this keeps it in play. Of a program that was played several times the
    newest solve rate counts.

    Args:
        count: is passed over, as by `dataset`, but for a frontier.
        past: earlier problems with their solve rates, oldest first.
        largest: solve rate of those that come again; at .25 they are the ones that are solved rarely.
        frontier: above 0 it takes the place of `largest`: half are one line longer than the longest of which this
            share is solved, a quarter as long as these, the rest shorter, whether or not one was solved. Where the
            shorter ones are too few, more are as long.
    """
    own = [each for each in past if each.problem.problem_type == problem_type]
    if frontier:
        return _around(rng, count, own, frontier)
    newest = {each.problem.program: each for each in own}
    again = [each.problem for each in newest.values() if 0.0 < each.solve_rate <= largest]
    return [again[place].draft() for place in rng.permutation(len(again))]


def peers(rng: np.random.Generator, count: int, problem_type: str, past: Iterable[Graded]) -> list[Draft]:
    """Problems that others solved and a student did not, in random order.

    Args:
        past: as `left_by` gives it of that student.
    """
    own = [each.problem for each in past if each.problem.problem_type == problem_type]
    return [own[place].draft() for place in rng.permutation(len(own))]


def left_by(slot: int, past: Iterable[Graded], asked_of: Mapping[str, int]) -> list[Graded]:
    """Problems that a student of another slot solved and none of this slot did, whether or not it was asked.

    Args:
        past: oldest first; of a program that others solved several times the newest stands for it.
        asked_of: problem_id -> the slot of the student that was asked.
    """
    solved = [each for each in past if each.solve_rate > 0.0]
    key = {each.problem.problem_id: (each.problem.problem_type, each.problem.program) for each in solved}
    own = {key[name] for name in key if asked_of[name] == slot}
    left = {key[each.problem.problem_id]: each for each in solved}
    return [each for program, each in left.items() if program not in own]


def _around(rng: np.random.Generator, count: int, past: Sequence[Graded], share: float) -> list[Draft]:
    """Draw for `replay`: half one line beyond the frontier, a quarter at it; shorter ones fill up, then more at it.

    If no length is solved often enough, the frontier is the shortest length.
    """
    lengths: dict[int, dict[str, Graded]] = {}  # program -> its newest solve rate, newest first
    for each in reversed(past):
        lengths.setdefault(each.lines_of_code, {}).setdefault(each.problem.program, each)
    solved = [length for length, own in lengths.items() if _solved(own.values()) >= share]
    reached = max(solved, default=min(lengths, default=0))
    lying = (
        [*lengths.get(reached + 1, {}).values()],
        [*lengths.get(reached, {}).values()],
        [each for length, own in lengths.items() if length < reached for each in own.values()],
    )
    beyond, at, shorter = ([own[place] for place in rng.permutation(len(own))] for own in lying)
    few = count // 4
    chosen = [*beyond[: count // 2], *at[:few], *shorter, *at[few:]]
    return [each.problem.draft() for each in chosen[:count]]


def _solved(newest_first: Collection[Graded]) -> float:
    """The solve rate of a length: that of its `RECENT` newest programs; too few say nothing."""
    rates = [each.solve_rate for each in islice(newest_first, RECENT)]
    return fmean(rates) if len(rates) >= LEAST else 0.0


ANCHOR_SOURCES = Registry(
    {DATASET: dataset, REPLAY: replay, PEERS: peers},
    group="populora.anchors",
    what="source of anchors",
    setting="anchors.source",
    error=ProblemError,
)


def may_repeat(settings: AnchorSection) -> bool:
    """True if played problems may come again: the run's own, or those of a source whose setting `again` is true."""
    return settings.source in AGAIN or settings.parameters.get("again") is True


def draw_anchors(
    settings: AnchorSection,
    asked: Mapping[str, int],
    played: Buffer,
    past: Sequence[Graded],
    stream: Callable[[str], np.random.Generator],
) -> dict[str, list[Draft]]:
    """The anchors of a generation by problem type; fewer than its share where the source has no more.

    Args:
        asked: problem type -> number of proposals of it.
        played: earlier problems, which are skipped unless the source `may_repeat`.
        past: those with a solve rate, oldest first, for `replay`; for `peers` those that a student left.
        stream: the random numbers of each type.

    Raises:
        ProblemError: the source cannot be used, or gives what is no draft of the type.
    """
    source: AnchorSource = ANCHOR_SOURCES.bound(settings.source, settings.parameters)
    again, found = may_repeat(settings), {}
    for problem_type, proposals in asked.items():
        count = settings.beside(proposals)
        drafts = source(
            stream(problem_type), count, problem_type, *([past] if settings.source in AGAIN else [])
        )
        given = _required(drafts, problem_type, settings.source)
        found[problem_type] = list(
            islice((draft for draft in given if again or not _known(draft, played)), count)
        )
    return found


def read_drafts(path: str, first: int = 0, end: int | None = None) -> Sequence[Draft]:
    """The problems of a data set, as they were before they were verified: outputs are computed again.

    Args:
        first, end: see `dataset`.

    Raises:
        ProblemError: there is no such file, or a row is no problem.
        BenchmarkError: the file cannot be read.
    """
    file = ANCHOR_FILE.at(path)
    return _read(file, file_sha256(file), first, end)


def require_played(
    types: Sequence[str], rules: TypeRules, path: str, first: int = 0, end: int | None = None
) -> None:
    """Raise ProblemError unless a data set has a problem of one of these types, with as many inputs as they ask for.

    Args:
        rules: of the dialect. `path`, `first` and `end`: see `read_drafts`.
    """
    there = Counter((draft.problem_type, len(draft.inputs)) for draft in read_drafts(path, first, end))
    asked = {kind: PROBLEM_TYPES.find(kind).input_count(rules) for kind in types}
    if not any(kind in asked for kind, _ in there):
        raise ProblemError(
            f"{path} has no problem of a type that is played",
            expected=f"problem_type {' or '.join(types)}",
            got=", ".join(sorted({kind for kind, _ in there})) or "no row",
            fix="take another data set, or name its types in propose.types",
        )
    if not any(kind in asked and asked[kind][0] <= inputs <= asked[kind][1] for kind, inputs in there):
        raise ProblemError(
            f"{path} has no problem with as many inputs as the dialect asks for",
            expected=", ".join(f"{kind} with {few} to {most}" for kind, (few, most) in asked.items()),
            got=", ".join(f"{kind} with {inputs}" for kind, inputs in sorted(there)),
            fix="take another data set, or set propose.inputs or base.dialect to what it was made for",
        )


@lru_cache(maxsize=1)
def _read(file: Path, sha256: str, first: int, end: int | None) -> Sequence[Draft]:
    rows = read_rows(file, sha256)
    if rows and all(map(cruxeval.is_row, rows)):
        usable = {str(row["id"]): found for row in rows if (found := cruxeval.drafts(row))}
        return [draft for name in in_order(usable)[first:end] for draft in usable[name]]
    if first or end is not None:
        raise ProblemError(
            f"{file} is no file of CRUXEval's, so first and end cannot choose from it",
            expected=", ".join(cruxeval.SCHEMA),
            got=", ".join(map(str, rows[0])) if rows else "no row",
            fix="leave them out of anchors.parameters",
        )
    return [_draft(row, f"{file}, row {number}") for number, row in enumerate(rows, 1)]


def _draft(row: Mapping[str, object], where: str) -> Draft:
    given = {key: value for key, value in row.items() if value is not None}
    try:
        return _DRAFT.validate_python({"message": ""} | given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ProblemError(
            f"{where} is no problem",
            expected='problem_type and program as text, inputs as a list of text such as ["(1, 2)"]',
            got=f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
            fix="correct the row or take it out",
        ) from error


def _required(given: Iterable[Draft], problem_type: str, source: str) -> Iterator[Draft]:
    for draft in given:
        if not isinstance(draft, Draft) or draft.problem_type != problem_type:
            raise ProblemError(
                f"the source of anchors {source} gave what is no draft of {problem_type}",
                expected=f"populora_core.problems.model.Draft with problem_type {problem_type!r}",
                got=repr(draft)[:200],
                fix="let it give drafts of the problem type that it is asked for, or none",
            )
        yield draft


def _known(draft: Draft, played: Buffer) -> bool:
    """True if the draft's program was played. One that does not parse never was; its verdict will say so."""
    try:
        return played.knows(draft.problem_type, program_key(draft.program))
    except ProgramSyntaxError:
        return False
