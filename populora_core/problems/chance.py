"""The chance that a blind guess solves a problem, for which its teacher should not be paid.

No one knows how a guesser guesses, so the best of a few counts. An output can be guessed by running the program on
any input of the right types, by repeating what other problems of the generation give, or by running it in part: who
cannot follow a program to its end stops early, and is right where the rest undoes itself. An input is guessed by taking
any of the right types, those of the other problems first, or by repeating what others take; a function by trying short
ones.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from math import prod

import numpy as np

from populora_core.problems.grading import RunJobs
from populora_core.problems.model import Problem
from populora_core.problems.parsing import blanked, blocks_of, entry_function, is_string, parse_program
from populora_core.problems.types import AnswerForm, problem_type
from populora_core.problems.types.rules import echoes
from populora_core.problems.variants import (
    ALONE,
    MOST,
    Trial,
    Watched,
    joined,
    outputs_of,
    spread,
    trusted,
    unchanged,
)
from populora_core.sandbox.literals import (
    LiteralTooLong,
    canonical,
    canonical_texts,
    literal,
    parse_arguments,
)

INPUTS = 20
"""Inputs that a problem's program is tried on, up to `BORROWED` of them of other problems."""
BORROWED = 8
RETURNS = 3
"""The number of a function's last returns that a guesser who stops early may go to."""
MOST_CHARS = 2_000
"""Longest text of a drawn value: lists in lists would grow without end."""
LARGEST, LONGEST, LETTERS = 10, 6, "abcdefgh"
"""Bounds of drawn values: the largest number, the most items, the letters of texts."""

_ONE = ("a", "-a", "a+1", "a-1", "2*a", "a*a", "abs(a)", "a%2", "len(a)", "sum(a)", "a+a", "sorted(a)")
_ITEMS = ("a[0]", "a[-1]", "a[1:]", "a[:-1]", "a[::-1]")
_TWO = ("a", "b", "a+b", "a-b", "b-a", "a*b", "max(a,b)", "min(a,b)", "[a,b]", "a[:b]", "a[b:]", "a.count(b)")
STOCK = {
    arguments: tuple(f"def f({names}):\n return {body}" for body in bodies)
    for arguments, names, bodies in ((1, "a", _ONE + _ITEMS), (2, "a,b", _TWO))
}
"""Number of arguments -> short functions, as a guesser would write them."""
TOGETHER = 20
"""Problems whose inputs a function of the stock is run on at once."""
_Signature = tuple[type, ...]
_Guess = tuple[str, str | None]
"""An input and what a program gives for it; None where it fails."""


def chances(
    problems: Sequence[Problem], run_jobs: RunJobs, sources: Sequence[np.random.Generator]
) -> list[float | None]:
    """The estimated chance of each problem; None where infrastructure lost a guess.

    Args:
        problems: of one generation: they lend each other inputs and outputs, copies counting once.
        run_jobs: runs jobs in a sandbox, results in order.
        sources: one for each problem, which its random inputs are drawn from.
    """
    run_jobs = watched = Watched(run_jobs)
    forms = [problem_type(problem.problem_type).answer_form for problem in problems]
    repeated = _repeated(problems, forms)
    on_inputs = [index for index, form in enumerate(forms) if form is not AnswerForm.PROGRAM]
    by_stock = [index for index, form in enumerate(forms) if form is AnswerForm.PROGRAM]
    shares = dict(
        zip(on_inputs, _on_inputs([(problems[i], sources[i]) for i in on_inputs], run_jobs), strict=True)
    ) | dict(zip(by_stock, _by_stock([problems[i] for i in by_stock], run_jobs), strict=True))
    for index in on_inputs:
        shares[index] = max(shares[index], repeated[index])
    asked = [index for index, form in enumerate(forms) if form is AnswerForm.OUTPUT]
    stopped = [
        (index, begun)
        for index in asked
        for place in range(RETURNS)
        if (begun := list(beginnings(problems[index].program, place)))
    ]
    by_stopping = unchanged(
        [problems[index] for index, _ in stopped], [begun for _, begun in stopped], run_jobs
    )
    for (index, _), share in zip(stopped, by_stopping, strict=True):
        shares[index] = max(shares[index], share)
    return [None if watched.has_lost(problem) else shares[index] for index, problem in enumerate(problems)]


def _repeated(problems: Sequence[Problem], forms: Sequence[AnswerForm]) -> list[float]:
    """The share of the other problems of its type that have the answer of each, copies counting once."""
    answers = [
        canonical_texts(problem.inputs if form is AnswerForm.ARGUMENTS else problem.outputs)
        for problem, form in zip(problems, forms, strict=True)
    ]
    unlike = {
        (each.problem_type, answer, each.program, each.inputs)
        for each, answer in zip(problems, answers, strict=True)
    }
    told = Counter((kind, answer) for kind, answer, _, _ in unlike)
    others = Counter(kind for kind, _, _, _ in unlike)
    return [
        (told[problem.problem_type, answer] - 1) / max(1, others[problem.problem_type] - 1)
        for problem, answer in zip(problems, answers, strict=True)
    ]


def _on_inputs(asked: Sequence[tuple[Problem, np.random.Generator]], run_jobs: RunJobs) -> list[float]:
    """The share of blind inputs on which each program gives the output of the problem; failing is missing it.

    Of several outputs each is guessed for itself: the product of their shares.
    """
    popular: dict[_Signature, Counter[str]] = defaultdict(Counter)
    unlike = {(each.problem_type, each.program, each.inputs): each for each, _ in asked}
    for problem in unlike.values():
        popular[_signature(problem)].update(problem.inputs)
    trials = []
    for problem, source in asked:
        known = [text for text, _ in popular[_signature(problem)].most_common(BORROWED + len(problem.inputs))]
        borrowed = [text for text in known if text not in problem.inputs][:BORROWED]
        drawn = list(_blind_inputs(problem, source, INPUTS - len(borrowed)))
        trials.append(Trial(problem.problem_id, [problem.program], [(0, text) for text in borrowed + drawn]))
    guessed = _guesses([problem for problem, _ in asked], trials, run_jobs)
    return [
        max(_blind(problem, guesses), _copying(problem, guesses))
        for (problem, _), guesses in zip(asked, guessed, strict=True)
    ]


def _blind(problem: Problem, guesses: Sequence[_Guess]) -> float:
    found = [output for _, output in guesses]
    return prod(found.count(output) / max(1, len(found)) for output in canonical_texts(problem.outputs))


def _copying(problem: Problem, guesses: Sequence[_Guess]) -> float:
    """The share of calls that give their argument back, where the problem's own do: a guess that copies is right there.

    Calls that fail tell nothing; where all of them do, the problem's own decide.
    """
    if not all(map(echoes, problem.inputs, problem.outputs)):
        return 0.0
    same = [echoes(given, output) for given, output in guesses if output is not None]
    return sum(same) / len(same) if same else 1.0


def _guesses(problems: Sequence[Problem], trials: Sequence[Trial], run_jobs: RunJobs) -> list[list[_Guess]]:
    """Outputs of each program on its inputs; if one of them ends the program, on a few that run alone.

    Where a program may keep something from call to call, they are believed if such a few give the same alone.
    """
    beside = [
        replace(trial, calls=[*((0, own) for own in problem.inputs), *trial.calls])
        for problem, trial in zip(problems, trials, strict=True)
    ]
    together = [
        None if outputs is None else [*zip(_inputs(trial), outputs, strict=True)]
        for trial, outputs in zip(trials, map(trusted, problems, outputs_of(beside, run_jobs)), strict=True)
    ]
    few = [
        spread(_inputs(trial), ALONE) if found is None else [] if joined(trial.programs) else _drawn(trial)
        for trial, found in zip(trials, together, strict=True)
    ]
    return [
        own if found is None or not set(own) <= set(found) else found
        for found, own in zip(together, _alone(trials, few, run_jobs), strict=True)
    ]


def _alone(trials: Sequence[Trial], inputs: Sequence[Sequence[str]], run_jobs: RunJobs) -> list[list[_Guess]]:
    calls = [
        Trial(f"{trial.name}-{place}", trial.programs, [(0, text)])
        for trial, texts in zip(trials, inputs, strict=True)
        for place, text in enumerate(texts)
    ]
    found = iter(outputs_of(calls, run_jobs))
    return [[(text, (next(found) or [None])[0]) for text in texts] for texts in inputs]


def _inputs(trial: Trial) -> list[str]:
    return [text for _, text in trial.calls]


def _drawn(trial: Trial) -> list[str]:
    """A few inputs of a trial, from places that its program cannot know, however it counts its calls."""
    inputs, program = _inputs(trial), "".join(trial.programs)
    places = sorted(range(len(inputs)), key=lambda place: sha256(f"{place} {program}".encode()).digest())
    return [inputs[place] for place in places[:ALONE]]


def beginnings(program: str, place: int = 0) -> Iterator[str]:
    """The program stopped before each statement that leads to a return of its function, which it then goes to at once.

    Before `MOST` of the statements, spread over the program, where there are more.

    Args:
        place: of the return, counted from the last one.

    Raises:
        ProgramSyntaxError: the program does not parse.
    """
    function = entry_function(parse_program(program))
    ways = [] if function is None else list(_ways(function.body))
    blocks = ways[-1 - place] if place < len(ways) else []
    stops = [(number, start) for number, block in enumerate(blocks) for start in range(len(block))]
    for number, start in spread(stops, MOST):
        begun = program
        for later in reversed(blocks[number + 1 :]):  # from the end on, so that places before it stay
            begun = blanked(begun, later) if later else begun
        yield blanked(begun, blocks[number][start:])


def _ways(body: Sequence[ast.stmt]) -> Iterator[list[list[ast.stmt]]]:
    """Yield for each return, in the order of the text, the statements before it in its block and in those around it."""
    before: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.Return):
            yield [before[:]]
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for block in blocks_of(statement):
                yield from ([before[:], *inner] for inner in _ways(block))
        if not is_string(statement):
            before.append(statement)


def _by_stock(problems: Sequence[Problem], run_jobs: RunJobs) -> list[float]:
    """The share of the stock's functions, of as many arguments, that are right on all of a problem's inputs."""
    by_arguments: dict[int, list[int]] = defaultdict(list)
    for index, problem in enumerate(problems):
        by_arguments[len(_signature(problem))].append(index)
    batches = [
        (program, indices[start : start + TOGETHER])
        for arguments, indices in by_arguments.items()
        for program in STOCK.get(arguments, ())
        for start in range(0, len(indices), TOGETHER)
    ]
    found = outputs_of(
        [_stock_trial("stock", program, problems, batch) for program, batch in batches], run_jobs
    )
    apart = [
        (program, [index])
        for (program, batch), outputs in zip(batches, found, strict=True)
        if outputs is None
        for index in batch
    ]
    found += outputs_of(
        [_stock_trial(problems[one[0]].problem_id, program, problems, one) for program, one in apart],
        run_jobs,
    )
    right: Counter[int] = Counter()
    for (_, batch), outputs in zip(batches + apart, found, strict=True):
        given = iter(outputs or ())
        for index in batch:
            expected = [*canonical_texts(problems[index].outputs)]
            right[index] += [*islice(given, len(expected))] == expected
    return [
        right[index] / len(STOCK.get(len(_signature(problem)), (None,)))
        for index, problem in enumerate(problems)
    ]


def _stock_trial(name: str, program: str, problems: Sequence[Problem], batch: Sequence[int]) -> Trial:
    return Trial(name, [program], [(0, text) for index in batch for text in problems[index].inputs])


def _signature(problem: Problem) -> _Signature:
    return tuple(map(type, parse_arguments(problem.inputs[0])))


def blind_input(arguments: str, source: np.random.Generator, letters: str = LETTERS) -> str:
    """Arguments of the same types, drawn blindly.

    Args:
        letters: of drawn texts.

    Raises:
        LiteralTooLong: they cannot be written down.
    """
    draw = _Draw(source, letters)
    return literal(tuple(map(draw.like, parse_arguments(arguments))))


def _blind_inputs(problem: Problem, source: np.random.Generator, count: int) -> Iterator[str]:
    """Texts have the letters of the program's own too: those that it looks for."""
    constants = [
        node.value for node in ast.walk(parse_program(problem.program)) if isinstance(node, ast.Constant)
    ]
    letters = "".join(sorted({*LETTERS, *"".join(text for text in constants if isinstance(text, str))}))
    for _ in range(count):
        with suppress(LiteralTooLong):
            yield blind_input(problem.inputs[0], source, letters)


class _Draw:
    """A source of values like given ones, up to `MOST_CHARS` characters; from then on lists stay empty."""

    def __init__(self, source: np.random.Generator, letters: str) -> None:
        self._source = source
        self._letters = list(letters)
        self._room = MOST_CHARS

    def like(self, value: object) -> object:
        """A value of the same type; items are like the first one, and what cannot be drawn stays."""
        self._room -= 2
        match value:
            case list():
                count = int(self._source.integers(LONGEST + 1))
                first = value[0] if value else 0
                return [self.like(first) for _ in range(count) if self._room > 0]
            case tuple():
                return tuple(map(self.like, value))
            case dict() | set() if value:
                first = next(iter(value))
                count = int(self._source.integers(LONGEST + 1))
                keys = [self.like(first) for _ in range(count) if self._room > 0]
                return set(keys) if isinstance(value, set) else {key: self.like(value[first]) for key in keys}
        drawn = _scalar(value, self._source, self._letters)
        self._room -= len(canonical(drawn))
        return drawn


def _scalar(value: object, source: np.random.Generator, letters: Sequence[str]) -> object:
    match value:
        case bool():
            return bool(source.random() < 0.5)
        case int():
            return int(source.integers(-LARGEST, LARGEST + 1))
        case float():
            return round(float(source.uniform(-LARGEST, LARGEST)), 2)
        case str():
            return "".join(source.choice(letters, int(source.integers(LONGEST + 1))).tolist())
        case _:
            return value
