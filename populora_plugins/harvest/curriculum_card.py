"""The card of a data set of problems; every figure in it is counted from the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import floor

import pyarrow as pa

from populora_core.report.text import markdown_name, markdown_table, markdown_text
from populora_core.sandbox.jobs import Limits
from populora_core.support.aliases import Row
from populora_core.support.ids import ANCHOR

FILTERS = {
    "solve rate": ("least", "most"),
    "statements": ("shortest", "longest"),
    "level": ("lowest", "highest"),
    "novelty": ("novelty",),
}
"""Name of a filter on the card -> its settings, least and most."""
DEEP = 10
"""Levels from here on are one line."""
COLUMNS = """\
`problems`: `program` with `inputs` and the `outputs` that the sandbox found; `examples` are the pairs that a student
is shown where it must write the program; `level` counts the statements beside `def` and `return` (with
`verify.slack`, those that matter);
`chance` is how often a blind guess would be right; `python` is the version that the outputs are of; `students` has
the solve rate of each student in each generation; `teacher_lineage` the proposer and all that it descends from.
`supervised`: a `prompt` with a correct `completion`, which is split into its `thought` and its `answer`.
`preferences`: of one prompt a right completion, `chosen`, and a wrong one, `rejected`."""


def card(
    tables: Mapping[str, pa.Table],
    splits: Sequence[str],
    tested: float,
    filters: Mapping[str, float],
    unfiltered: Mapping[str, float],
    limits: Limits,
    left_out: int,
    licences: Collection[str | None],
    dialects: Collection[str],
) -> str:
    """The card as Markdown, its header in the hub's own layout.

    Args:
        tested: share of the programs that are in the split `test`.
        filters: that were set.
        unfiltered: the same settings at their defaults.
        limits: of a program.
        left_out: problems that a held-out suite has.
        licences: of the runs' bases; None for one that is not known.
        dialects: of the runs.
    """
    problems = tables["problems"].to_pylist()
    counts = {name: Counter(table["split"].to_pylist()) for name, table in tables.items()}
    runs = ", ".join(markdown_text(run) for run in sorted({row["run"] for row in problems}))
    copies = sum(row["copies"] - 1 for row in problems)
    lines = [
        *_header(counts, splits, None if _anchors(problems) or len(licences) != 1 else next(iter(licences))),
        "# Problems that a population set itself",
        "",
        f"From {runs}. A sandbox ran every problem twice, with the same result. Its solve rate is that of"
        " the students that it was matched with. A problem that was asked again, or that several runs have, is one"
        f" row: {copies} further copies were joined to theirs. {left_out} problems were left out because a held-out"
        " suite has them, or because the Python that wrote this could not read them.",
        *_anchors(problems),
        judged_by((row["python"] for row in problems), limits),
        "",
        markdown_table(
            ("configuration", *splits),
            [[f"`{name}`", *(str(own[split]) for split in splits)] for name, own in counts.items()],
        ),
        "",
        COLUMNS,
        f"Prompts (dialect: {', '.join(map(markdown_name, sorted(dialects)))}) come before a chat template wraps them.",
        "",
        _summary("type", problems, lambda row: markdown_name(row["problem_type"])),
        "",
        _summary("level", problems, _level),
        "",
        f"Filters: {_told(filters, unfiltered)}. Share of the programs in the split `test`: {tested:g}.",
        "",
    ]
    return "\n".join(lines)


def _header(counts: Mapping[str, Counter[str]], splits: Sequence[str], licence: str | None) -> list[str]:
    """Header of the configurations that have rows; the first one is loaded where none is named."""
    lines = [
        "---",
        *([f"license: {licence}"] if licence else []),
        "tags: [populora, self-play, code]",
        "configs:",
    ]
    for number, (name, own) in enumerate(counts.items()):
        if own:
            lines += [f"- config_name: {name}", *["  default: true"][number:], "  data_files:"]
        for split in filter(own.get, splits):
            lines += [f"  - split: {split}", f"    path: {name}/{split}.parquet"]
    return [*lines, "---", ""]


def _level(row: Row) -> str:
    return str(floor(row["level"])) if row["level"] < DEEP else f"{DEEP} and more"


def _anchors(problems: Sequence[Row]) -> list[str]:
    anchors = sum(row["teacher_id"] == ANCHOR for row in problems)
    return (
        [f"{anchors} are anchors (`teacher_id` is `{ANCHOR}`), under the terms of their source."]
        if anchors
        else []
    )


def judged_by(pythons: Iterable[str | None], limits: Limits) -> str:
    """The Python versions and limits by which answers to such problems must be judged."""
    known = sorted({python for python in pythons if python})
    told = f"Outputs are those of Python {', '.join(known)}. " if known else ""
    return (
        f"{told}A program may take {limits.cpu_seconds:g} s of CPU for all its inputs, {limits.wall_seconds:g} s by "
        f"the clock, {limits.memory_bytes >> 20} MiB of memory and {limits.output_bytes >> 10} KiB of output."
    )


def _summary(what: str, problems: Sequence[Row], of: Callable[[Row], str]) -> str:
    """Count and means of the problems, by some property of theirs."""
    rows = []
    for name in sorted({of(row) for row in problems}, key=lambda name: (len(name), name)):
        own = [row for row in problems if of(row) == name]
        means = (
            f"{sum(row[key] for row in own) / len(own):.2f}"
            for key in ("solve_rate", "chance", "novelty", "lines_of_code")
        )
        rows.append((name, str(len(own)), *means))
    return markdown_table(
        (what, "problems", "mean solve rate", "mean chance", "mean novelty", "mean statements"), rows
    )


def _told(filters: Mapping[str, float], unfiltered: Mapping[str, float]) -> str:
    told = []
    for name, (least, *most) in FILTERS.items():
        if any(filters[key] != unfiltered[key] for key in (least, *most)):
            told.append(f"{name} from {filters[least]:g}" + "".join(f" to {filters[key]:g}" for key in most))
    return ", ".join(told) or "none"
