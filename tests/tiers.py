"""What the tiers of the tests hold: the seconds of a collection, and where the cases of an earlier one have gone.

    pytest --collect-only -q -m "not thorough" > first.txt
    python tests/tiers.py seconds first.txt
    python tests/tiers.py table before.txt first.txt all.txt tests/data/tiers.toml bench/results/test-tiers.json

A collection is what `pytest --collect-only -q` prints. The table says of every case of `before.txt` what covers it now;
one that is there no longer needs a line in the reasons: the beginning of its name, and what became of it.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from timings import Recorded

KEPT, MOVED, MERGED, DROPPED = "kept", "moved to the second tier", "merged", "dropped"
LONGEST = 12


def collection(path: Path) -> list[str]:
    """The cases of a collection."""
    lines = path.read_text().splitlines()
    return [line for line in lines if "tests/test_" in line and "::" in line]


def seconds(cases: Collection[str]) -> str:
    """What the cases take by the last whole run, and which files the most of it."""
    recorded, files = Recorded(), Counter[str]()
    for case in cases:
        files[case.partition("::")[0]] += recorded.seconds(case)
    lines = [f"{len(cases)} cases, {files.total():.0f} process-seconds"]
    lines += [f"{taken:7.1f}  {file}" for file, taken in files.most_common(LONGEST)]
    return "\n".join(lines)


def mapping(
    before: Sequence[str], first: Collection[str], everything: Collection[str], reasons: Mapping[str, str]
) -> dict[str, str]:
    """case -> what became of it: kept, moved, merged into what, or dropped and why.

    Raises:
        KeyError: a case is gone without a reason.
        ValueError: a reason says neither.
    """
    first, everything, table = set(first), set(everything), {}
    for case in before:
        if case in first:
            table[case] = KEPT
        elif case in everything:
            table[case] = MOVED
        else:
            said = max(
                (beginning for beginning in reasons if case.startswith(beginning)), key=len, default=case
            )
            table[case] = reasons[said]
            if table[case].partition(": ")[0] not in (MERGED, DROPPED):
                raise ValueError(f"{said}: a reason begins with `{MERGED}: ` or `{DROPPED}: `")
    return table


def grouped(table: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """what became of them -> test -> cases; of those that were kept, by file."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for case, fate in table.items():
        test = case.partition("[")[0]
        found[fate][test.partition("::")[0] if fate == KEPT else test] += 1
    return {fate: dict(sorted(tests.items())) for fate, tests in sorted(found.items())}


def main() -> None:
    """Command line."""
    match sys.argv[1:]:
        case ["seconds", cases]:
            print(seconds(collection(Path(cases))))
        case ["table", *collections, reasons, output]:
            before, first, everything = (collection(Path(path)) for path in collections)
            table = mapping(before, first, everything, tomllib.loads(Path(reasons).read_text()))
            counts = Counter(fate.partition(": ")[0] for fate in table.values())
            new = len(set(everything) - set(before))
            document = {"cases": len(before), "new": new, "counts": counts, "table": grouped(table)}
            Path(output).write_text(json.dumps(document, indent=1) + "\n")
            print(
                *(f"{count:6,}  {where}" for where, count in sorted(counts.items())),
                f"{new:6,}  new",
                sep="\n",
            )
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
