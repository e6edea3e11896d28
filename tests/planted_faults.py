"""Does the suite notice a fault? Plants faults drawn by a rule, one by one, and runs the tests that import the place.

    python tests/planted_faults.py --seed 1 --marks "not thorough" --output bench/results/planted-faults-1.json
    python tests/planted_faults.py --again bench/results/planted-faults-1.json --marks "not thorough"
    python tests/planted_faults.py --seed 1 --list

`fault_rule.py` lists every fault there can be, and a seed draws from the list. Each is tried on all test files that
import its module, until a test fails or hangs. Whatever found a fault must pass without it. Those not found are to be
looked at: tests/data/equivalent_faults.toml says which of them change nothing, and `--again` tries the others on the
tests of today.

A result that is there is taken up where it stopped. The processes of the tests are forked from one that has imported
the heavy packages, which saves each of them some seconds.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
from fault_rule import REPOSITORY, Fault, listed, planted
from house import files_of_tests

EQUIVALENT = REPOSITORY / "tests" / "data" / "equivalent_faults.toml"
HEAVY = (
    *("torch", "transformers.models.auto.modeling_auto", "transformers.modeling_utils", "safetensors.torch"),
    *("hypothesis", "pyarrow.parquet", "duckdb", "pandas"),
)
NAMED = ("file", "code", "before", "after")
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
SECONDS = 900  # for one test; a fault that makes it hang is found


@dataclass(frozen=True, slots=True)
class Result:
    """What the tests said of a fault.

    Attributes:
        by: the test that failed; empty where none did.
        files: how many test files import the module.
        cpu_seconds: what the tests took until one failed.
        equivalent: why the fault, which was not found, changes nothing; empty where it does.
        later: the test that was written since and fails; empty where none was needed.
    """

    fault: Fault
    found: bool
    by: str
    files: int
    cpu_seconds: float
    equivalent: str = ""
    later: str = ""


def importers(file: str, root: Path = REPOSITORY) -> list[str]:
    """The test files that import the module; where none does, those that import anything of its room."""
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    room, _, name = module.rpartition(".")
    named = re.compile(
        rf"(from|import) {re.escape(module)}\b|from {re.escape(room)} import (\([^)]*|[^(\n]*)\b{name}\b"
    )
    tests = {path: path.read_text() for path in files_of_tests(root) if path.name.startswith("test_")}
    neighbours = re.compile(rf"(from|import) {re.escape(room)}\b")
    found = [path for path, text in tests.items() if named.search(text)]
    found = found or [path for path, text in tests.items() if neighbours.search(text)]
    return [path.relative_to(root).as_posix() for path in found]


def likeliest(files: Sequence[str], module: Path, root: Path) -> list[str]:
    """The test files, those first that name the most of what the module defines."""
    defined = [node.name for node in ast.parse(module.read_text()).body if isinstance(node, DEFINITIONS)]
    names = re.compile(rf"\b({'|'.join([module.stem, *defined])})\b")
    texts = {file: (root / file).read_text() for file in files}
    return sorted(files, key=lambda file: -len(names.findall(texts[file])))


class Failures:
    """Keeps what fails."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def run(copy: Path, arguments: Sequence[str]) -> tuple[list[str], float]:
    """What failed of a run of pytest in a process of its own, and its CPU seconds."""
    told = copy.parent / "failed.json"
    told.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        os.setsid()
        _in_the_copy(copy, arguments, told)
    _, status, used = os.wait4(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what a test left running
    code = os.waitstatus_to_exitcode(status)
    failed = json.loads(told.read_text()) if told.exists() else []
    if code not in (0, 5) and not failed:
        failed = ["tests/conftest.py" if code == pytest.ExitCode.USAGE_ERROR else f"ends with {code}"]
    return failed, used.ru_utime + used.ru_stime


def _in_the_copy(copy: Path, arguments: Sequence[str], told: Path) -> None:
    """Run pytest as `python -m pytest` in the copy would, and end."""
    code = 3
    try:
        own = {str(REPOSITORY), str(REPOSITORY / "tests"), "", "."}
        sys.path[:] = [str(copy), *(path for path in sys.path if path not in own)]
        os.chdir(copy)
        os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": ""}
        sys.dont_write_bytecode = False
        with (copy.parent / "log.txt").open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        failures = Failures()
        common = ["-q", "-p", "no:cacheprovider", f"--basetemp={copy.parent}/t", "-o", f"timeout={SECONDS}"]
        code = int(pytest.main([*common, *arguments], plugins=[failures]))
        told.write_text(json.dumps(failures.failed))
        sys.stdout.flush()
    finally:
        os._exit(code)


def tried(fault: Fault, copy: Path, marks: str) -> Result:
    """Plant a fault in the copy of the repository, run its tests until one fails, take it out again."""
    target = copy / fault.file
    source, seconds = target.read_text(), 0.0
    failed: list[str] = []
    files = likeliest(importers(fault.file, copy), target, copy)
    target.write_text(planted(source, fault))
    try:
        for part in (files[:1], files[1:3], files[3:]):  # most faults are found before all files are read
            if part and not failed:
                failed, more = run(copy, ["-x", "-m", marks, *part])
                seconds += more
    finally:
        target.write_text(source)
    return Result(fault, bool(failed), failed[0] if failed else "", len(files), round(seconds, 1))


def reasons() -> dict[tuple[str, ...], str]:
    """(file, code, before, after) -> why the fault changes nothing."""
    told = tomllib.loads(EQUIVALENT.read_text())["equivalent"]
    return {tuple(each[name] for name in NAMED): each["why"] for each in told}


def named(fault: Fault) -> tuple[str, ...]:
    return tuple(getattr(fault, name) for name in NAMED)


def summary(results: Sequence[Result]) -> Mapping[str, int]:
    """How many of the faults that change anything were found by the tests that were there, and by those of today."""
    counted = [result for result in results if not result.equivalent]
    return {
        "drawn": len(results),
        "equivalent": len(results) - len(counted),
        "found": sum(result.found for result in counted),
        "found_with_later_tests": sum(result.found or bool(result.later) for result in counted),
    }


def written(output: Path, document: Mapping[str, object], results: Sequence[Result]) -> None:
    """Write the result, each line of it one fault."""
    why = reasons()
    struck = [
        each if each.found else replace(each, equivalent=why.get(named(each.fault), "")) for each in results
    ]
    whole = {**document, **summary(struck), "results": [asdict(result) for result in struck]}
    output.write_text(json.dumps(whole, indent=1) + "\n")


def read(output: Path) -> tuple[dict[str, object], list[Result]]:
    """What a result holds by now."""
    document = json.loads(output.read_text())
    results = [Result(**{**each, "fault": Fault(**each["fault"])}) for each in document.pop("results")]
    return document, results


def unconfirmed(by: Sequence[str], copy: Path) -> list[str]:
    """Those of the tests that fail with no fault in the code."""
    cases = sorted({test for test in by if "::" in test})
    return run(copy, cases)[0] if cases else []


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--seed", type=int)
    task.add_argument("--again", type=Path, help="a result whose faults that were not found are tried again")
    parser.add_argument("--draw", type=int, default=40)
    parser.add_argument(
        "--marks", default="not (browser or ray or docker or s3 or vllm or gpu)", help="of pytest -m"
    )
    parser.add_argument("--output", type=Path)
    parser.add_argument("--list", action="store_true", help="show what is drawn and stop")
    options = parser.parse_args()
    document: dict[str, object] = {}
    results: list[Result] = []
    if options.again:
        output = options.again
        document, results = read(output)
        drawn = [each.fault for each in results]
    else:
        everything, output = listed(), options.output
        drawn = random.Random(options.seed).sample(everything, options.draw)
        print(f"{len(drawn)} of {len(everything)} faults")
        document["command"] = (
            f'python tests/planted_faults.py --seed {options.seed} --draw {options.draw} --marks "{options.marks}"'
        )
        document["faults"] = len(everything)
        if output and output.exists():
            document, results = read(output)
    if options.list:
        print(*(f"{each.file}:{each.line}  {each.before}  ->  {each.after}" for each in drawn), sep="\n")
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # threads that wait for each other cost a busy machine twice
    for package in HEAVY:
        importlib.import_module(package)
    why = reasons()
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder) / "copy"
        ignored = shutil.ignore_patterns(".git", ".venv*", ".*_cache", "__pycache__", "screenshots")
        shutil.copytree(REPOSITORY, copy, ignore=ignored)
        for step in (["init", "-q"], ["add", "-A"]):  # some tests ask git for what is tracked
            subprocess.run(["git", *step], cwd=copy, check=True)
        for at, fault in enumerate(drawn):
            before = results[at] if at < len(results) else None
            missed = before is not None and not (before.found or before.later)
            known = named(fault) in why
            if before is not None and not (options.again and missed and not known):
                continue
            print(f"{fault.file}:{fault.line}  {fault.before}  ->  {fault.after}", flush=True)
            now = tried(fault, copy, options.marks)
            print(
                f"    {'found by ' + now.by if now.found else 'NOT FOUND'}, {now.cpu_seconds} CPU s",
                flush=True,
            )
            if before is None:
                results.append(now)
            else:
                results[at] = replace(before, later=now.by)
            if output:
                written(output, document, results)
        if failing := unconfirmed([each.by or each.later for each in results], copy):
            sys.exit("these fail without a fault, so what they found does not count:\n" + "\n".join(failing))
    if output:
        written(output, document, results)
    print(summary(results))


if __name__ == "__main__":
    main()
