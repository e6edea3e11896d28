"""Plain data as text: the only form in which a value crosses the line between model text, sandbox and disk.

Plain data is None, bool, int, finite float, str, and list, tuple, dict and set of plain data. Its canonical
text is Python's own notation with the items of sets and dicts in the order of their text, so that two values
are equal, type for type, exactly when their texts are: `True`, `1` and `1.0` are three values, and `0.0` and
`-0.0` are two. Text is only ever parsed into data, never evaluated.
"""

from __future__ import annotations

import ast
import math
import re
import warnings

MAX_LITERAL_CHARS = 10_000
# A syntax tree takes hundreds of bytes a character where every second one is a number of its own, a string none.
# Possessive, since what may be given back is remembered character by character.
_ONE_STRING = re.compile(r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\"""", re.DOTALL)
MAX_LITERAL_DEPTH = 50  # far beyond honest data; keeps the recursion here and in the parser shallow

_PARSER_ERRORS = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)


class NotPlainData(ValueError):
    """A value or a text that is not plain data."""


class LiteralTooLong(NotPlainData):
    """Plain data perhaps, but longer than allowed: refused, never cut."""


def parse_literal(text: str, max_chars: int = MAX_LITERAL_CHARS) -> object:
    """The plain data that `text` denotes.

    Raises:
        LiteralTooLong: `text`, or its canonical form, has more than `max_chars` characters.
        NotPlainData: `text` is anything but one literal of plain data, an expression such as `1+1` included.
    """
    return _literal_value(_parse_expression(text.strip(), max_chars), max_chars)


def parse_arguments(text: str, max_chars: int = MAX_LITERAL_CHARS) -> tuple[object, ...]:
    """The arguments that the literal of an argument tuple denotes: `"(1, [2])"` gives `(1, [2])`.

    Raises:
        NotPlainData: `text` is not the literal of a tuple.
    """
    value = parse_literal(text, max_chars)
    if not isinstance(value, tuple):
        raise NotPlainData(f"expected the literal of an argument tuple, came {text[:80]!r}")
    return value


def parse_argument_list(text: str) -> tuple[object, ...]:
    """The arguments that the inside of a call's parentheses denotes: `"1, [2]"` gives `(1, [2])`.

    The text is parsed as the argument list of a call, and what comes back must be that one call with literal
    positional arguments: text that closes the parenthesis itself makes another tree and is refused.

    Raises:
        NotPlainData: keywords, stars, expressions, or text that leaves the parentheses.
    """
    call = _parse_expression(f"f({text.strip()}\n)", MAX_LITERAL_CHARS)
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.keywords):
        raise NotPlainData(f"expected arguments separated by commas, came {text[:80]!r}")
    arguments = tuple(_literal_value(argument, MAX_LITERAL_CHARS) for argument in call.args)
    canonical(arguments)
    return arguments


def canonical(value: object, max_chars: int = MAX_LITERAL_CHARS) -> str:
    """The canonical text of plain data.

    Raises:
        LiteralTooLong: the text has more than `max_chars` characters.
        NotPlainData: `value` holds anything but exact builtin types (a subclass may lie about equality), a
            float that is not finite, or nests deeper than `MAX_LITERAL_DEPTH`.
    """
    return _render(value, ", ", ": ", max_chars, MAX_LITERAL_DEPTH)


def canonical_text(text: str, max_chars: int = MAX_LITERAL_CHARS) -> str:
    """The canonical text of the plain data that `text` denotes, which may be long only if it is one string.

    Raises:
        LiteralTooLong, NotPlainData: see `parse_literal`.
    """
    text = text.strip()
    if len(text) > MAX_LITERAL_CHARS and not _ONE_STRING.fullmatch(text):
        raise LiteralTooLong(
            f"expected at most {min(max_chars, MAX_LITERAL_CHARS)} characters, came {len(text)}"
        )
    return canonical(parse_literal(text, max_chars), max_chars)


def compact(value: object) -> str:
    """The canonical text without the spaces after separators: `[1,'a b']`."""
    return _render(value, ",", ":", MAX_LITERAL_CHARS, MAX_LITERAL_DEPTH)


def _parse_expression(text: str, max_chars: int) -> ast.expr:
    if len(text) > max_chars:
        raise LiteralTooLong(f"expected at most {max_chars} characters, came {len(text)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in model text are not our warnings
            return ast.parse(text, mode="eval").body
    except _PARSER_ERRORS as error:
        raise NotPlainData(f"not a Python literal: {type(error).__name__}: {error}") from None


def _literal_value(node: ast.expr, max_chars: int) -> object:
    try:
        value = ast.literal_eval(node)
    except _PARSER_ERRORS as error:
        raise NotPlainData(f"not a Python literal: {type(error).__name__}: {error}") from None
    canonical(value, max_chars)  # bytes, complex numbers, `...` and 1e999 are literals but not plain data
    return value


def _render(value: object, comma: str, colon: str, max_chars: int, depth: int) -> str:
    def item(part: object) -> str:
        return _render(part, comma, colon, max_chars, depth - 1)

    if depth < 0:
        raise NotPlainData(f"nested deeper than {MAX_LITERAL_DEPTH}")
    if type(value) is list:
        text = f"[{comma.join(map(item, value))}]"
    elif type(value) is tuple:
        text = f"({item(value[0])},)" if len(value) == 1 else f"({comma.join(map(item, value))})"
    elif type(value) is set:
        text = f"{{{comma.join(sorted(map(item, value)))}}}" if value else "set()"
    elif type(value) is dict:
        pairs = sorted((item(key), item(entry)) for key, entry in value.items())
        text = f"{{{comma.join(key + colon + entry for key, entry in pairs)}}}"
    else:
        text = _scalar(value)
    if len(text) > max_chars:
        raise LiteralTooLong(f"expected at most {max_chars} characters, came {len(text)}")
    return text


def _scalar(value: object) -> str:
    if type(value) is float and not math.isfinite(value):
        raise NotPlainData(f"expected a finite number, came {value!r}")
    if value is None or type(value) in (bool, int, float, str):
        try:
            return repr(value)
        except ValueError as error:  # an integer with more digits than Python converts
            raise LiteralTooLong(str(error)) from None
    raise NotPlainData(f"expected plain data, came {type(value).__name__}")
