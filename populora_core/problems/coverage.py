"""Cells of the problem space: programs that share one are alike in size and in what they are made of.

A cell is floor(log2) of four measures of size, together with the set of constructs that the program uses. Size
alone would count a program for new as soon as it is longer. How much of a program was never written before
is what `normal.novelty` says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from enum import StrEnum

from populora_core.problems.complexity import Complexity
from populora_core.problems.parsing import parse_program


class Construct(StrEnum):
    """The constructs of a program that cells distinguish."""

    ARITHMETIC = "arithmetic"
    BRANCH = "branch"
    CALL = "call"  # of a function by its name
    CLASS = "class"
    COMPREHENSION = "comprehension"
    CONTAINER = "container"  # a list, tuple, set or dict written out
    EXCEPTION = "exception"
    FORMAT = "format"  # f-strings
    FUNCTION = "function"  # a helper or a lambda beside the entry
    INDEX = "index"
    LOGIC = "logic"  # comparisons, and, or, not
    LOOP = "loop"
    METHOD = "method"
    SLICE = "slice"


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell.

    Attributes:
        bins: floor(log2) of AST depth, cyclomatic complexity, lines and variables; 0 and 1 share bin 0.
        constructs: what the program uses, sorted.
    """

    bins: tuple[int, ...]
    constructs: tuple[Construct, ...]

    def __str__(self) -> str:
        """The text in `problems.cell`: `3-1-2-1-branch+loop`; `none` where no construct is used."""
        return "-".join([*map(str, self.bins), "+".join(self.constructs) or "none"])

    @classmethod
    def parse(cls, text: str) -> Cell:
        """The cell that `str` gave."""
        *bins, constructs = text.split("-")
        names = () if constructs == "none" else constructs.split("+")
        return cls(tuple(map(int, bins)), tuple(map(Construct, names)))


def cell(program: str, complexity: Complexity) -> Cell:
    """The cell of a program whose complexity was measured.

    Raises:
        ProgramSyntaxError: the program does not parse.
    """
    sizes = tuple(max(size, 1).bit_length() - 1 for size in astuple(complexity))
    return Cell(sizes, constructs(program))


def constructs(program: str) -> tuple[Construct, ...]:
    """The constructs that a program uses, sorted; how often it uses each does not matter.

    Raises:
        ProgramSyntaxError: the program does not parse.
    """
    nodes = list(_run(parse_program(program)))
    found = {construct for node in nodes if (construct := _construct(node)) is not None}
    if sum(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in nodes) > 1:
        found.add(Construct.FUNCTION)
    return tuple(sorted(found))


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all below it but annotations: `list[int]` there indexes nothing."""
    yield node
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _run(child)


def _construct(node: ast.AST) -> Construct | None:
    match node:
        case ast.UnaryOp(op=ast.Not()) | ast.Compare() | ast.BoolOp():
            return Construct.LOGIC
        case ast.UnaryOp(operand=ast.Constant()):  # -1 is a number, not a computation
            return None
        case ast.BinOp() | ast.UnaryOp() | ast.AugAssign():
            return Construct.ARITHMETIC
        case ast.If() | ast.IfExp() | ast.Match():
            return Construct.BRANCH
        case ast.Call(func=ast.Attribute()):
            return Construct.METHOD
        case ast.Call():
            return Construct.CALL
        case ast.ClassDef():
            return Construct.CLASS
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return Construct.COMPREHENSION
        case ast.List(ctx=ast.Load()) | ast.Tuple(ctx=ast.Load()) | ast.Set() | ast.Dict():
            return Construct.CONTAINER
        case ast.Try() | ast.TryStar() | ast.Raise() | ast.Assert():
            return Construct.EXCEPTION
        case ast.JoinedStr():
            return Construct.FORMAT
        case ast.Lambda():
            return Construct.FUNCTION
        case ast.Slice():
            return Construct.SLICE
        case ast.Subscript(slice=ast.Slice()):
            return None
        case ast.Subscript():
            return Construct.INDEX
        case ast.For() | ast.While() | ast.AsyncFor():
            return Construct.LOOP
        case _:
            return None
