"""The faults that can be planted in the code: one list, in the order of files and lines.

Every comparison, arithmetic or boolean operator, `not`, minus, condition, number and truth value in the code of
`PLACES` is one. Annotations, declarations of classes and the insides of texts hold none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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


PLAIN = (ast.Name, ast.Attribute, ast.Call, ast.NamedExpr, ast.Subscript)  # conditions with nothing to change


@dataclass(frozen=True, slots=True)
class Fault:
    """One expression, and what stands in its place.

    Attributes:
        code: the line that it begins in, by which it is found again where lines have moved.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    before: str
    after: str
    code: str = ""


def faults(source: str, file: str) -> Iterator[Fault]:
    """Every fault that can be planted in a file, in order."""
    tree, lines = ast.parse(source), source.encode().splitlines(keepends=True)
    silent = {id(part) for node in ast.walk(tree) for root in _silent(node) for part in ast.walk(root)}
    found = []
    for node in ast.walk(tree):
        if id(node) in silent:
            continue
        for part, after in _changes(node, lines):
            place = (part.lineno, part.col_offset, part.end_lineno or 0, part.end_col_offset or 0)
            code = lines[part.lineno - 1].decode().strip()
            found.append(Fault(file, *place, _cut(lines, *place).decode(), after, code))
    yield from sorted(found, key=lambda fault: (fault.line, fault.column, fault.after))


def _changes(node: ast.AST, lines: Sequence[bytes]) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """(part of the code, what stands in its place) of each fault of this very node."""
    if isinstance(node, (ast.expr, ast.AugAssign)):
        for changed in _changed(node):
            yield node, _text(changed)
    if isinstance(node, (ast.If, ast.IfExp, ast.While)) and isinstance(node.test, PLAIN):
        test = node.test
        before = _cut(lines, test.lineno, test.col_offset, test.end_lineno or 0, test.end_col_offset or 0)
        yield test, f"(not ({before.decode()}))"


def _cut(lines: Sequence[bytes], line: int, column: int, end_line: int, end_column: int) -> bytes:
    if line == end_line:
        return lines[line - 1][column:end_column]
    return b"".join([lines[line - 1][column:], *lines[line : end_line - 1], lines[end_line - 1][:end_column]])


def _text(changed: ast.AST) -> str:
    match changed:
        case ast.Constant(value=value):
            return repr(value)
        case ast.AugAssign():
            return ast.unparse(changed)
        case _:
            return f"({ast.unparse(changed)})"


def _silent(node: ast.AST) -> Iterator[ast.AST]:
    """Parts that are not run, or only shown: annotations, the insides of texts, type checking, declarations."""
    if isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation:
        yield node.annotation
    if isinstance(node, ast.FunctionDef) and node.returns:
        yield node.returns
    if isinstance(node, ast.ClassDef):
        yield from node.decorator_list  # frozen, slots
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


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for at, op in enumerate(ops):
                if type(op) in SWAPS:
                    swapped = [*ops[:at], SWAPS[type(op)](), *ops[at + 1 :]]
                    yield ast.Compare(left, swapped, comparators)  # type: ignore[arg-type]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPS:
            yield ast.BinOp(left, SWAPS[type(op)](), right)  # type: ignore[arg-type]
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in SWAPS:
            yield ast.AugAssign(target, SWAPS[type(op)](), value)  # type: ignore[arg-type]
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(SWAPS[type(op)](), values)  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
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
    """The file's text with the fault in it.

    Raises:
        ValueError: the code is not there any more, or several times.
    """
    lines = source.encode().splitlines(keepends=True)
    place = (fault.line, fault.column, fault.end_line, fault.end_column)
    if fault.end_line > len(lines) or _cut(lines, *place).decode() != fault.before:
        place = _moved(lines, fault)
    line, column, end_line, end_column = place
    head = b"".join(lines[: line - 1]) + lines[line - 1][:column]
    rest = lines[end_line - 1][end_column:] + b"".join(lines[end_line:])
    return (head + fault.after.encode() + rest).decode()


def _moved(lines: Sequence[bytes], fault: Fault) -> tuple[int, int, int, int]:
    """Where the fault's code is by now."""
    found = []
    for line, text in enumerate(lines, start=1):
        if text.decode().strip() == fault.code:
            place = (line, fault.column, line + fault.end_line - fault.line, fault.end_column)
            if place[2] <= len(lines) and _cut(lines, *place).decode() == fault.before:
                found.append(place)
    if len(found) != 1:
        raise ValueError(f"`{fault.before}` of {fault.file}:{fault.line} is there {len(found)} times by now")
    return found[0]
