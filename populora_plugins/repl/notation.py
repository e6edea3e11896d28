"""Notation of calls with their results, and the reading of a line that a model wrote as one.

A value is read where Python would show or compare with it. Small models go on after it, in prose: that is passed
over, unless it could be the rest of an expression, or is glued to the value. So no right value is lost, `1 + 2` is not
read as 1, and `'it's'` not as `'it'`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from populora_core.problems.model import Problem
from populora_core.problems.parsing import (
    FormatError,
    ProgramSyntaxError,
    parse_program,
    read_arguments,
    read_output,
)
from populora_core.sandbox.literals import written_arguments

EQUALS = "=="
CLOSING = "'\")]}"
LONGEST = 1_000
"""Characters of a line among which the end of a value is looked for, where prose follows."""
_GOES_ON = re.compile(
    r"""[A-Za-z0-9_]|\s*(?:[-+*/%@&|^~<>=!.,:;\[({'"\\]|(?:and|or|is|in|not|if|else|for)\b)"""
)


@dataclass(frozen=True, slots=True)
class Notation:
    """The notation of a call with its result.

    Args:
        mark: what a line with a call begins with.
        then: what a prompt for the result ends with, after the call.
        blank: what stands between that and the result.
        compared: whether the result stands on the line of the call.
    """

    mark: str
    then: str
    blank: str
    compared: bool

    def call(self, arguments: str) -> str:
        """The call with an argument tuple: `(3, [1, 2])` gives `>>> f(3, [1, 2])`."""
        return f"{self.mark}({', '.join(written_arguments(arguments))})"

    def result(self, output: str) -> str:
        """The text that follows the call."""
        return f"{self.then}{self.blank}{output}"

    def calls(self, problem: Problem, indices: Iterable[int]) -> str:
        """Calls with their results."""
        return "\n".join(
            self.call(problem.inputs[index]) + self.result(problem.outputs[index]) for index in indices
        )

    def output(self, line: str) -> str:
        """The output that a line gives.

        Raises:
            FormatError: it gives none.
        """
        try:
            return _compared_with(line) if self.compared else read_output(line)
        except FormatError:
            return _leading(line)

    def arguments(self, line: str) -> str:
        """The argument tuple of `(ARGS)`; what the call is compared with after it, and prose, are passed over.

        Raises:
            FormatError: it gives none.
        """
        text = line.strip()
        for place in range(2, len(text) + 1) if text.startswith("(") else ():
            after = text[place:]
            if text[place - 1] == ")" and (after.lstrip().startswith(EQUALS) or not _GOES_ON.match(after)):
                try:
                    return read_arguments(text[1 : place - 1])
                except FormatError:  # the parenthesis is inside of an argument
                    continue
        raise FormatError("expected the arguments of a call in parentheses, all of them literals")


REPL = Notation(">>> f", "\n", "", compared=False)
ASSERT = Notation("assert f", f" {EQUALS}", " ", compared=True)


def _compared_with(line: str) -> str:
    """The value that Python would compare with after `assert f() ==`; a message after it is left out."""
    text = f"assert f() =={line}"
    try:
        statements = parse_program(text).body
    except ProgramSyntaxError as error:
        raise FormatError(f"expected a result that ends on its line: {error}") from None
    match statements:
        case [ast.Assert(test=ast.Compare(left=ast.Call(), ops=[ast.Eq()], comparators=[value]))]:
            return read_output(ast.get_source_segment(text, value) or "")
    raise FormatError("expected one result")


def _leading(line: str) -> str:
    """The longest literal that a line begins with, where no expression goes on after it."""
    text, found, after = line.strip(), "", ""
    for place in range(1, min(len(text), LONGEST) + 1):
        last, rest = text[place - 1], text[place:]
        if last in CLOSING or (last.isalnum() and not (rest[:1].isalnum() or rest[:1] == "_")):
            try:
                found, after = read_output(text[:place]), rest
            except FormatError:
                continue
    if not found or _GOES_ON.match(after):
        raise FormatError("expected the output as one Python literal")
    return found
