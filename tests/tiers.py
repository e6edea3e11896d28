"""What a tier of the tests takes: the seconds of a collection.

    pytest --collect-only -q -m "not thorough" > first.txt
    python tests/tiers.py seconds first.txt

A collection is what `pytest --collect-only -q` prints.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from timings import Recorded

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


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["seconds", cases]:
            print(seconds(collection(Path(cases))))
        case _:
            sys.exit(__doc__)
