"""What the tiers of the tests hold: the seconds of a collection, and where the cases of an earlier one have gone.

    pytest --collect-only -q -m "not thorough" > first.txt
    python tests/tiers.py seconds first.txt
    python tests/tiers.py table before.txt first.txt all.txt tests/data/tiers.toml bench/results/test-tiers.json

A collection is what `pytest --collect-only -q` prints. The table maps every case of `before.txt` to what covers it now;
what is there no longer needs a line in the reasons: a case, or a beginning of its name, and what became of it.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from timings import Recorded

KEPT, MOVED, MERGED, DROPPED = "kept", "moved to the second tier", "merged", "dropped"
LONGEST = 12


def collection(path: Path) -> list[str]:
    """The cases of a collection, without this machine's folders in their parameters."""
    root = f"{Path(__file__).resolve().parent.parent}/"
    lines = path.read_text().splitlines()
    return [line.replace(root, "") for line in lines if line.startswith("tests/") and "::" in line]


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
) -> dict[str, dict[str, str]]:
    """case -> what became of it: `where` it is now, and `what` covers it or `why` it went.

    Raises:
        KeyError: for a case that is gone without a reason.
    """
    first, everything = set(first), set(everything)
    table = {}
    for case in before:
        if case in first:
            table[case] = {"where": KEPT}
        elif case in everything:
            table[case] = {"where": MOVED}
        else:
            (said,) = sorted((b for b in reasons if case.startswith(b)), key=len)[-1:] or [case]
            where, _, rest = reasons[said].partition(": ")
            if where not in (MERGED, DROPPED):
                raise ValueError(f"{said}: a reason begins with `{MERGED}: ` or `{DROPPED}: `, not {where}")
            table[case] = {"where": where, "why" if where == DROPPED else "what": rest}
    return table


def main() -> None:
    """Command line."""
    match sys.argv[1:]:
        case ["seconds", cases]:
            print(seconds(collection(Path(cases))))
        case ["table", *collections, reasons, output]:
            before, first, everything = (collection(Path(path)) for path in collections)
            table = mapping(before, first, everything, tomllib.loads(Path(reasons).read_text()))
            counts = Counter(row["where"] for row in table.values())
            new = len(set(everything) - set(before))
            document = {"cases": len(before), "counts": counts, "new": new, "table": table}
            Path(output).write_text(json.dumps(document, indent=1) + "\n")
            print(*(f"{count:6,}  {where}" for where, count in counts.items()), f"{new:6,}  new", sep="\n")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
