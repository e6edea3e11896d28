"""LiveCodeBench's test cases: how they are packed, and when an output is right.

Private cases are JSON, or base64 of zlib of a pickled JSON text. The pickle comes from the network, so it is read
by an unpickler that knows no classes and can therefore only build builtin values.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, NoReturn

from populora_core.support.errors import BenchmarkError

MAX_UNPACKED_BYTES = 1 << 30


class TestType(StrEnum):
    """The way a case reaches a program."""

    STDIN = "stdin"
    FUNCTIONAL = "functional"

    __test__ = False  # no test class of pytest


@dataclass(frozen=True, slots=True)
class Case:
    """One test: standard input and output, or a line of JSON an argument and the JSON of the result."""

    input: str
    output: str
    kind: TestType


class _NoClasses(pickle.Unpickler):
    """A reader of pickles of builtin values, which refuses what names a class or a function."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a test case")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("a reference has no place in a test case")


def read_cases(text: str, source: str) -> list[Case]:
    """The cases of one column.

    Args:
        source: whose they are, for the error.

    Raises:
        BenchmarkError: neither JSON nor packed JSON of cases, a pickle of anything but text, or a functional case
            whose arguments or result are no JSON.
    """
    try:
        try:
            cases = json.loads(text)
        except ValueError:
            cases = json.loads(_unpack(text))
        return list(map(_case, cases))
    except (
        ValueError, TypeError, KeyError, EOFError, AttributeError, IndexError, ImportError, MemoryError, RecursionError,
        pickle.UnpicklingError, zlib.error, binascii.Error,
    ) as error:  # fmt: skip
        raise BenchmarkError(
            f"the test cases of {source} cannot be read",
            expected='JSON [{"input", "output", "testtype"}, ...], functional ones JSON themselves, or base64 of zlib '
            "of a pickle of that text",
            got=f"{type(error).__name__}: {error}",
            fix="fetch the file again; nothing of it was executed",
        ) from None


def _case(given: Mapping[str, Any]) -> Case:
    case = Case(str(given["input"]), str(given["output"]), TestType(given["testtype"]))
    if case.kind is TestType.FUNCTIONAL:
        arguments_of(case)
        json.loads(case.output)
    return case


def _unpack(text: str) -> str:
    unzip = zlib.decompressobj()
    data = unzip.decompress(base64.b64decode(text, validate=True), MAX_UNPACKED_BYTES)
    if unzip.unconsumed_tail:
        raise ValueError(f"more than {MAX_UNPACKED_BYTES} bytes")
    value = _NoClasses(io.BytesIO(data)).load()
    if not isinstance(value, (str, bytes)):
        raise ValueError(f"a pickle of {type(value).__name__}, not of text")
    return value if isinstance(value, str) else value.decode()


def right_output(answer: str, expected: str) -> bool:
    """True if a standard output is right: equal line by line, blanks at the ends aside, numbers as decimals."""
    lines, wanted = _lines(answer), _lines(expected)
    return len(lines) == len(wanted) and all(map(_right_line, lines, wanted))


def right_value(answer: Any, expected: str) -> bool:
    """True if a returned value is right: equal to the JSON value; a tuple counts as a list."""
    if isinstance(answer, tuple):
        answer = list(answer)
    return bool(answer == json.loads(expected))


def arguments_of(case: Case) -> list[Any]:
    """The arguments of a functional case."""
    return [json.loads(line) for line in case.input.split("\n")]


def metadata_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata of a row: a JSON text; nothing where there is no object in it."""
    try:
        found = json.loads(row["metadata"])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _right_line(line: str, wanted: str) -> bool:
    if line == wanted:
        return True
    try:
        return [Decimal(part) for part in line.split()] == [Decimal(part) for part in wanted.split()]
    except InvalidOperation:
        return False
