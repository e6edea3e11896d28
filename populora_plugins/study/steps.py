"""Counting of what a program does on an input: a rewritten program counts what it executes.

Source is rewritten here and run in a sandbox like any other program; nothing runs in this process.
"""

from __future__ import annotations

import ast
from typing import Any

from populora_core.problems.parsing import ENTRY, name_beyond, parse_program

_HELPERS = """
{name}_count = [0]
def {name}_tick():
    {name}_count[0] += 1
    return True
"""
_ENTRY = f"""
def {ENTRY}(*arguments):
    {{name}}_count[0] = 0
    {{name}}(*arguments)
    return {{name}}_count[0]
"""


def counting(program: str) -> str:
    """A program whose entry function returns how many statements the original executes on the same input.

    Every statement inside a function counts each time it is reached, and every turn of a comprehension; what the
    module itself does does not.

    Raises:
        ProgramSyntaxError: the program does not parse.
        ValueError: this version of Python cannot write it out with its counters.
    """
    name = name_beyond(program)
    tree = _Counter(name).visit(parse_program(program))
    first = next((place for place, node in enumerate(tree.body) if not _leads(node)), len(tree.body))
    helpers = ast.parse(_HELPERS.format(name=name)).body
    tree.body[first:first] = helpers  # defaults and decorators of the program may need them
    return ast.unparse(ast.fix_missing_locations(tree)) + _ENTRY.format(name=name)


class _Counter(ast.NodeTransformer):
    """A transformer that puts a tick before each statement of a function and renames the entry, which may recurse."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._inside = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._renamed(node.name)
        outside, self._inside = self._inside, True
        self.generic_visit(node)
        self._inside = outside
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._renamed(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._renamed(node.arg)
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        node.arg = node.arg and self._renamed(node.arg)
        return self.generic_visit(node)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> ast.AST:
        node.names = [self._renamed(name) for name in node.names]
        return node

    visit_Nonlocal = visit_Global

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = node.name and self._renamed(node.name)
        return self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.ifs.insert(0, self._tick())
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if self._inside:
            for field, value in ast.iter_fields(node):
                if isinstance(value, list) and value and all(isinstance(item, ast.stmt) for item in value):
                    setattr(node, field, self._ticked(value))
        return node

    def _ticked(self, statements: list[Any]) -> list[ast.stmt]:
        return [part for statement in statements for part in (ast.Expr(self._tick()), statement)]

    def _tick(self) -> ast.Call:
        return ast.Call(ast.Name(f"{self._name}_tick", ast.Load()), [], [])

    def _renamed(self, name: str) -> str:
        return self._name if name == ENTRY else name


def _leads(node: ast.stmt) -> bool:
    """True if a statement must stay at the top: a docstring, or an import from the future."""
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return text or (isinstance(node, ast.ImportFrom) and node.module == "__future__")
