"""Print the gates of bases as a table: a row for each full trial of a base, a dialect and a problem type.

    populora try --base qwen2.5-coder-0.5b --dialect chat --full --output bench/results/gates.jsonl
    python -m experiments.gates bench/results/gates.jsonl

A cell is a share in per cent with the 95 % interval that its trial gave it; one that the base fails, by the interval
alone, has a mark behind it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from experiments.lines import parser_of
from populora_core.report.text import markdown_table
from populora_core.support.aliases import Row
from populora_plugins.trial.trial import Ability, TypeTrial

GATES = [share.name for share in TypeTrial("code_o").shares()]
FAILED = " ✗"


def cell(share: Row) -> str:
    """A share, its interval, and the mark where it is out of its range."""
    if not share["of"]:
        return "-"
    low, high = share["interval"]
    told = f"{100 * share['hits'] / share['of']:.0f} ({100 * low:.0f} to {100 * high:.0f})"
    return told + FAILED * (share["verdict"] == Ability.CANNOT)


def table(rows: Iterable[Row]) -> str:
    """A line for each trial, by base, dialect and type."""

    def place(row: Row) -> tuple[str, str, str]:
        base = row["base"].removeprefix("gguf:").partition("-Instruct")[0].partition("-instruct")[0]
        return base, f"`{row['dialect']}`", f"`{row['problem_type']}`"

    lines = [
        (*place(row), *(cell(row["shares"][name]) for name in GATES), row["verdict"])
        for row in sorted(rows, key=place)
    ]
    return markdown_table(("base", "dialect", "type", *GATES, "verdict"), lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("file", type=Path, help="JSON lines of `populora try --output`")
    print(table(map(json.loads, parser.parse_args().file.read_text().splitlines())))


if __name__ == "__main__":
    main()
