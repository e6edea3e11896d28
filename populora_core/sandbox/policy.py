"""The static policy: which programs are not worth running.

This is hygiene and no security. It turns away programs that could only fail in the sandbox (imports, files)
or whose output cannot repeat (clocks, randomness, identities). What makes programs safe is the sandbox, for
those that slip through the words below too. Teachers' and students' programs come under the same policy.
"""

from __future__ import annotations

import ast
import importlib
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

from populora_core.sandbox.status import Status

MAX_PROGRAM_CHARS = 20_000

ALLOWED_MODULES = (
    "__future__", "abc", "array", "bisect", "cmath", "collections", "collections.abc", "copy", "dataclasses",
    "decimal", "enum", "fractions", "functools", "heapq", "itertools", "math", "numbers", "operator", "re",
    "statistics", "string", "textwrap", "typing", "unicodedata",
)  # fmt: skip

FORBIDDEN_NAMES = frozenset((
    "__import__", "breakpoint", "compile", "delattr", "dir", "eval", "exec", "exit", "getattr", "globals",
    "help", "id", "input", "locals", "open", "quit", "setattr", "vars",
))  # fmt: skip
FRAMES = frozenset((
    "ag_frame", "cr_frame", "f_back", "f_builtins", "f_code", "f_globals", "f_locals", "gi_frame", "tb_frame",
))  # fmt: skip
_NAMING = (
    ast.Import, ast.ImportFrom, ast.alias, ast.Name, ast.Attribute, ast.Constant, ast.FunctionDef, ast.ClassDef,
    ast.arg, ast.ExceptHandler, ast.MatchClass, ast.MatchAs, ast.MatchStar, ast.MatchMapping,
)  # fmt: skip
"""The nodes that the policy looks at, fewer than half of a program's."""
HARMLESS_DUNDERS = frozenset(
    {"__init__", "__main__", "__name__"}
)  # super().__init__(...), type(error).__name__
ALIASED_METHODS = frozenset((
    "__add__", "__and__", "__mul__", "__or__", "__radd__", "__rand__", "__repr__", "__rmul__", "__ror__",
    "__rxor__", "__str__", "__xor__",
))  # fmt: skip
"""Methods that a class may give a second name. No module has one of these names, so it is always the class's own."""
_DUNDER = re.compile(r"__[A-Za-z]\w*?__")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal to run a program: `Status.FORBIDDEN` or `Status.SYNTAX_ERROR`, and the reason for people."""

    status: Status
    reason: str


@lru_cache(maxsize=1 << 14)  # the answers to one problem often come with the same program
def refuse_program(program: str) -> Refusal | None:
    """The first thing that the policy has against a program, None if nothing."""
    if len(program) > MAX_PROGRAM_CHARS:
        return Refusal(Status.FORBIDDEN, f"the program has more than {MAX_PROGRAM_CHARS} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(program)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        return Refusal(Status.SYNTAX_ERROR, f"{type(error).__name__}: {error}")
    nodes = [node for node in ast.walk(tree) if isinstance(node, _NAMING)]
    own_names = set(_names_bound(nodes))
    modules = dict(_modules_bound(nodes))
    harmless = set(_declarations(nodes))
    for node in nodes:
        reason = None if node in harmless else _objection(node, own_names, modules)
        if reason is not None:
            return Refusal(Status.FORBIDDEN, f"line {getattr(node, 'lineno', 0)}: {reason}")
    return None


def _objection(node: ast.AST, own_names: set[str], modules: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Import):
        foreign = [alias.name for alias in node.names if alias.name not in ALLOWED_MODULES]
        return f"import of {foreign[0]}" if foreign else None
    if isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        if module not in ALLOWED_MODULES:
            return f"import from {module}"
        foreign = [
            alias.name
            for alias in node.names
            if _is_dunder(alias.name) or _leads_elsewhere(module, alias.name)
        ]
        return f"import of {foreign[0]} from {module}" if foreign else None
    if isinstance(node, ast.Name):
        forbidden = _is_dunder(node.id) or (node.id in FORBIDDEN_NAMES and node.id not in own_names)
        return f"use of {node.id}" if forbidden else None
    if isinstance(node, ast.Attribute):
        if _is_dunder(node.attr) or node.attr in FRAMES:
            return f"use of attribute {node.attr}"
        owner = modules.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if owner is not None and _leads_elsewhere(owner, node.attr):
            return f"use of {node.attr} from {owner}"
    if isinstance(node, ast.MatchClass):  # `case object(__globals__=g)` reads the attribute
        hidden = [name for name in node.kwd_attrs if _is_dunder(name) or name in FRAMES]
        return f"use of attribute {hidden[0]}" if hidden else None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        dunders = [name for name in _DUNDER.findall(node.value) if name not in HARMLESS_DUNDERS]
        return f"text with {dunders[0]}" if dunders else None  # as in "{0.__class__}".format
    return None


def _leads_elsewhere(module: str, name: str) -> bool:
    """True if an allowed module has a foreign one under that name, as `statistics.random` and `dataclasses.sys`."""
    found = getattr(importlib.import_module(module), name, None)
    return isinstance(found, ModuleType) and found.__name__ not in ALLOWED_MODULES


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in HARMLESS_DUNDERS


def _names_bound(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names that the program gives a meaning of its own, such as a parameter called `input`."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            yield node.name or ""
        elif isinstance(node, ast.MatchMapping):
            yield node.rest or ""


def _declarations(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The names in `__slots__ = ...` and `__repr__ = __str__` of a class: they reach nothing but its own attributes."""
    for statement in (each for node in nodes if isinstance(node, ast.ClassDef) for each in node.body):
        match statement:
            case ast.Assign(targets=[ast.Name(id="__slots__") as name]):
                yield name
            case ast.Assign(targets=[ast.Name() as name], value=ast.Name() as method):
                if {name.id, method.id} <= ALIASED_METHODS:
                    yield from (name, method)


def _modules_bound(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Names that stand for allowed modules, and the module that each stands for."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                module = alias.name if alias.asname else alias.name.partition(".")[0]
                if module in ALLOWED_MODULES:
                    yield alias.asname or module, module
