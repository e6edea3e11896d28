"""`populora play`: the table that a person sits at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

from rich.padding import Padding
from rich.text import Text

from populora_core.problems.model import Problem
from populora_core.problems.parsing import FormatError, ProgramSyntaxError
from populora_core.problems.types import AnswerForm, problem_type
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.runs.run import Run
from populora_core.sandbox.backends import open_sandbox
from populora_core.support.devices import hold_device
from populora_core.support.visible import visible
from populora_core.terminal.screen import console, narrated, say
from populora_plugins.harvest.play_table import PlayTable

QUESTIONS = {
    AnswerForm.OUTPUT: "What does it return? (a Python literal)",
    AnswerForm.ARGUMENTS: "Which arguments give that? (such as 3, [1, 2])",
    AnswerForm.PROGRAM: "Write such an f; an empty line ends it.",
}
LEAVE = "q"
ROUNDS = 5
"""Number of teachers that are asked in a row where they write nothing valid."""


def play(run: Run, teacher: str | None, student: str | None, kind: str | None, seed: int) -> None:
    """Let a teacher ask until the person leaves, with `q` or the end of input; then say who got how many right."""
    score: Counter[tuple[str, bool]] = Counter()
    with (
        hold_device(run.config.base.device),
        open_sandbox(run.config.sandbox.backend, run.limits, workers=2) as sandbox,
    ):
        with narrated("loading the members ..."):
            table = PlayTable(run, sandbox, teacher, student, seed)
        console.print(f"Enter alone lets a student answer; {LEAVE} leaves.")
        while True:
            with narrated("a teacher writes a problem ..."):
                asked = next(filter(None, (table.ask(kind) for _ in range(ROUNDS))), None)
            if asked is None:
                console.print("no teacher writes a valid problem now")
                break
            say((f"\n{asked.teacher_id} asks", "bold"))
            _show(asked.problem, table.shown(asked.problem))
            answered = _answered(table, asked.problem)
            if answered is None:
                break
            score[answered] += 1
    for who in sorted({who for who, _ in score}):
        right, wrong = score[who, True], score[who, False]
        console.print(f"{who}: {right} of {right + wrong} right")


def _answered(table: PlayTable, problem: Problem) -> tuple[str, bool] | None:
    """Return who answered, and whether it was right; None if the person leaves."""
    while True:
        text = _typed(problem, len(table.shown(problem)))
        if text is None or text.strip() == LEAVE:
            return None
        if not text.strip():
            who, written, verdict = table.answer(problem)
            say((f"{who} answers", "bold"))
            _quote(written)
        else:
            try:
                who, verdict = "you", table.judge(problem, text)
            except (FormatError, ProgramSyntaxError) as error:
                console.print(f"that cannot be read: {error}")
                continue
        if verdict is AttemptVerdict.INFRASTRUCTURE:
            console.print("the sandbox failed; try again")
            continue
        right = verdict is AttemptVerdict.CORRECT
        say((str(verdict), "green" if right else "red"))
        if not right:
            _quote(_solution(problem))
        return who, right


def _typed(problem: Problem, shown: int) -> str | None:
    """Read the person's answer: a line for each input shown, or a program's lines up to an empty one.

    Returns:
        The text; None at the end of input.
    """
    form = problem_type(problem.problem_type).answer_form
    most = inf if form is AnswerForm.PROGRAM else shown
    console.print(QUESTIONS[form] + (f" {shown} lines, in order." if 1 < shown == most else ""))
    lines: list[str] = []
    while True:
        try:
            lines.append(input("> "))
        except EOFError:
            return "\n".join(lines) or None
        if len(lines) == most or not lines[-1].strip() or lines == [LEAVE]:
            return "\n".join(lines)


def _show(problem: Problem, shown: Sequence[int]) -> None:
    """The problem as whoever answers may see it."""
    form = problem_type(problem.problem_type).answer_form
    if problem.message:
        _quote(problem.message)
    if form is not AnswerForm.PROGRAM:
        _quote(problem.program)
    for index in shown:
        call = "f(?)" if form is AnswerForm.ARGUMENTS else _call(problem.inputs[index])
        output = "?" if form is AnswerForm.OUTPUT else problem.outputs[index]
        _quote(f"{call} = {output}")


def _solution(problem: Problem) -> str:
    """A right answer, for display."""
    match problem_type(problem.problem_type).answer_form:
        case AnswerForm.OUTPUT:
            return "\n".join(problem.outputs)
        case AnswerForm.ARGUMENTS:
            return "\n".join(map(_call, problem.inputs))
        case AnswerForm.PROGRAM:
            return problem.program


def _call(arguments: str) -> str:
    """The call with an argument tuple, as written: `(3,)` gives `f(3)`."""
    return f"f({arguments[1:-1].removesuffix(',')})"


def _quote(text: str) -> None:
    """Text that a model wrote, shown and never obeyed."""
    console.print(Padding(Text(visible(text)), (0, 0, 0, 4)))
