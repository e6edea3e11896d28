"""Parts of a program that it does not use: helpers, defaults and statements that make it look new."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain

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
    idle = {
        place: each
        for place, each in enumerate(tree.body)
        if isinstance(each, ast.FunctionDef) and _is_idle(each)
    }
    names = {place: function.name for place, function in idle.items()}
    unnamed = _unnamed(names, [frozenset(_names(each)) for each in tree.body])
    entries = [place for place in unnamed if names[place] == ENTRY]
    body = {
        place: each for place, each in enumerate(tree.body) if place not in unnamed or names[place] == ENTRY
    }
    if len(entries) == 1:
        body[entries[0]] = _without_defaults(idle[entries[0]])
    return ast.Module([*body.values()], [])


def _is_idle(function: ast.FunctionDef) -> bool:
    """True if a definition does nothing but bind its name: no decorators, and constant defaults."""
    defaults = [*function.args.defaults, *filter(None, function.args.kw_defaults)]
    return not function.decorator_list and all(isinstance(each, ast.Constant) for each in defaults)


def _unnamed(functions: Mapping[int, str], named: Sequence[Set[str]]) -> set[int]:
    """The places of functions that no other statement names, once helpers of this kind are gone.

    Args:
        functions: place and name of those that may be.
        named: the names in each statement of the program.
    """
    users = Counter(chain.from_iterable(named))
    places = defaultdict[str, list[int]](list)
    for place, name in functions.items():
        places[name].append(place)
    found: set[int] = set()
    waiting = [*functions]
    while waiting:
        place = waiting.pop()
        name = functions[place]
        if place not in found and users[name] == (name in named[place]):
            found.add(place)
            if name != ENTRY:
                users.subtract(named[place])
                waiting += chain.from_iterable(places[each] for each in named[place] if users[each] <= 1)
    return found


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
