"""The normal form of a program: what stays when names, comments, layout and what it does not use are taken away.

Two programs with one normal form compute the same, unless they look at their own names; that is what "the
same program" means for duplicates. Variables, parameters and helper functions are renamed by the order of
their first binding. A name stays as it is where renaming could change the meaning: the entry `f`, builtins,
attributes, keywords of calls, imports, classes and what their bodies bind, and anything that `global`,
`nonlocal`, walrus, `except` or a pattern binds. Two variables that are multiplied are put in order; operands of
other operators are not, since text, lists or True may tell which came first.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache
from threading import Lock

from cachetools import LRUCache, cached

from populora_core.problems.parsing import ENTRY, parse_program
from populora_core.problems.unused import does_nothing, without_unused

NGRAM = 4
CACHE_BYTES = 256 << 20
"""Size of the cache of normal forms: a hostile program of 10,000 characters takes 190 KiB."""
Ngram = tuple[str, ...]

_ABSENT, _END = "-", "."
_VARIABLE = re.compile(r"%\d+")
_TELL_FACTORS = (ast.ClassDef, ast.Try, ast.TryStar)
"""Statements that may tell two factors apart: a class that multiplies in its own way, an error whose text is read."""
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_IGNORED_FIELDS = {"ctx", "annotation", "returns", "type_comment", "type_ignores", "type_params", "kind"}


def program_key(program: str) -> str:
    """sha256 of the normal form.

    Raises:
        ProgramSyntaxError: the program does not parse.
    """
    return _sha256(normal_tokens(program))


def ngrams(program: str) -> frozenset[Ngram]:
    """The distinct runs of `NGRAM` tokens of the normal form.

    The values of constants are left out, so that `x*3+8` says nothing new after `x*4+5`. Variables are numbered
    again in each run: otherwise one more of them at the top would make all that follows look new.
    """
    words = [t for t in normal_tokens(program) if t not in (_ABSENT, _END) and not t.startswith("=")]
    return frozenset(_renumbered(tuple(words[i : i + NGRAM])) for i in range(len(words) - NGRAM + 1))


@lru_cache(maxsize=1 << 16)  # programs have most of their runs in common
def _renumbered(words: Ngram) -> Ngram:
    """The words with variables numbered by their first place among them."""
    places: dict[str, str] = {}
    return tuple(
        _VARIABLE.sub(lambda found: places.setdefault(found[0], f"%{len(places)}"), word)
        if "%" in word
        else word
        for word in words
    )


def novelty(program: str, *seen: Set[Ngram]) -> float:
    """The share of the program's n-grams, between 0 and 1, that is in none of the sets already seen."""
    own = new = ngrams(program)
    for known in seen:
        new = new - known
    return len(new) / len(own) if own else 0.0


def _size(tokens: tuple[str, ...]) -> int:
    return sys.getsizeof(tokens) + sum(map(sys.getsizeof, tokens))


# Key, n-grams and a later rebuild of the buffer ask for the same programs.
@cached(LRUCache(CACHE_BYTES, getsizeof=_size), lock=Lock())
def normal_tokens(program: str) -> tuple[str, ...]:
    """The syntax tree in preorder as text tokens, one for one with the normal form.

    A node is its class name and then its fields, a name is `$` and what stands for it, a constant is its type
    and then `=` with its value.

    Raises:
        ProgramSyntaxError: the program does not parse.
    """
    tree = without_unused(parse_program(program))
    commutes = not any(isinstance(node, _TELL_FACTORS) for node in ast.walk(tree))
    return tuple(_Normaliser(_fixed_names(tree), commutes).module(tree))


class _Normaliser:
    """One walk over a tree with Python's scopes, each a map from names to the tokens that stand for them.

    Args:
        fixed: names that stay.
        commutes: whether two variables that are multiplied are put in order.
    """

    def __init__(self, fixed: Set[str], commutes: bool) -> None:
        self._fixed, self._commutes = fixed, commutes
        self._scopes: list[dict[str, str]] = []
        self._named = 0

    def module(self, tree: ast.Module) -> Iterator[str]:
        self._enter(_bound(tree.body))
        yield from self._block(tree.body)

    def _enter(self, names: Iterable[str]) -> None:
        scope: dict[str, str] = {}
        for name in names:
            if name not in self._fixed and name not in scope:
                scope[name] = f"%{self._named}"  # no identifier looks like this, so none can be hit by chance
                self._named += 1
        self._scopes.append(scope)

    def _name(self, name: str) -> str:
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), name)

    def _block(self, statements: Sequence[ast.stmt]) -> Iterator[str]:
        for statement in statements:
            if not does_nothing(statement):
                yield from self._node(statement)
        yield _END

    def _node(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Name):
            yield "$" + self._name(node.id)
            return
        if isinstance(node, ast.Constant):
            yield type(node.value).__name__
            yield f"={hex(node.value) if type(node.value) is int else repr(node.value)}"
            return
        match node:
            case ast.BinOp(ast.Name(left), ast.Mult(), ast.Name(right)) if self._commutes:
                first, second = sorted(map(self._name, (left, right)), key=lambda name: (len(name), name))
                yield from ("BinOp", "$" + first, "Mult", "$" + second)
                return
        yield type(node).__name__
        if isinstance(node, _FUNCTION):
            yield self._name(node.name)
            yield from self._value(node.decorator_list)
            if node.decorator_list:  # a decorator may read annotations, as functools.singledispatch does
                yield from self._value(
                    [each.annotation for each in ast.walk(node.args) if isinstance(each, ast.arg)]
                )
            yield from self._function(node.args, node.body)
        elif isinstance(node, ast.Lambda):
            yield from self._function(node.args, node.body)
        elif isinstance(node, _COMPREHENSION):
            yield from self._comprehension(node)
        else:
            for field, value in ast.iter_fields(node):
                if field not in _IGNORED_FIELDS:
                    yield from self._value(value)

    def _value(self, value: object) -> Iterator[str]:
        if isinstance(value, ast.AST):
            yield from self._node(value)
        elif isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield from self._block(value)
        elif isinstance(value, list):
            for item in value:
                yield from self._value(item)
            yield _END
        else:
            yield _ABSENT if value is None else str(value)

    def _function(self, arguments: ast.arguments, body: Sequence[ast.stmt] | ast.expr) -> Iterator[str]:
        yield from self._value(arguments.defaults)  # evaluated outside the function
        yield from self._value(arguments.kw_defaults)
        stars = [star for star in (arguments.vararg, arguments.kwarg) if star is not None]
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *stars]
        inner = _bound(body) if isinstance(body, list) else ()
        self._enter([*(parameter.arg for parameter in parameters), *inner])
        for group in (arguments.posonlyargs, arguments.args, arguments.kwonlyargs):
            yield from (self._name(parameter.arg) for parameter in group)
            yield _END
        for star in (arguments.vararg, arguments.kwarg):
            yield _ABSENT if star is None else self._name(star.arg)
        yield from self._block(body) if isinstance(body, list) else self._value(body)
        self._scopes.pop()

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> Iterator[str]:
        first = node.generators[0]
        yield from self._node(first.iter)  # evaluated outside the comprehension
        self._enter(_bound([generator.target for generator in node.generators]))
        for generator in node.generators:
            yield from self._node(generator.target)
            if generator is not first:
                yield from self._node(generator.iter)
            yield from self._value(generator.ifs)
            yield str(generator.is_async)
        yield _END
        parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        for part in parts:
            yield from self._node(part)
        self._scopes.pop()


def _bound(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names that a scope's own nodes bind as variables or functions, in the order of the text."""
    for node in nodes:
        if isinstance(node, _FUNCTION):
            yield node.name
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                yield node.id
        elif not isinstance(node, (ast.Lambda, ast.ClassDef, *_COMPREHENSION)):
            yield from _bound(ast.iter_child_nodes(node))


def _fixed_names(tree: ast.Module) -> set[str]:
    fixed = {ENTRY}
    nodes = list(ast.walk(tree))
    for node in nodes:
        match node:
            case ast.keyword(arg=None):  # a mapping may hold the name of any parameter
                fixed.update(other.arg for other in nodes if isinstance(other, ast.arg))
            case ast.keyword(arg=str(name)) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                fixed.add(name)
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                fixed.add(name)
            case ast.NamedExpr(target=ast.Name(id=name)):
                fixed.add(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                fixed.update(names)
            case ast.alias(name=name, asname=alias):
                fixed.add(alias or name.partition(".")[0])
            case ast.ClassDef(name=name, body=body):
                fixed.update([name, *_bound(body)])
    return fixed


def _sha256(parts: Sequence[str]) -> str:
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "backslashreplace")).hexdigest()
