"""The problems of a suite: where their rows lie, which half each is in, and what they are by content."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice, zip_longest
from pathlib import Path

from populora_core.benchmarks.benchmark import Item, benchmark
from populora_core.benchmarks.fetched import fetched_file
from populora_core.benchmarks.files import read_rows
from populora_core.benchmarks.suite import Entry, Part, Suite
from populora_core.support.digest import file_sha256
from populora_core.support.errors import BenchmarkError


def load_items(entry: Entry) -> list[Item]:
    """The problems of one benchmark of a suite, in the order of its rows.

    Raises:
        BenchmarkError: the benchmark is unknown, or its rows are missing or not in the published schema.
    """
    items = benchmark(entry.benchmark).load(read_rows(rows_file(entry), entry.sha256))
    if entry.rows is not None:
        chosen = set(in_order(item.item_id for item in items)[slice(*entry.rows)])
        items = [item for item in items if item.item_id in chosen]
        if not items:
            raise BenchmarkError(
                f"{entry.benchmark} has no problem among its rows {list(entry.rows)}",
                expected="[first, end] within its problems",
                fix="correct rows in the suite file, or leave it out",
            )
    if len({item.item_id for item in items}) != len(items):
        raise BenchmarkError(f"{entry.benchmark} names two problems alike", expected="one id per problem")
    return items


def suite_items(suite: Suite, part: Part) -> list[tuple[Entry, list[Item]]]:
    """Every benchmark of a suite with its problems of one half (see `load_items`)."""
    halves = [(entry, part_of(load_items(entry), part, suite.validation)) for entry in suite.benchmarks]
    return [(entry, sample_of(items, suite.sample) if suite.sample else items) for entry, items in halves]


def require_problems(
    suite: Suite, part: Part, problems: list[tuple[Entry, list[Item]]]
) -> list[tuple[Entry, list[Item]]]:
    """Return them; raises BenchmarkError where a benchmark has none in this half."""
    empty = [entry.benchmark for entry, items in problems if not items]
    if empty:
        raise BenchmarkError(
            f"the {part} half of the suite {suite.suite} has no problem of {empty[0]}",
            got=f"validation = {suite.validation}",
            fix="change validation in the suite file, or leave this benchmark out",
        )
    return problems


def suite_digest(suite: Suite) -> str:
    """sha256 over everything that the suite file says and over the rows that it names."""
    rows = [entry.sha256 or file_sha256(rows_file(entry)) for entry in suite.benchmarks]
    return hashlib.sha256(json.dumps([suite.model_dump(mode="json"), rows]).encode()).hexdigest()


def rows_file(entry: Entry) -> Path:
    """The file with the rows of one benchmark of a suite; it exists once fetched."""
    return entry.here or fetched_file(entry)


def left_out(suite: Suite) -> dict[str, str]:
    """Benchmark and id of each row of the suite's files that its benchmark cannot use -> why."""
    found: dict[str, str] = {}
    for entry in suite.benchmarks:
        asked = getattr(benchmark(entry.benchmark), "left_out", None)
        if asked is not None:
            told: dict[str, str] = asked(read_rows(rows_file(entry), entry.sha256))
            found |= {f"{entry.benchmark} {item_id}": why for item_id, why in told.items()}
    return found


def in_order(names: Iterable[str]) -> list[str]:
    """The names in the order of their sha256, which depends on nothing else."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())


def part_of(items: Sequence[Item], part: Part, validation: float) -> list[Item]:
    """The problems of one half, in order.

    Within each stratum, the first share of the problems by the sha256 of their ids is for validation: the halves
    depend on nothing but the ids and the share.
    """
    held_back: set[str] = set()
    for names in _by_stratum(items):
        held_back.update(names[: round(validation * len(names))])
    return [item for item in items if (item.item_id in held_back) is (part is Part.VALIDATION)]


def sample_of(items: Sequence[Item], problems: int) -> list[Item]:
    """Choose up to this many problems, evenly over strata; the choice depends only on ids and number."""
    rounds = zip_longest(*_by_stratum(items))
    chosen = set(islice((name for turn in rounds for name in turn if name is not None), problems))
    return [item for item in items if item.item_id in chosen]


def _by_stratum(items: Sequence[Item]) -> list[list[str]]:
    """The ids of each stratum, strata by name, in the order of their sha256."""
    strata: dict[str, list[str]] = defaultdict(list)
    for item in items:
        strata[item.stratum].append(item.item_id)
    return [in_order(names) for _, names in sorted(strata.items())]
