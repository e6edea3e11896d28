"""Programs that other people and another model wrote: what they give is what was published, for inputs as written."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from published_data import published
from reference_completions import near_values
from sandboxed import BACKEND_NAMES, opened

from populora_core.problems.chance import chances
from populora_core.problems.dialects import DIALECTS, dialect
from populora_core.problems.grading import ProposalCheck, check_proposals
from populora_core.problems.model import Draft, Problem
from populora_core.problems.parsing import FormatError, read_arguments, read_input, read_output
from populora_core.problems.types import PROBLEM_TYPES, AnswerForm, ballot, problem_type
from populora_core.problems.types.rules import echoes
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.sandbox.jobs import Job, Limits, Sandbox, python_of
from populora_core.sandbox.literals import canonical_text, literal, parse_arguments, parse_literal
from populora_core.sandbox.verify import verify_or_raise

INSTRUCT = dialect("instruct")
FILES = {
    "CRUXEval": ("cruxeval-first400.jsonl", "code"),
    "Absolute Zero Reasoner": ("azr_7b_coder_seed_io.jsonl.gz", "snippet"),
}
REFUSED = {
    "CRUXEval": {"format_error": 6, "trivial": 1, "not_plain_data": 1},
    "Absolute Zero Reasoner": {
        "format_error": 7,
        "trivial": 3,
        "not_plain_data": 1,
        "nondeterministic": 2,
        "forbidden": 2,
    },
}
"""Rows that make no problem, by verdict: the table of docs/verifier.md."""
COPIED = {"CRUXEval": (14, 22), "Absolute Zero Reasoner": (5, 8)}
"""Rows whose output is their argument: how many are problems, and how many trivial since a copy is always right."""
BY_HASH_SEED = {"CRUXEval": 0, "Absolute Zero Reasoner": 1}
"""Rows whose output is a dict in an order that the hash seed decides."""
CUT = 403
"""Characters of a published output that was cut: its first and last 200 with `...` between."""


@dataclass(frozen=True)
class Row:
    """A published row that can be read, and what was published for it."""

    draft: Draft
    output: str


@pytest.fixture(scope="module", params=BACKEND_NAMES)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with opened(request.param, Limits(), hash_seed=7) as pool:
        yield pool


@cache
def readable(name: str) -> tuple[list[Row], int]:
    """The rows whose input is a list of literals, and how many others there are."""
    file, code = FILES[name]
    rows: list[Row] = []
    others = 0
    for row in published(file):
        try:
            inputs = (read_arguments(row["input"]),)
        except FormatError:
            others += 1
        else:
            rows.append(Row(Draft("code_o", row[code], inputs, message=""), row["output"]))
    return rows, others


@cache
def checked(name: str, sandbox: Sandbox) -> list[ProposalCheck]:
    """What the sandbox says of every row that can be read."""
    drafts = [row.draft for row in readable(name)[0]]
    return check_proposals(INSTRUCT, lambda jobs: verify_or_raise(sandbox, jobs, determinism=True), drafts)


def is_published(given: str, output: str) -> bool:
    """Whether a literal is the published text, but for the order of a set; both its ends where the text was cut."""
    if len(output) == CUT and output[200:203] == "...":
        return (given[:200], given[-200:]) == (output[:200], output[-200:])
    return given == output or given == literal(parse_literal(output))


@pytest.mark.sandbox
def test_the_backends_run_the_python_of_this_machine_and_of_the_image(sandbox: Sandbox) -> None:
    expected = "3.13" if sandbox.name == "docker" else platform.python_version()
    assert python_of(sandbox.identity).startswith(expected)


@pytest.mark.thorough
@pytest.mark.sandbox
@pytest.mark.parametrize("name", FILES)
def test_every_accepted_program_gives_what_was_published(name: str, sandbox: Sandbox) -> None:
    rows, unread = readable(name)
    checks = checked(name, sandbox)
    verdicts = Counter(str(check.verdict) for check in checks) + Counter({"format_error": unread})
    assert verdicts.pop("valid") == len(rows) + unread - sum(REFUSED[name].values())
    assert verdicts == REFUSED[name]
    other = [
        (row.draft.program, check.outputs[0], row.output)
        for row, check in zip(rows, checks, strict=True)
        if check.verdict is ProposalVerdict.VALID and not is_published(check.outputs[0], row.output)
    ]
    assert len(other) == BY_HASH_SEED[name]
    for program, stored, output in other:  # keys in the order of a set: stored in the order of their text
        assert "set(" in program and stored == canonical_text(stored) == canonical_text(output)


@pytest.mark.thorough
@pytest.mark.sandbox
@pytest.mark.parametrize("sandbox", ["bubblewrap"], indirect=True)  # one will do: it takes twenty seconds
@pytest.mark.parametrize("name", FILES)
def test_a_row_whose_output_is_its_argument_is_trivial_where_a_copy_is_always_right(
    name: str, sandbox: Sandbox
) -> None:
    problems = [
        check.draft.problem(str(place), check.outputs)
        for place, check in enumerate(checked(name, sandbox))
        if check.draft and check.outputs
    ]
    copied = [each for each in problems if echoes(each.inputs[0], each.outputs[0])]
    sources = [np.random.default_rng(0) for _ in copied]
    found = chances(copied, lambda jobs: verify_or_raise(sandbox, jobs, determinism=False), sources)
    certain = sum(chance == 1.0 for chance in found)
    assert (len(copied) - certain, certain) == COPIED[name]


@pytest.mark.thorough
@pytest.mark.sandbox
def test_every_example_of_a_proposed_function_is_what_was_published(sandbox: Sandbox) -> None:
    jobs, outputs, unread = [], [], 0
    for number, row in enumerate(published("azr_7b_coder_code_f_seed_io.jsonl.gz")):
        examples = []
        for text, output in zip(row["inputs"], row["outputs"], strict=True):
            try:
                examples.append((read_arguments(text), output))
            except FormatError:
                unread += 1
        if examples:
            inputs, told = zip(*examples, strict=True)
            jobs.append(Job(str(number), row["snippet"], inputs))
            outputs.append(told)
    results = verify_or_raise(sandbox, jobs, determinism=True)
    statuses = Counter(str(result.status) for result in results)
    assert (len(jobs), unread, statuses.pop("ok")) == (255, 31, 247)
    assert statuses == {"forbidden": 3, "not_plain_data": 3, "output_limit": 1, "nondeterministic": 1}
    pairs = [
        pair
        for result, told in zip(results, outputs, strict=True)
        if result.outputs
        for pair in zip(result.outputs, told, strict=True)
    ]
    assert len(pairs) > 2400
    assert [pair for pair in pairs if not is_published(*pair)] == []


@pytest.mark.parametrize("name", FILES)
def test_an_output_that_is_off_by_a_little_is_wrong(name: str) -> None:
    verdicts: Counter[AttemptVerdict] = Counter()
    for row in readable(name)[0]:
        try:
            value = parse_literal(read_output(row.output))
        except FormatError:  # no plain data, or cut
            continue
        problem = row.draft.problem("p", (row.output,))
        assert judged(problem, repr(value)) is AttemptVerdict.CORRECT
        verdicts.update(judged(problem, repr(wrong)) for wrong in near_values(value) if wrong != value)
    assert verdicts.total() > 1000
    assert verdicts[AttemptVerdict.WRONG] >= 0.99 * verdicts.total(), verdicts


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("name", "told", "asked_for"), [("CRUXEval", 11, 25), ("Absolute Zero Reasoner", 2, 16)]
)
def test_an_input_whose_keys_lie_the_other_way_round_is_another_input(
    name: str, told: int, asked_for: int, sandbox: Sandbox
) -> None:
    kind, asked = problem_type("code_i"), []
    for row in readable(name)[0]:
        arguments = parse_arguments(row.draft.inputs[0])
        turned = turned_round(arguments)
        if repr(turned) != repr(arguments) and len(row.output) != CUT:
            draft = replace(row.draft, problem_type="code_i")
            asked.append((draft.problem(str(len(asked)), (row.output,)), read_input(repr(turned))))
    own = [kind.answer_job(problem, problem.inputs[0], INSTRUCT.rules) for problem, _ in asked]
    others = [kind.answer_job(problem, answer, INSTRUCT.rules) for problem, answer in asked]
    results = verify_or_raise(sandbox, [job for job in own + others if job], determinism=False)
    verdicts = [
        kind.judge(problem, problem.inputs[0], result)
        for (problem, _), result in zip([*asked, *asked], results, strict=True)
    ]
    assert verdicts[: len(asked)] == [AttemptVerdict.CORRECT] * asked_for
    others_judged = Counter(
        verdicts[len(asked) :]
    )  # where no order shows in the output the other input is right too
    assert others_judged == {AttemptVerdict.WRONG: told, AttemptVerdict.CORRECT: asked_for - told}


def judged(problem: Problem, answer: str) -> AttemptVerdict:
    return problem_type(problem.problem_type).judge(problem, read_output(answer), None)


def turned_round(value: object) -> Any:
    """The value with the entries of its outermost dicts in reverse order."""
    match value:
        case dict():
            return dict(reversed(value.items()))
        case list() | tuple():
            return type(value)(map(turned_round, value))
        case _:
            return value


@pytest.mark.parametrize("name", DIALECTS.names())
@pytest.mark.parametrize("kind", sorted(PROBLEM_TYPES))
def test_a_prompt_shows_what_runs_in_the_order_that_was_written(name: str, kind: str) -> None:
    spoken, typed = dialect(name), problem_type(kind)
    count = typed.input_count(spoken.rules)[1]
    inputs = tuple(f"({{'b': {number}, 'a': {{8, 0}}}},)" for number in range(count))
    outputs = tuple(f"{{'d': {number}, 'c': {{8, 0}}}}" for number in range(count))
    asked = Problem("p", kind, "def f(d): return d", inputs, outputs, "")

    def shown(prompt: str, keys: str) -> set[int]:
        """The places of the dictionaries with these two keys, in this order or the other."""
        first, second = keys
        packed = prompt.replace(" ", "")
        assert f"{{'{second}':{{" not in packed, "the keys were put in order"
        return {at for at in range(count) if f"{{'{first}':{at},'{second}':{{8,0}}}}" in packed}

    solve, propose = spoken.solve_prompt(asked), spoken.propose_prompt(kind, [asked])
    examples = set(typed.shown(asked, spoken.rules))
    assert shown(solve, "ba") == (set() if typed.answer_form is AnswerForm.ARGUMENTS else examples)
    assert shown(solve, "dc") == (set() if typed.answer_form is AnswerForm.OUTPUT else examples)
    assert shown(propose, "ba")


def test_votes_count_outputs_by_value_and_inputs_as_written() -> None:
    first, second = "{'b': 1, 'a': 2}", "{'a': 2, 'b': 1}"
    assert ballot("code_o", first) == ballot("code_o", second)
    assert ballot("code_i", f"({first},)") != ballot("code_i", f"({second},)")
