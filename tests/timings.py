"""Where the time of the tests goes: a JUnit file of pytest as seconds by file and by slowest case.

PYTEST_ADDOPTS=--junitxml=junit.xml make test; python tests/timings.py junit.xml bench/results/tests.json
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

SLOWEST = 40


def timings(junit: Path) -> dict[str, object]:
    """Seconds of the whole run, of each file, and of the slowest cases; set-up and teardown count."""
    (suite,) = ElementTree.parse(junit).getroot().iter("testsuite")
    files: dict[str, list[float]] = defaultdict(list)
    cases = {}
    for case in suite.iter("testcase"):
        place, name, seconds = case.get("classname", ""), case.get("name", ""), float(case.get("time", 0))
        files[place].append(seconds)
        cases[f"{place}::{name}"] = seconds
    return {
        "wall_seconds": round(float(suite.get("time", 0)), 1),
        "process_seconds": round(sum(cases.values()), 1),
        "cases": int(suite.get("tests", 0)),
        "files": {
            place: {"seconds": round(sum(own), 1), "cases": len(own)}
            for place, own in sorted(files.items(), key=lambda item: -sum(item[1]))
        },
        "slowest": {
            name: round(seconds, 1)
            for name, seconds in sorted(cases.items(), key=lambda item: -item[1])[:SLOWEST]
        },
    }


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(timings(Path(sys.argv[1])), indent=1) + "\n")
