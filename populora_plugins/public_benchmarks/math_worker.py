"""The process in which mathematical answers are parsed and compared; started by `math_judge`, one file.

Standard input and output carry one JSON object a line: `{"gold", "answer", "tolerance"}` in, `{"verdict",
"canonical"}` out, after a line that says that it is ready. SymPy reads numbers by building Python source and
evaluating it, and so does its parser of plain expressions. Here both are replaced: numbers are read as numbers,
everything else is refused, so no text is ever evaluated (README.md).
"""

from __future__ import annotations

import json
import logging
import re
import resource
import signal
import sys
from dataclasses import replace
from typing import Any, NoReturn

import math_verify.grader
import math_verify.parser
import sympy
import sympy.parsing
import sympy.parsing.sympy_parser
import sympy.physics.units  # which `simplify` imports on first use, and whose import evaluates its own names
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from latex2sympy2_extended.symbols import GREEK_LETTER_MAP
from math_verify import LatexExtractionConfig, parse, verify
from sympy.core.sympify import SympifyError
from sympy.logic.boolalg import BooleanAtom

SMALL = 1e-3
"""Threshold below which math-verify's six decimals are too few: 1e-9 and 2e-9 would be one number."""
RELATIVE = 1e-4
ROUNDING = 1e-12
"""Numbers this close, relative to the larger, are one number if either is a decimal, which was rounded."""
DIGITS, IDENTICAL = 200, sympy.Rational(1, 10**150)
"""Irrational numbers that agree to 150 of 200 digits are one number that was written in two ways."""
HUGE = sympy.Integer(10) ** 4000
"""Numbers from here on are not written out: math-verify's word stands."""

NAME = re.compile(r"[^\W\d]\w*")
MONOMIAL_NAME = re.compile(r"def|if|else|return|None|monomial_[a-z]+|[ABk]|[abr]\d+")
INTEGER = re.compile(r"[+-]?\d+")
DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+)")
WORDS = re.compile(r"(?:\\(?:text|textbf|textit|textrm|mathrm)\{)?\(?([A-Za-z][A-Za-z -]+)\)?\}?")
TEXT = re.compile(r"\\text|\([A-Za-z]\)$|[A-Za-z]{4}")
"""The beginning of an answer in words, or of the letter of a choice, which are no variables."""
LETTER = re.compile(r"(?:\\[A-Za-z]+|\(?)\{?\(?([A-Za-z])\)?\}?")
IN_TEXT = re.compile(r"\\(?:text(?:bf|it|rm)?|mathrm|mbox)\s*\{[^{}]*\}")
COMMAND = re.compile(r"\\[A-Za-z]+")
PLAIN_UNIT = re.compile(r"(-?\d[\d,]*(?:\.\d+)?)\s+(?=.*[A-Za-z]{2})([A-Za-z][A-Za-z /]*(?:\^\{?\d\}?)?)")
NUMBERED = re.compile(r"(?:(?<![\\A-Za-z])([EIe])|\\([gG]amma))_(?:\{(\w+)\}|(\w))")
"""A variable whose letter alone is a constant to SymPy, which then loses the number behind it."""
IN_BASE = re.compile(r"\(?(\d[\dA-Za-z]*)\)?_\{?(\d+)\}?")
WITH_UNITS = LatexExtractionConfig(boxed_match_priority=0)
NO_UNITS = replace(WITH_UNITS, normalization_config=replace(WITH_UNITS.normalization_config, units=False))


def number(text: str, *_: Any, **__: Any) -> Any:
    """Read a number without evaluating the text; replaces `sympy.parsing.parse_expr`.

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
    """Refuse to run code; replaces the function of SymPy that calls `eval`."""
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
    math_verify.parser.parse_latex_cached = parse_latex
    math_verify.grader.sympy_compare_symbols = symbols_equal
    sympy.parsing.sympy_parser.eval_expr = refuse
    sys.addaudithook(refuse_source)


def parse_latex(latex: str) -> Any:
    """Parse an expression, or that after the last equality sign; unlike math-verify's own, keep its capitals."""
    try:
        return latex2sympy(
            latex,
            is_real=not math_verify.grader.should_treat_as_complex(latex),
            normalization_config=None,
            conversion_config=ConversionConfig(lowercase_symbols=False),
        )
    except Exception:  # the grammar raises whatever it likes
        last = math_verify.parser.get_last_eq(latex)
        if last == latex:
            raise
        return parse_latex(last)


their_symbols_equal = math_verify.grader.sympy_compare_symbols


def symbols_equal(gold: Any, found: Any) -> bool:
    """True if two symbols are equal; unlike math-verify's own, variables differ by their capitals, words do not."""
    if {gold, found} == {sympy.Symbol("E", real=True), sympy.E}:
        return False
    if isinstance(gold, sympy.Symbol) and isinstance(found, sympy.Symbol) and gold.name != found.name:
        word = len(gold.name) > 3 and gold.name.isalpha() and gold.name not in GREEK_LETTER_MAP.values()
        return word and gold.name.lower() == found.name.lower()
    return bool(their_symbols_equal(gold, found))


def read(text: str, units: bool = True) -> list[Any]:
    """Read one answer with math-verify: an expression, the text itself, or both.

    Args:
        units: letters behind a number may be a unit; else they are variables.
    """
    text = NUMBERED.sub(lambda found: rf"\Xi_{{{''.join(filter(None, found.groups()))}}}", text)
    if units and (measure := PLAIN_UNIT.fullmatch(text)):
        text = rf"{measure[1]}\text{{ {measure[2]}}}"
    config = WITH_UNITS if units or IN_TEXT.search(text) else NO_UNITS
    return parse(f"\\boxed{{{text}}}", [config], parsing_timeout=None)


def compare(gold: str, answer: str, tolerance: float | None) -> dict[str, str]:
    if (bases := in_bases(gold, answer)) is not None:
        return {"verdict": "correct" if bases[0] == bases[1] else "wrong", "canonical": str(bases[1])}
    units = not re.search("[A-Za-z]", COMMAND.sub("", IN_TEXT.sub("", gold)))
    expected, found = read(gold, units), read(answer, units)
    equal = same_words(gold, answer) or verify(
        expected, named_alike(expected, found), timeout_seconds=None, allow_set_relation_comp=True
    )
    exact = not any(
        isinstance(part, sympy.Basic) and part.has(sympy.Float) for part in expected[:1] + found[:1]
    )
    values = real(expected, exact), real(found, exact)
    if values[0] is not None and values[1] is not None:
        equal = numbers_equal(equal, values[0], values[1], tolerance, exact)
    return {"verdict": "correct" if equal else "wrong", "canonical": canonical(found, answer)}


def in_bases(gold: str, answer: str) -> tuple[int, int] | None:
    """The values of two numbers that both name their base; None where one does not, or is none in it."""
    values = []
    for text in (gold, answer):
        if not (written := IN_BASE.fullmatch(text)):
            return None
        try:
            values.append(int(written[1], int(written[2])))
        except ValueError:
            return None
    return values[0], values[1]


def same_words(gold: str, answer: str) -> bool:
    """True if two answers in words, or two letters of a choice, are the same but for capitals."""
    if not TEXT.match(gold):
        return False
    words = [WORDS.fullmatch(text) or LETTER.fullmatch(text) for text in (gold, answer)]
    return all(words) and len({word[1].lower() for word in words if word}) == 1


def named_alike(expected: list[Any], found: list[Any]) -> list[Any]:
    """Rename an answer `X = ...` to the expected `x = ...`: there the name is no part of the value."""
    relations = expected[:1] + found[:1]
    if len(relations) < 2 or not all(isinstance(part, sympy.Eq) and part.lhs.is_Symbol for part in relations):
        return found
    wanted, given = relations
    names = {wanted.lhs, given.lhs}
    if wanted.lhs.name.lower() != given.lhs.name.lower() or names & (
        wanted.rhs.free_symbols | given.rhs.free_symbols
    ):
        return found
    return [sympy.Eq(wanted.lhs, given.rhs, evaluate=False), *found[1:]]


def real(parsed: list[Any], exact: bool) -> Any:
    """The real number that an answer is, to 30 digits, or exactly where it can be; None for anything else."""
    try:
        value = sympy.N(parsed[0], DIGITS if exact else 30)
        if not (value.is_Float or value.is_Rational):
            return None
        if exact and abs(value) < HUGE and (whole := parsed[0].doit()).is_Rational:
            return whole
        return value
    except (TypeError, ValueError, IndexError, AttributeError):
        return None


def numbers_equal(equal: bool, expected: Any, found: Any, tolerance: float | None, exact: bool) -> bool:
    """math-verify's word on two numbers, except where its rounding to six decimals misleads it."""
    distance, size = abs(expected - found), max(abs(expected), abs(found))
    if tolerance is not None and distance <= tolerance:
        return True
    if exact and size < HUGE:
        bound = 0 if expected.is_Rational and found.is_Rational else IDENTICAL * size
        return bool(distance <= bound)
    if equal:
        return not (size < SMALL and distance > RELATIVE * size)
    return not exact and bool(distance <= ROUNDING * size)


def canonical(found: list[Any], answer: str) -> str:
    """Text that is equal for answers that are alike: of the simplified expression, else of the words."""
    words = WORDS.fullmatch(answer)
    if words or not found or isinstance(found[0], (str, BooleanAtom)):
        return " ".join((words[1] if words else answer).lower().split())
    try:
        value = _stated(found[0]).doit()
        if isinstance(value, BooleanAtom):  # a chain of equations
            return " ".join(answer.lower().split())
        exact = value.replace(lambda part: part.is_Float, lambda part: sympy.Rational(str(part)))
        return str(sympy.simplify(exact))
    except Exception:  # some parsed objects cannot be simplified; they are still themselves
        return str(found[0])


def _stated(found: Any) -> Any:
    """The number that an equation gives for a letter, or puts last; else the answer itself."""
    if not isinstance(found, sympy.Eq):
        return found
    left, right = found.lhs, found.rhs
    if not right.free_symbols and (left.is_Symbol or not left.free_symbols):
        return right
    return left if right.is_Symbol and not left.free_symbols else found


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
        except (RecursionError, ArithmeticError, ValueError):  # more than Python writes or sympy holds
            result = {"verdict": "wrong", "canonical": ""}
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
