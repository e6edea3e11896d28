"""Seed problems of the repl dialect: what a teacher is shown before the run has problems of its own."""

from __future__ import annotations

from dataclasses import dataclass

from populora_core.problems.model import Problem
from populora_core.problems.types import AnswerForm


@dataclass(frozen=True, slots=True)
class Seed:
    """A program with calls: argument tuples and outputs; the first call is that of a problem of one input.

    Args:
        forth, back: the thought of an answer that gives the first output, or the first input.
    """

    program: str
    calls: tuple[tuple[str, str], ...]
    forth: str = ""
    back: str = ""

    def problem(self, problem_type: str, number: int, count: int) -> Problem:
        """The problem with its first `count` calls."""
        inputs, outputs = zip(*self.calls[:count], strict=True)
        return Problem(f"seed-{problem_type}-{number}", problem_type, self.program, inputs, outputs, "")

    def thought(self, form: AnswerForm) -> str:
        """The thought that leads to an answer of this form."""
        return self.forth if form is AnswerForm.OUTPUT else self.back


SHOWN = 2
"""Number of seeds that students see with their answers unless a dialect says another."""

SEEDS = (
    Seed(
        "def f(words, n):\n    kept = [w for w in words if len(w) > n]\n    return kept[::-1]",
        (
            ("(['fig', 'apple', 'kiwi'], 3)", "['kiwi', 'apple']"),
            ("(['a', 'bb'], 0)", "['bb', 'a']"),
            ("([], 2)", "[]"),
        ),
        "longer than 3: 'apple', 'kiwi'; reversed",
        "both are longer than 3, in the other order",
    ),
    Seed(
        "def f(text):\n    count = {}\n    for c in text:\n        count[c] = count.get(c, 0) + 1\n    return count",
        (("('noon',)", "{'n': 2, 'o': 2}"), ("('abca',)", "{'a': 2, 'b': 1, 'c': 1}"), ("('',)", "{}")),
        "n twice, o twice",
        "two n and two o, n first",
    ),
    Seed(
        "def f(a, b):\n    if a > b:\n        return a - b\n    return a * b",
        (("(3, 4)", "12"), ("(9, 2)", "7"), ("(-1, 5)", "-5")),
    ),
    Seed(
        "def f(s, old, new):\n    return s.replace(old, new).upper()",
        (
            ("('banana', 'a', 'o')", "'BONONO'"),
            ("('x-y', '-', '')", "'XY'"),
            ("('tea', 't', 's')", "'SEA'"),
        ),
    ),
    Seed(
        "def f(nums):\n    total = 0\n    for i, n in enumerate(nums):\n        total += i * n\n    return total",
        (("([5, 2, 7],)", "16"), ("([1, 1, 1],)", "3"), ("([4],)", "0")),
    ),
    Seed(
        "def f(d, key):\n    d[key] = len(d)\n    return sorted(d.items())",
        (
            ("({'b': 7, 'a': 3}, 'c')", "[('a', 3), ('b', 7), ('c', 2)]"),
            ("({}, 'x')", "[('x', 0)]"),
            ("({'k': 1}, 'k')", "[('k', 1)]"),
        ),
    ),
    Seed(
        "def f(n):\n    digits = []\n    while n > 0:\n        digits.append(n % 10)\n        n //= 10\n"
        "    return digits",
        (("(407,)", "[7, 0, 4]"), ("(12,)", "[2, 1]"), ("(0,)", "[]")),
    ),
    Seed(
        "def f(sentence):\n    return ' '.join(w.capitalize() for w in sentence.split() if w != 'the')",
        (
            ("('over the hill',)", "'Over Hill'"),
            ("('the end',)", "'End'"),
            ("('go on',)", "'Go On'"),
        ),
    ),
)
