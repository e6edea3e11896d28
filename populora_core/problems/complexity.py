"""Complexity of a program, in four numbers."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from radon.visitors import ComplexityVisitor

from populora_core.problems.parsing import is_string, parse_program, tree_depth

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Complexity:
    """The measures of one program.

    Args:
        ast_depth: nodes on the longest path of the syntax tree.
        cyclomatic_complexity: radon's, summed over all functions, methods and nested functions included.
        lines_of_code: logical lines, that is statements, docstrings not counted.
        variable_count: distinct names bound by assignments, loops, parameters, comprehensions, `with`,
            `except` and patterns.
    """

    ast_depth: int
    cyclomatic_complexity: int
    lines_of_code: int
    variable_count: int


def measure(program: str) -> Complexity:
    """Measure a program.

    Lines are counted on the tree rather than by radon: its `lloc` takes a slice such as `x[1:]` for a second
    line, and its `sloc` rises with mere layout, takes quadratic time on a long string and refuses some valid
    programs.

    Raises:
        ProgramSyntaxError: the program does not parse.
    """
    tree = parse_program(program)
    nodes = list(ast.walk(tree))
    return Complexity(
        ast_depth=tree_depth(tree),
        cyclomatic_complexity=sum(_cyclomatic(node) for node in nodes if isinstance(node, _FUNCTION)),
        lines_of_code=sum(isinstance(node, ast.stmt) and not is_string(node) for node in nodes),
        variable_count=len({name for node in nodes if (name := _bound_name(node)) is not None}),
    )


def _cyclomatic(function: ast.AST) -> int:
    """Decision points of one function plus 1; functions nested in it count for themselves."""
    return int(ComplexityVisitor.from_ast(function).functions[0].complexity)


def _bound_name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return name
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name
        case ast.MatchMapping(rest=name):
            return name
        case _:
            return None
