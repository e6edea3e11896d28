"""Parts of a program that it does not use: helpers, defaults and statements that make it look new."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from populora_core.problems.parsing import ENTRY

_PASSED_OVER = (ast.Assert, ast.Break, ast.Continue, ast.Expr, ast.Pass, ast.Raise, ast.Return)
"""Statements that matter only where they run: none makes a name local, as an assignment does that never runs."""
_FELT = (ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom)
"""Expressions that matter although they never run: a function with a `yield` is a generator."""


def does_nothing(statement: ast.stmt) -> bool:
    """True for `pass`, docstrings and other lone constants, and what `if 0:` keeps from running."""
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Constant(value=value), body=body, orelse=[]) if not value:
            return all(isinstance(each, _PASSED_OVER) for each in body) and not any(
                isinstance(node, _FELT) for node in ast.walk(statement)
            )
    return False


def without_unused(tree: ast.Module) -> ast.Module:
    """The program without helpers that nothing names, and without the last defaults of `f` that it does not read."""
    body = list(tree.body)
    while (helper := next(filter(_is_helper, _unnamed(body)), None)) is not None:
        body.remove(helper)
    entries = [each for each in _unnamed(body) if each.name == ENTRY]
    if len(entries) == 1:
        body[body.index(entries[0])] = _without_defaults(entries[0])
    return ast.Module(body, [])


def _unnamed(body: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """Functions without decorators whose name no other statement has; of constant defaults, which do nothing."""
    for function in body:
        if isinstance(function, ast.FunctionDef) and not function.decorator_list:
            defaults = [*function.args.defaults, *filter(None, function.args.kw_defaults)]
            if all(isinstance(each, ast.Constant) for each in defaults) and not any(
                function.name in _names(other) for other in body if other is not function
            ):
                yield function


def _is_helper(function: ast.FunctionDef) -> bool:
    return function.name != ENTRY


def _without_defaults(entry: ast.FunctionDef) -> ast.FunctionDef:
    """The function without its last parameters that have a default and are not read."""
    given, read = entry.args, set(_names(entry))
    if ENTRY in read or given.vararg is not None:  # a call may give them; what is behind them would move up
        return entry
    args, defaults = list(given.args), list(given.defaults)
    while args and defaults and args[-1].arg not in read:
        args.pop()
        defaults.pop()
    kept = ast.arguments(
        given.posonlyargs, args, None, given.kwonlyargs, given.kw_defaults, given.kwarg, defaults
    )
    return ast.FunctionDef(entry.name, kept, entry.body, [], entry.returns)


def _names(statement: ast.stmt) -> Iterator[str]:
    """Every name that a statement reads, binds or declares, but those of functions and parameters."""
    for node in ast.walk(statement):
        match node:
            case ast.Name(id=name):
                yield name
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from names
            case ast.alias(name=name, asname=alias):
                yield alias or name.partition(".")[0]
