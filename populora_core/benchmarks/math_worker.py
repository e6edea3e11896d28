"""The process in which mathematical answers are parsed and compared; started by `math_judge`, one file.

Standard input and output carry one JSON object a line: `{"gold", "answer", "tolerance"}` in, `{"verdict",
"canonical"}` out, after a line that says that it is ready. SymPy reads numbers by building Python source and
evaluating it, and so does its parser of plain expressions. Here both are replaced: numbers are read as numbers,
everything else is refused, so no text is ever evaluated (docs/evaluation-graders.md).
"""

from __future__ import annotations

import json
import logging
import re
import resource
import signal
import sys
from typing import Any, NoReturn

import math_verify.parser
import sympy
import sympy.parsing
import sympy.parsing.sympy_parser
import sympy.physics.units  # which `simplify` imports on first use, and whose import evaluates its own names
from math_verify import LatexExtractionConfig, parse, verify
from sympy.core.sympify import SympifyError
from sympy.logic.boolalg import BooleanAtom

SMALL = 1e-3
"""Below this, math-verify's six decimals say too little: 1e-9 and 2e-9 would be one number."""
RELATIVE = 1e-4
ROUNDING = 1e-12
"""Numbers this close, relative to the larger, are one number that was computed in two ways."""

NAME = re.compile(r"[^\W\d]\w*")
MONOMIAL_NAME = re.compile(r"def|if|else|return|None|monomial_[a-z]+|[ABk]|[abr]\d+")
INTEGER = re.compile(r"[+-]?\d+")
DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+)")
WORDS = re.compile(r"(?:\\(?:text|textbf|textit|textrm|mathrm)\{)?\(?([A-Za-z][A-Za-z -]+)\)?\}?")
BOXED = [LatexExtractionConfig(boxed_match_priority=0)]


def number(text: str, *_: Any, **__: Any) -> Any:
    """In place of `sympy.parsing.parse_expr`: the number that a text is, without evaluating it.

    Raises:
        SympifyError: the text is anything else.
    """
    text = text.strip()
    if INTEGER.fullmatch(text):
        return sympy.Integer(int(text))
    if DECIMAL.fullmatch(text):
        return sympy.Float(text)
    raise SympifyError(text)


def refuse(code: str, *_: Any) -> NoReturn:
    """In place of the function of SymPy that calls `eval`."""
    raise SympifyError(code)


def refuse_source(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook, which nothing can take away: no text of an answer becomes code, by whatever way it goes.

    Modules that are imported late come from files, and SymPy writes functions on tuples of exponents for itself,
    whose only names are its own few.

    Raises:
        SympifyError: `eval`, `exec` or `compile` got any other source.
    """
    if event != "compile" or arguments[0] is None or not str(arguments[1]).startswith("<"):
        return
    source = arguments[0].decode() if isinstance(arguments[0], bytes) else str(arguments[0])
    names = NAME.findall(source)
    if names[:1] != ["def"] or not all(map(MONOMIAL_NAME.fullmatch, names)):
        raise SympifyError("source text")


def disarm() -> None:
    """Take evaluation out of SymPy, for this process."""
    for module in (sympy.parsing.sympy_parser, sympy.parsing, sympy, math_verify.parser):
        module.parse_expr = number
    sympy.parsing.sympy_parser.eval_expr = refuse
    sys.addaudithook(refuse_source)


def read(text: str) -> list[Any]:
    """What math-verify makes of one answer: an expression, the text itself, or both."""
    return parse(f"\\boxed{{{text}}}", BOXED, parsing_timeout=None)


def compare(gold: str, answer: str, tolerance: float | None) -> dict[str, str]:
    expected, found = read(gold), read(answer)
    equal = verify(expected, found, timeout_seconds=None, allow_set_relation_comp=True)
    values = real(expected), real(found)
    if values[0] is not None and values[1] is not None:
        equal = numbers_equal(equal, values[0], values[1], tolerance)
    return {"verdict": "correct" if equal else "wrong", "canonical": canonical(found, answer)}


def real(parsed: list[Any]) -> Any:
    """The real number that an answer is, to 30 digits; None for anything else."""
    try:
        value = sympy.N(parsed[0], 30)
        return value if value.is_Float or value.is_Rational else None
    except (TypeError, ValueError, IndexError, AttributeError):
        return None


def numbers_equal(equal: bool, expected: Any, found: Any, tolerance: float | None) -> bool:
    """math-verify's word on two numbers, except where its rounding to six decimals misleads it."""
    distance, size = abs(expected - found), max(abs(expected), abs(found))
    if tolerance is not None and distance <= tolerance:
        return True
    if equal:
        return not (size < SMALL and distance > RELATIVE * size)
    return bool(distance <= ROUNDING * size)


def canonical(found: list[Any], answer: str) -> str:
    """Text that is equal for answers that are alike: of the simplified expression, else of the words."""
    words = WORDS.fullmatch(answer)
    if words or not found or isinstance(found[0], (str, BooleanAtom)):
        return " ".join((words[1] if words else answer).lower().split())
    try:
        value = found[0].doit()
        exact = value.replace(lambda part: part.is_Float, lambda part: sympy.Rational(str(part)))
        return str(sympy.simplify(exact))
    except Exception:  # some parsed objects cannot be simplified; they are still themselves
        return str(found[0])


def main() -> None:
    cpu_seconds, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    disarm()
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, inside C code too
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us ends us
    print("ready", flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        try:
            result = compare(**json.loads(line))
        except MemoryError:
            result = {"verdict": "out_of_memory", "canonical": ""}
        except RecursionError:
            result = {"verdict": "wrong", "canonical": ""}
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
