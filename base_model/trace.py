"""Scratchpads: what a program computes on the way, as text that a model can write before the answer.

The abstract syntax tree is rewritten so that the program reports itself: a name and its value after every
assignment and for every loop item (``u3i1``), ``.value`` for every intermediate value of an expression, and
the partial sums of ``sum``. There are no separators: names are letters, so ``i0u0i1u1`` reads
unambiguously.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from base_model.execution import compile_function, literal

MAX_CHARACTERS = 400

_UNREPORTED_CALLS = frozenset({"set", "range", "ord"})


class _Overflow(Exception):
    """The trace grew past `MAX_CHARACTERS`."""


class _Reporter(ast.NodeTransformer):
    """Inserts the calls that report; a statement's outermost value has a name already, or is the answer."""

    def _inner(self, node: ast.expr) -> ast.expr:
        """The expression, reporting its own value too unless that is a plain name or constant."""
        node = self.visit(node)
        reported = isinstance(node, ast.BinOp | ast.Call | ast.Subscript | ast.ListComp)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            reported = node.func.id not in _UNREPORTED_CALLS and not node.func.id.startswith("_")
        return _call("_value", node) if reported else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        node.left, node.right = self._inner(node.left), self._inner(node.right)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        node.left = self._inner(node.left)
        node.comparators = [self._inner(comparator) for comparator in node.comparators]
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        node.value = self._inner(node.value)
        return node

    def visit_List(self, node: ast.List) -> ast.expr:
        node.elts = [self._inner(element) for element in node.elts]
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        return self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        return self._comprehension(node)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> ast.expr:
        # What happens inside is left out: it would triple the trace of a one-line program.
        node.generators[0].iter = self._inner(node.generators[0].iter)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        node.args = [self._inner(argument) for argument in node.args]
        if isinstance(node.func, ast.Attribute):
            node.func.value = self._inner(node.func.value)
        elif isinstance(node.func, ast.Name) and node.func.id == "sum":
            node.func.id = "_sum"
        return node

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        node.value = self.visit(node.value)
        return [node, _note(node.targets[0])]

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        node.value = self.visit(node.value)
        return [node, _note(node.target)]

    def visit_For(self, node: ast.For) -> ast.stmt:
        note = _note(node.target)
        node.iter = self._inner(node.iter)
        node.body = [note, *(s for statement in node.body for s in _statements(self.visit(statement)))]
        return node


def _statements(visited: ast.stmt | list[ast.stmt]) -> list[ast.stmt]:
    return visited if isinstance(visited, list) else [visited]


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _note(target: ast.expr) -> ast.stmt:
    assert isinstance(target, ast.Name)
    return ast.Expr(_call("_name", ast.Constant(target.id), ast.Name(target.id, ast.Load())))


def tracer(program: str) -> Callable[[tuple], str]:
    """A function from arguments to the trace of the run on them, empty where it would be too long."""
    log: list[str] = []
    written = 0

    def write(text: str) -> None:
        nonlocal written
        written += len(text)
        if written > MAX_CHARACTERS:
            raise _Overflow
        log.append(text)

    def value(result: object) -> object:
        write("." + literal(result))
        return result

    def name(variable: str, result: object) -> None:
        write(variable + literal(result))

    def total(items: Iterable[int]) -> int:
        partial = 0
        for index, item in enumerate(items):
            partial += item
            if index:
                write("." + literal(partial))
        return partial

    tree = ast.fix_missing_locations(_Reporter().visit(ast.parse(program)))
    function = compile_function(ast.unparse(tree), {"_value": value, "_name": name, "_sum": total})

    def trace(arguments: tuple) -> str:
        nonlocal written
        log.clear()
        written = 0
        try:
            function(*(list(a) if isinstance(a, list) else a for a in arguments))
        except _Overflow:
            return ""
        return "".join(log)

    return trace
