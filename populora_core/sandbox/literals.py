"""Plain data as text: the only form in which a value crosses the line between model text, sandbox and disk.

Plain data is None, bool, int, finite float, str, and list, tuple, dict and set of plain data. A value has up to
three texts, all in Python's own notation:

- as written: every item and entry where the source has it. This is what runs, and what models and people see.
- its literal, for a value that no source wrote: entries of a dict in its own order, items of a set in the order of
  their text, as a set's own order differs between processes.
- its canonical text, for comparing and hashing alone: entries of a dict in the order of their text too. Two values are
  equal, type for type, exactly when these are: `True`, `1` and `1.0` are three values, and `0.0` and `-0.0` are two.

Text is only ever parsed into data, never evaluated.
"""

from __future__ import annotations

import ast
import math
import re
import sys
import warnings
from collections.abc import Sequence

MAX_LITERAL_CHARS = 10_000
MAX_INT_BITS = 14_000  # as in the runner
# A syntax tree takes hundreds of bytes a character where every second one is a number of its own, a string none.
# Possessive, since what may be given back is remembered character by character.
_ONE_STRING = re.compile(r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\"""", re.DOTALL)
MAX_LITERAL_DEPTH = 50  # far beyond honest data; keeps the recursion here and in the parser shallow

SPACED, COMPACT = (", ", ": "), (",", ":")
"""Separators between items, and between a key and its entry."""

_PARSER_ERRORS = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)


class NotPlainData(ValueError):
    """A value or a text that is not plain data."""


class LiteralTooLong(NotPlainData):
    """Plain data perhaps, but longer than allowed: refused, never cut."""


def parse_literal(text: str, max_chars: int = MAX_LITERAL_CHARS) -> object:
    """The plain data that `text` denotes.

    Raises:
        LiteralTooLong: `text`, or the same in Python's own notation, has more than `max_chars` characters.
        NotPlainData: `text` is anything but one literal of plain data, an expression such as `1+1` included.
    """
    return _checked(_parse_expression(text.strip(), max_chars), max_chars)[0]


def parse_arguments(text: str, max_chars: int = MAX_LITERAL_CHARS) -> tuple[object, ...]:
    """The arguments that the literal of an argument tuple denotes: `"(1, [2])"` gives `(1, [2])`.

    Raises:
        NotPlainData: `text` is not the literal of a tuple.
    """
    value = parse_literal(text, max_chars)
    if not isinstance(value, tuple):
        raise NotPlainData(f"expected the literal of an argument tuple, came {text[:80]!r}")
    return value


def written(text: str, *, spaces: bool = True) -> str:
    """The literal in Python's own notation, each item and entry in its place: `{2:0x1,1:2}` gives `{2: 1, 1: 2}`.

    Args:
        spaces: after separators; without them it is `{2:1,1:2}`.

    Raises:
        LiteralTooLong, NotPlainData: see `parse_literal`.
    """
    tree = _parse_expression(text.strip(), MAX_LITERAL_CHARS)
    return _checked(tree, separators=SPACED if spaces else COMPACT)[1]


def written_arguments(text: str, *, spaces: bool = True) -> tuple[str, ...]:
    """Each argument of an argument tuple as it was written: `"(1, {'b': 2})"` gives `("1", "{'b': 2}")`.

    Raises:
        LiteralTooLong, NotPlainData: see `parse_arguments`.
    """
    tree = _parse_expression(text.strip(), MAX_LITERAL_CHARS)
    if not isinstance(tree, ast.Tuple):
        raise NotPlainData(f"expected the literal of an argument tuple, came {text[:80]!r}")
    separators = SPACED if spaces else COMPACT
    return tuple(_checked(argument, separators=separators)[1] for argument in tree.elts)


def argument_tuple(text: str) -> str:
    """The argument tuple of what stands inside a call's parentheses, as written: `"1, [2]"` gives `"(1, [2])"`.

    The text is parsed as the argument list of a call, and what comes back must be that one call with literal
    positional arguments: text that closes the parenthesis itself makes another tree and is refused.

    Raises:
        LiteralTooLong: the tuple has more than `MAX_LITERAL_CHARS` characters.
        NotPlainData: keywords, stars, expressions, or text that leaves the parentheses.
    """
    call = _parse_expression(f"f({text.strip()}\n)", MAX_LITERAL_CHARS)
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.keywords):
        raise NotPlainData(f"expected arguments separated by commas, came {text[:80]!r}")
    return _checked(ast.Tuple(call.args))[1]


def literal(value: object, max_chars: int = MAX_LITERAL_CHARS) -> str:
    """The literal of plain data that no source wrote.

    Raises:
        LiteralTooLong: the text has more than `max_chars` characters.
        NotPlainData: `value` holds anything but exact builtin types (a subclass may lie about equality), a
            float that is not finite, or nests deeper than `MAX_LITERAL_DEPTH`.
    """
    return _render(value, max_chars, MAX_LITERAL_DEPTH, ordered=True)


def canonical(value: object, max_chars: int = MAX_LITERAL_CHARS) -> str:
    """The canonical text of plain data; raises as `literal` does."""
    return _render(value, max_chars, MAX_LITERAL_DEPTH, ordered=False)


def read_result(text: str, max_chars: int = MAX_LITERAL_CHARS) -> str:
    """The literal of the plain data that a program's `text` denotes, which may be long only if it is one string.

    Raises:
        LiteralTooLong, NotPlainData: see `parse_literal`.
    """
    text = text.strip()
    if len(text) > MAX_LITERAL_CHARS and not _ONE_STRING.fullmatch(text):
        raise LiteralTooLong(
            f"expected at most {min(max_chars, MAX_LITERAL_CHARS)} characters, came {len(text)}"
        )
    return literal(parse_literal(text, max_chars), max_chars)


def canonical_text(text: str) -> str:
    """The canonical text of the plain data that a literal denotes, however long.

    Raises:
        NotPlainData: see `parse_literal`.
    """
    return canonical(parse_literal(text, sys.maxsize), sys.maxsize)


def canonical_texts(texts: Sequence[str]) -> tuple[str, ...]:
    """The canonical text of each literal: two lists of values are equal exactly when these are."""
    return tuple(map(canonical_text, texts))


def _parse_expression(text: str, max_chars: int) -> ast.expr:
    if len(text) > max_chars:
        raise LiteralTooLong(f"expected at most {max_chars} characters, came {len(text)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in model text are not our warnings
            return ast.parse(text, mode="eval").body
    except _PARSER_ERRORS as error:
        raise NotPlainData(f"not a Python literal: {type(error).__name__}: {error}") from None


def _checked(
    tree: ast.expr, max_chars: int = MAX_LITERAL_CHARS, separators: tuple[str, str] = SPACED
) -> tuple[object, str]:
    """The plain data that a tree denotes, and its text as written.

    The text is what is checked: of entries written twice the value has one, and `1e999`, bytes, complex numbers and
    `...` are literals but not plain data.
    """
    try:
        value = ast.literal_eval(tree)
    except _PARSER_ERRORS as error:
        raise NotPlainData(f"not a Python literal: {type(error).__name__}: {error}") from None
    text = _written(tree, separators, MAX_LITERAL_DEPTH)
    if len(text) > max_chars:
        raise LiteralTooLong(f"expected at most {max_chars} characters, came {len(text)}")
    return value, text


def _written(tree: ast.expr, separators: tuple[str, str], depth: int) -> str:
    def each(parts: Sequence[ast.expr | None]) -> list[str]:
        return [_written(part, separators, depth - 1) for part in parts if part is not None]

    if depth < 0:
        raise NotPlainData(f"nested deeper than {MAX_LITERAL_DEPTH}")
    comma, colon = separators
    match tree:
        case ast.List(elts=items):
            return f"[{comma.join(each(items))}]"
        case ast.Tuple(elts=items):
            return f"({comma.join(each(items))}{',' * (len(items) == 1)})"
        case ast.Set(elts=items):
            return f"{{{comma.join(each(items))}}}"
        case ast.Dict(keys=keys, values=entries):
            pairs = zip(each(keys), each(entries), strict=True)
            return f"{{{comma.join(key + colon + entry for key, entry in pairs)}}}"
        case ast.Call():  # the one call that is a literal, as `{}` is a dict
            return "set()"
        case _:
            return _scalar(ast.literal_eval(tree))


def _render(value: object, max_chars: int, depth: int, *, ordered: bool) -> str:
    def item(part: object) -> str:
        return _render(part, max_chars, depth - 1, ordered=ordered)

    if depth < 0:
        raise NotPlainData(f"nested deeper than {MAX_LITERAL_DEPTH}")
    if type(value) is list:
        text = f"[{', '.join(map(item, value))}]"
    elif type(value) is tuple:
        text = f"({item(value[0])},)" if len(value) == 1 else f"({', '.join(map(item, value))})"
    elif type(value) is set:
        text = f"{{{', '.join(sorted(map(item, value)))}}}" if value else "set()"
    elif type(value) is dict:
        pairs = [(item(key), item(entry)) for key, entry in value.items()]
        pairs = pairs if ordered else sorted(pairs)
        text = f"{{{', '.join(f'{key}: {entry}' for key, entry in pairs)}}}"
    else:
        text = _scalar(value)
    if len(text) > max_chars:
        raise LiteralTooLong(f"expected at most {max_chars} characters, came {len(text)}")
    return text


def _scalar(value: object) -> str:
    if type(value) is float and not math.isfinite(value):
        raise NotPlainData(f"expected a finite number, came {value!r}")
    if type(value) is int and value.bit_length() > MAX_INT_BITS:
        raise LiteralTooLong(f"expected an integer of at most {MAX_INT_BITS} bits, came {value.bit_length()}")
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    raise NotPlainData(f"expected plain data, came {type(value).__name__}")
