"""Does the suite notice a fault? Plants faults drawn by a rule, one by one, and runs the tests that import the place.

    python tests/planted_faults.py --seed 1 --draw 40 --output bench/results/planted-faults-1.json
    python tests/planted_faults.py --seed 1 --list

The rule: every comparison, arithmetic or boolean operator, `not`, number and truth value in the code of `PLACES` is a
fault that can be planted, in the order of files and lines; annotations and the insides of texts hold none. A seed draws
from the list. A fault is found if a test fails or hangs; the others are printed, to be looked at.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PLACES = (
    "populora_core/sampler/[!v]*.py",  # vLLM is not installed where these run
    "populora_core/learner/**/*.py",
    "populora_core/problems/grading.py",
    "populora_core/problems/rewards.py",
    "populora_core/population/rating.py",
    "populora_core/population/matchmaking.py",
    "populora_core/population/variation/*.py",
    "populora_core/store/*.py",
)
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
SECONDS = 600.0  # for the files of one fault; a fault that makes them hang is found


@dataclass(frozen=True, slots=True)
class Fault:
    """One expression, and what stands in its place."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Result:
    """What the tests said of a fault.

    Attributes:
        by: the test that failed; empty where none did.
    """

    fault: Fault
    found: bool
    by: str
    files: Sequence[str]
    seconds: float


def faults(source: str, file: str) -> Iterator[Fault]:
    """Every fault that can be planted in a file, in order."""
    tree = ast.parse(source)
    silent = {id(part) for node in ast.walk(tree) for root in _silent(node) for part in ast.walk(root)}
    found = [
        Fault(
            file, node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0, before, after
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.expr) and id(node) not in silent
        for before, after in _changes(node, source)
    ]
    yield from sorted(found, key=lambda fault: (fault.line, fault.column, fault.after))


def _silent(node: ast.AST) -> Iterator[ast.AST]:
    """Parts that are not run, or only shown: annotations, the insides of texts, type checking."""
    if isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation:
        yield node.annotation
    if isinstance(node, ast.FunctionDef) and node.returns:
        yield node.returns
    if isinstance(node, ast.JoinedStr):
        yield node
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        yield node
    if (
        isinstance(node, ast.Assign)
        and all(isinstance(t, ast.Name) and t.id[0].isupper() for t in node.targets)
        and isinstance(node.value, ast.BinOp)
        and isinstance(node.value.op, ast.BitOr)
    ):
        yield node  # an alias of types


def _changes(node: ast.expr, source: str) -> Iterator[tuple[str, str]]:
    """(text as it stands, text with the fault) of each fault of this very expression."""
    before = ast.get_source_segment(source, node)
    if before is None:
        return
    for changed in _changed(node):
        yield (
            before,
            f"({ast.unparse(changed)})" if not isinstance(changed, ast.Constant) else repr(changed.value),
        )


def _changed(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in SWAPS:
            yield ast.Compare(left, [SWAPS[type(op)]()], [right])  # type: ignore[list-item]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPS:
            yield ast.BinOp(left, SWAPS[type(op)](), right)  # type: ignore[arg-type]
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(SWAPS[type(op)](), values)  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value + 1)


def listed() -> list[Fault]:
    """Every fault of `PLACES`, by file and line."""
    files = sorted({path for place in PLACES for path in REPOSITORY.glob(place)})
    return [
        fault for path in files for fault in faults(path.read_text(), path.relative_to(REPOSITORY).as_posix())
    ]


def planted(source: str, fault: Fault) -> str:
    """The file's text with the fault in it."""
    lines = source.splitlines(keepends=True)
    head = "".join(lines[: fault.line - 1]).encode() + lines[fault.line - 1].encode()[: fault.column]
    rest = lines[fault.end_line - 1].encode()[fault.end_column :] + "".join(lines[fault.end_line :]).encode()
    return (head + fault.after.encode() + rest).decode()


def importers(file: str) -> list[str]:
    """The test files that import the module; where none does, those that import anything of its room."""
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    room, _, name = module.rpartition(".")
    named = re.compile(rf"(from|import) {re.escape(module)}\b|from {re.escape(room)} import [^\n]*\b{name}\b")
    tests = {path: path.read_text() for path in sorted((REPOSITORY / "tests").glob("test_*.py"))}
    neighbours = re.compile(rf"(from|import) {re.escape(room)}\b")
    found = [path for path, text in tests.items() if named.search(text)]
    found = found or [path for path, text in tests.items() if neighbours.search(text)]
    return [path.relative_to(REPOSITORY).as_posix() for path in found]


def tried(fault: Fault, copy: Path, marks: str) -> Result:
    """Plant a fault in the copy of the repository, run its tests until one fails, take it out again."""
    files, target = importers(fault.file), copy / fault.file
    source, started = target.read_text(), time.monotonic()
    target.write_text(planted(source, fault))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", marks, *files]
    try:
        ended = subprocess.run(
            command,
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", ended.stdout, re.MULTILINE)
        found, by = ended.returncode not in (0, 5), failed[0] if failed else ""
    except subprocess.TimeoutExpired:
        found, by = True, "hangs"
    finally:
        target.write_text(source)
    return Result(fault, found and bool(files), by, files, round(time.monotonic() - started, 1))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--draw", type=int, default=40)
    parser.add_argument(
        "--marks", default="not (browser or ray or docker or s3 or vllm or gpu)", help="of pytest -m"
    )
    parser.add_argument("--output", type=Path)
    parser.add_argument("--list", action="store_true", help="show what is drawn and stop")
    options = parser.parse_args()
    everything = listed()
    drawn = random.Random(options.seed).sample(everything, options.draw)
    print(f"{len(drawn)} of {len(everything)} faults")
    results = []
    with tempfile.TemporaryDirectory(prefix="populora-faults-") as folder:
        copy = Path(folder) / "copy"
        ignored = shutil.ignore_patterns(".git", ".venv*", ".*_cache", "__pycache__", "screenshots")
        if not options.list:
            shutil.copytree(REPOSITORY, copy, ignore=ignored)
        for fault in drawn:
            print(f"{fault.file}:{fault.line}  {fault.before}  ->  {fault.after}", flush=True)
            if not options.list:
                results.append(tried(fault, copy, options.marks))
                print(f"    {'found by ' + results[-1].by if results[-1].found else 'NOT FOUND'}", flush=True)
    if options.output:
        found = sum(result.found for result in results)
        document = {
            "command": " ".join(["python", "tests/planted_faults.py", *sys.argv[1:]]),
            "faults": len(everything),
            "found": found,
            "results": [asdict(result) for result in results],
        }
        options.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
