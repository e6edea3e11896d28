"""Extraction of the program that a benchmark asked for from a completion. Text in, text out; nothing here runs.

Backticks are no Python outside of strings and comments. So the fence that closes a block is the first one with which
the block parses, and a fence inside a docstring closes nothing.
"""

from __future__ import annotations

import ast
import re
import symtable
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

_OPENING = re.compile(
    r"^[ \t]*(?P<title>`{3,}|~{3,})[ \t]*(?:[\w+.#-]+[ \t]+)?(?:\{|[\w-]+=)[^`~]*$"  # attributes behind a language
    r"|(?P<fence>`{3,}|~{3,})[ \t]*[\w+.#-]*[ \t]*$"
)
_CLOSING = re.compile(r"[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?:</\w+>[ \t]*)*$")
_ITEM = re.compile(r" *(?:(?:[-*+]|\d+[.)]) +)*")
_START = re.compile(r"(?:@|async |def |class |import |from |[A-Za-z_]\w* *(?::[^=]*)?=)")
MOST_TRIES = 50
"""Closing fences of a block, cuts of a text and places where a program may begin: what is tried of each."""
READS = frozenset({"input", "stdin", "open", "fileinput", "read", "readline", "readlines"})
WRITES = frozenset({"print", "stdout", "write", "writelines"})
KEPT_CALLS = frozenset({"setrecursionlimit", "set_int_max_str_digits", "setcontext", "seed"})
"""Calls of modules that prepare for the function rather than use it."""
CONTEXTS = frozenset({"getcontext"})
"""Functions whose result a program sets up: `getcontext().prec = 60`."""
ENDS = frozenset({"exit", "_exit"})
"""Functions of modules that fill nothing of what they are given."""


def parsed(code: str) -> ast.Module | None:
    """The tree of a program; None where it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def code_blocks(text: str, dedent: bool = True) -> list[str]:
    """The contents of the fenced blocks; one that the text ends within counts, an empty one does not.

    Args:
        dedent: whether a block loses the indentation of its fence; what completes the head of a function keeps it.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    blocks: list[str] = []
    number = 0
    while number < len(lines):
        opening = _OPENING.search(lines[number])
        number += 1
        if opening is None:
            continue
        fence = opening["title"] or opening["fence"]
        margin = _margin(lines[number - 1], fence) if dedent else 0
        closing = [
            place
            for place in range(number, len(lines))
            if (found := _CLOSING.match(lines[place])) and found["fence"].startswith(fence)
        ]
        ends = closing[:MOST_TRIES] or [len(lines)]
        end = next((end for end in ends if parsed(_block(lines[number:end], margin)) is not None), ends[0])
        blocks.append(_block(lines[number:end], margin).strip("\n"))
        number = end + 1
    return [block for block in blocks if block.strip()]


def _margin(line: str, fence: str) -> int:
    """The columns before a fence that stands in an item of a list, or is indented."""
    before = line[: line.index(fence)]
    return len(before) if _ITEM.fullmatch(before) else 0


def _block(lines: Sequence[str], margin: int) -> str:
    """Text without the indentation of its fence, as Markdown has it; as it is where a line has less."""
    shared = all(line.startswith(" " * margin) for line in lines if line.strip())
    return "\n".join(line[margin:] for line in lines) if shared else "\n".join(lines)


def defines(code: str, name: str, imports: bool = True) -> bool:
    """True if the code, as far as it parses, binds `name` at its top level.

    Args:
        imports: whether an import of the name counts, too.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bound = symtable.symtable(code, "<answer>", "exec")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return bool(re.search(rf"^(?:async +)?def +{re.escape(name)}\b", code, re.M))
    return any(
        symbol.get_name() == name and (symbol.is_assigned() or (imports and symbol.is_imported()))
        for symbol in bound.get_symbols()
    )


def defining(blocks: Sequence[str], *names: str) -> list[str]:
    """The blocks that define one of the names; those that import one where none does: a test imports the solution."""
    for imports in (False, True):
        found = [block for block in blocks if any(defines(block, name, imports) for name in names)]
        if found:
            return found
    return []


def function_code(text: str, name: str) -> str | None:
    """The code of a completion that defines the function `name`, and what it needs; None if nothing defines it.

    The last block that parses counts, else of the last that does not, as one that was cut in an example of its use, the
    first lines that parse. So do they without a block.
    """
    whole = defining(code_blocks(text), name)
    last = _last(whole, lambda block: parsed(block) is not None) if whole else text
    if whole and parsed(last) is not None:
        return needed(last, name)
    for code in _unfenced(last):
        if defines(code, name):
            return needed(code, name)
    return last if defines(last, name) else None


def function_body(blocks: Sequence[str], head: str) -> str:
    """The last block that completes the head of a function; the last of all where none does."""
    return _last(blocks, lambda block: parsed(head + block) is not None)


def called_program(blocks: Sequence[str], names: Sequence[str]) -> str:
    """The last block that parses and defines one of the names, else the last that parses, else the last."""
    whole = [block for block in blocks if parsed(block) is not None]
    return (defining(whole, *names) or whole or blocks)[-1]


def whole_program(blocks: Sequence[str]) -> str:
    """The last block that parses, reads and writes; else the last that writes, that parses, or comes at all."""

    def worth(block: str) -> int:
        tree = parsed(block)
        if tree is None:
            return 0
        used = _names(tree)
        writes = bool(used & WRITES)
        return 1 + writes + (writes and bool(used & READS))

    best = max(map(worth, blocks))
    return _last(blocks, lambda block: worth(block) == best)


def needed(code: str, name: str) -> str:
    """The statements of a program that its function `name` needs, in their order.

    These are its definition, and whatever binds or fills a name that they use. Prints, assertions, exits, imports
    without a use, and what is for running the file are left out. Code that does not parse stays as it is.
    """
    tree = parsed(code)
    if tree is None:
        return code
    statements = [each for each in tree.body if not _runs_the_file(each)]
    try:
        kept = _serving(statements, name)
    except RecursionError:  # an expression of a thousand levels
        return code
    if not kept:
        return code
    lines = code.encode().split(b"\n")  # columns are places in UTF-8
    return "\n".join(_source(lines, statements[number]) for number in sorted(kept))


def _serving(statements: Sequence[ast.stmt], name: str) -> set[int]:
    """The numbers of the statements that the function `name` needs; none where nothing binds it."""
    calls = _calls(statements, name)
    wanted, kept = {name}, set[int]()
    while True:
        more = {
            number
            for number, each in enumerate(statements)
            if number not in kept and _serves(each, wanted, calls)
        }
        if not more:
            break
        kept |= more
        for number in more:
            wanted |= _used(statements[number])
    return kept if any(name in _bound(statements[number]) for number in kept) else set()


def _last(blocks: Sequence[str], fits: Callable[[str], bool]) -> str:
    return next((block for block in reversed(blocks) if fits(block)), blocks[-1])


def _unfenced(text: str) -> Iterator[str]:
    """Runs of lines that parse, from each line at which a program may begin."""
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if _START.match(line)]
    for start in starts[:MOST_TRIES]:
        end = len(lines)
        for _ in range(MOST_TRIES):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ast.parse("\n".join(lines[start:end]))
                yield "\n".join(lines[start:end]).rstrip()
                break
            except SyntaxError as error:
                end = min(end - 1, start + (error.lineno or 1) - 1)
            except (ValueError, MemoryError, RecursionError):
                break


def _names(node: ast.AST) -> set[str]:
    """Every name that the code mentions, attributes among them."""
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.Attribute):
            found.add(part.attr)
        elif isinstance(part, (ast.Global, ast.Nonlocal)):
            found.update(part.names)
        elif isinstance(part, ast.ImportFrom):
            found.update(alias.name for alias in part.names)
    return found


def _used(statement: ast.stmt) -> set[str]:
    """The names of the program that a statement uses; of a function, not its parameters and what it binds itself."""
    if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return _names(statement)
    try:
        table = symtable.symtable(ast.unparse(statement), "<statement>", "exec")
    except (SyntaxError, ValueError):  # Python 3.11 cannot write out every f-string that it parses
        return _names(statement)
    return {*table.get_identifiers(), *_globals_of(table)}


def _globals_of(table: symtable.SymbolTable) -> Iterator[str]:
    """The names of the program that the scopes inside of this one use."""
    for inner in table.get_children():
        yield from (symbol.get_name() for symbol in inner.get_symbols() if symbol.is_global())
        yield from _globals_of(inner)


@dataclass(frozen=True, slots=True)
class _Calls:
    """The calls by which a program fills names.

    Attributes:
        modules: names that imports bind; their functions fill the names that they are given.
        fills: function or class of the program -> names outside of it that a call binds or fills.
    """

    modules: Set[str] = frozenset()
    fills: Mapping[str, Set[str]] = field(default_factory=dict)


def _calls(statements: Sequence[ast.stmt], name: str) -> _Calls:
    """The calls that fill names. One of `name` itself is an example of its use, one that reads runs the file."""
    modules, fills = set[str](), dict[str, Set[str]]()
    for each in statements:
        if isinstance(each, (ast.Import, ast.ImportFrom)):
            modules |= _bound(each)
    for each in statements:
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            fills[each.name] = frozenset()
        if isinstance(each, ast.FunctionDef) and each.name != name and not READS & _names(each):
            fills[each.name] = _outside(each, _Calls(modules))
    return _Calls(modules, fills)


def _outside(function: ast.FunctionDef, calls: _Calls) -> set[str]:
    """The names of the program that a function binds or fills when it is called."""
    own, shared = set[str](), set[str]()
    for part in ast.walk(function):
        match part:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                own.add(name)
            case ast.FunctionDef() | ast.ClassDef() | ast.Import() | ast.ImportFrom():
                own |= _bound(part)
            case ast.Global(names=names):
                shared.update(names)
    filled = {name for each in function.body for name in _bound(each, calls)}
    return filled - (own - shared)


def _bound(node: ast.AST, calls: _Calls = _Calls()) -> set[str]:
    """The names that a statement of the top level binds or fills; those inside of functions and classes are not."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    found: set[str] = set()
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
        found |= {_root(node)} - {""}
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        found.add(node.id)
    if isinstance(node, ast.Expr):
        found |= _filled(node.value, calls)
    for part in ast.iter_child_nodes(node):
        found |= _bound(part, calls)
    return found


def _root(node: ast.expr) -> str:
    """The name that an attribute or an item belongs to in the end; empty where it is none."""
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _filled(value: ast.expr, calls: _Calls) -> set[str]:
    """The names that an expression fills by a call, also in a comprehension.

    These are the owner of a method (`seen.add(1)`), what a function of a module is given (`heapify(heap)`), and what
    one of the program's own fills (`sieve(100)`).
    """
    if isinstance(value, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return _filled(value.elt, calls)
    if not isinstance(value, ast.Call):
        return set()
    owner = _root(value.func)
    if not owner:
        return set()
    of_module = owner in calls.modules
    match value.func:
        case ast.Attribute() if not of_module:
            return {owner}
        case ast.Name(id=called) if not of_module:
            return set(calls.fills.get(called, ()))
        case ast.Name(id=called) | ast.Attribute(value=ast.Name(), attr=called) if called not in ENDS:
            taken = (*value.args, *(each.value for each in value.keywords))
            return {each.id for each in taken if isinstance(each, ast.Name)} - calls.fills.keys()
    return set()


def _serves(statement: ast.stmt, wanted: set[str], calls: _Calls) -> bool:
    """True if a statement is part of what binds, fills or prepares one of the names."""
    if isinstance(statement, ast.ImportFrom) and (
        statement.module == "__future__" or statement.names[0].name == "*"
    ):
        return True
    match statement:
        case (
            ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=called)))
            | ast.Expr(value=ast.Call(func=ast.Name(id=name as called)))
        ) if name in calls.modules and called in KEPT_CALLS:
            return True
        case ast.Assign(
            targets=[ast.Attribute(value=ast.Call(func=ast.Attribute(attr=called) | ast.Name(id=called)))]
        ) if called in CONTEXTS:
            return True
        case ast.Expr(value=value):
            return bool(_filled(value, calls) & wanted)
    return not isinstance(statement, ast.Assert) and bool(_bound(statement, calls) & wanted)


def _runs_the_file(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(statement.test)
    )


def _source(lines: Sequence[bytes], statement: ast.stmt) -> str:
    """The text of a statement, decorators included."""
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(each.lineno for each in decorators)]) - 1
    last = (statement.end_lineno or statement.lineno) - 1
    text = list(lines[first : last + 1])
    text[-1] = text[-1][: statement.end_col_offset]
    if not decorators:
        text[0] = text[0][statement.col_offset :]
    return b"\n".join(text).decode()
