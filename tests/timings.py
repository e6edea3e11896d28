"""Where the time of the tests goes: JUnit files of pytest as seconds by file and by case.

    make test JUNIT=first.xml; make test-rest JUNIT=rest.xml
    python tests/timings.py first.xml rest.xml bench/results/tests.json

The longest files are printed. The record orders the files, the longest first (conftest.py), and says what a tier takes
(tiers.py).
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

RECORDED = Path(__file__).resolve().parent.parent / "bench" / "results" / "tests.json"
LEAST = 0.5  # seconds of a case that is worth a line of its own
LONGEST = 40  # files that are printed


def timings(junits: Sequence[Path]) -> dict[str, Any]:
    """Seconds of the runs, of each file, and of the longer cases; set-up and teardown count."""
    suites = [suite for junit in junits for suite in ElementTree.parse(junit).getroot().iter("testsuite")]
    files: dict[str, list[float]] = defaultdict(list)
    cases = {}
    for case in (case for suite in suites for case in suite.iter("testcase")):
        place, name, seconds = (
            _place(case.get("classname", "")),
            case.get("name", ""),
            float(case.get("time", 0)),
        )
        files[place].append(seconds)
        cases[f"{place}::{name}"] = seconds
    return {
        "wall_seconds": round(sum(float(suite.get("time", 0)) for suite in suites), 1),
        "process_seconds": round(sum(cases.values()), 1),
        "cases": sum(int(suite.get("tests", 0)) for suite in suites),
        "files": {
            place: {"seconds": round(sum(own), 1), "cases": len(own)}
            for place, own in sorted(files.items(), key=lambda item: -sum(item[1]))
        },
        "slowest": {
            name: round(seconds, 1)
            for name, seconds in sorted(cases.items(), key=lambda item: -item[1])
            if seconds >= LEAST
        },
    }


def _place(module: str) -> str:
    """A test's module as if it lay in tests/, wherever it lies: so a test that moves keeps its figures."""
    return f"tests.{module.rpartition('tests.')[2]}"


class Recorded:
    """What test cases took in the last whole run; one without a line of its own takes what its file's others do."""

    def __init__(self, result: Path = RECORDED) -> None:
        recorded = json.loads(result.read_text())
        self._cases: dict[str, float] = recorded["slowest"]
        seconds, cases = Counter[str](), Counter[str]()
        for place, file in recorded["files"].items():
            seconds[place], cases[place] = file["seconds"], file["cases"]
        for name, own in self._cases.items():
            place = name.partition("::")[0]
            seconds[place] -= own
            cases[place] -= 1
        self._others = {place: max(0.0, seconds[place]) / max(1, cases[place]) for place in cases}

    def seconds(self, node: str, unknown: float = 0.0) -> float:
        """Of a case, by pytest's name of it: `tests/test_kill.py::test_killed[early]`; `unknown` in a new file."""
        path, bracket, parameters = node.partition("[")
        file, *classes, function = path.split("::")
        place = _place(".".join([file.removesuffix(".py").replace("/", "."), *classes]))
        return self._cases.get(f"{place}::{function}{bracket}{parameters}", self._others.get(place, unknown))


if __name__ == "__main__":
    *junits, result = map(Path, sys.argv[1:])
    found = timings(junits)
    result.write_text(json.dumps(found, indent=1) + "\n")
    print(
        found["wall_seconds"], "s, of processes", found["process_seconds"], "s; the longest files (s, cases):"
    )
    for place, file in list(found["files"].items())[:LONGEST]:
        print(f"{file['seconds']:8.1f} {file['cases']:5} {place}")
