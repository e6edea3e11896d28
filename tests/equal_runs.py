"""Compare the content hashes of two runs, file by file: a restructuring changes none of them.

    python tests/equal_runs.py RUN_BEFORE RUN_AFTER

Prints the number of files that are equal, and each that differs or is there once. Exit status 1 where there is one.
Times, paths and hosts lie in manifests, whose own hash does not count.
"""

from __future__ import annotations

import sys
from pathlib import Path

from conftest import contents


def differing(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Files of only one run, or of other content."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def main() -> int:
    before, after = (contents(Path(name)) for name in sys.argv[1:3])
    differ = differing(before, after)
    print(
        f"{len(before.keys() | after.keys()) - len(differ)} files of all stages are equal, {len(differ)} differ"
    )
    print("".join(f"  {name}\n" for name in differ), end="")
    return 1 if differ or not before else 0


if __name__ == "__main__":
    raise SystemExit(main())
