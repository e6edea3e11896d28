"""One regression test for each known way to win without solving, at the level of reading and judging."""

from __future__ import annotations

import os

import pytest

from populora_core.problems.dialects import dialect
from populora_core.problems.dialects.instruct import fence
from populora_core.problems.model import Draft, Problem
from populora_core.problems.parsing import FormatError
from populora_core.problems.types import problem_type
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.sandbox.jobs import JobResult
from populora_core.sandbox.literals import canonical
from populora_core.sandbox.status import Status

PROGRAM = "def f(x):\n return [x]*3"
DIALECTS = ("compact", "instruct")
FORMS = {"code_o": "output", "code_i": "input", "code_f": "python"}


def problem(kind: str, output: str = "[1, 1, 1]") -> Problem:
    return Problem("prob-1", kind, PROGRAM, ("(1,)",), (output,), "")


def answer(name: str, kind: str, text: str, output: str = "[1, 1, 1]") -> str:
    wrapped = text
    if name == "instruct":
        wrapped = f"</think><answer>\n{fence(FORMS[kind], text)}\n</answer>"
    elif kind == "code_o":
        wrapped = f"\n={text}"
    return dialect(name).parse_answer(problem(kind, output), wrapped)


def proposal(name: str, kind: str, program: str, inputs: list[str], message: str = "m") -> Draft:
    if name == "compact":
        return dialect(name).parse_proposal(kind, program + "".join(f"\n#{text}" for text in inputs))
    blocks = [fence("python", program), *(fence("input", text) for text in inputs)]
    if kind == "code_f":
        blocks.append(fence("message", message))
    return dialect(name).parse_proposal(kind, "</think><answer>\n" + "\n".join(blocks) + "\n</answer>")


def refused(name: str, draft: Draft) -> ProposalVerdict | None:
    return problem_type(draft.problem_type).refuse(draft, dialect(name).rules)


@pytest.mark.parametrize("name", DIALECTS)
def test_an_output_with_side_effects_is_refused_and_has_none(name, monkeypatch):
    monkeypatch.setenv("POPULORA_HACKED", "no")
    with pytest.raises(FormatError):
        answer(name, "code_o", "__import__('os').environ.update(POPULORA_HACKED='yes') or [1, 1, 1]")
    assert os.environ["POPULORA_HACKED"] == "no"


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize(
    ("gold", "given"), [("True", "1"), ("1", "True"), ("1", "1.0"), ("[1]", "(1,)"), ("0.0", "-0.0")]
)
def test_values_that_python_calls_equal_are_wrong_answers(name, gold, given):
    kind = problem_type("code_o")
    assert (
        kind.judge(problem("code_o", gold), answer(name, "code_o", given, gold), None) is AttemptVerdict.WRONG
    )
    result = JobResult("job", Status.OK, (given,), "")
    assert problem_type("code_i").judge(problem("code_i", gold), "(1,)", result) is AttemptVerdict.WRONG


@pytest.mark.parametrize("name", DIALECTS)
def test_the_order_in_which_a_set_or_dict_is_written_does_not_matter(name):
    gold = "{'a': {1, 2}, 'b': 3}"
    given = answer(name, "code_o", "{'b': 3, 'a': {2, 1}}", gold)
    assert problem_type("code_o").judge(problem("code_o", gold), given, None) is AttemptVerdict.CORRECT


@pytest.mark.parametrize("name", DIALECTS)
def test_an_output_of_more_than_400_characters_can_still_be_answered(name):
    gold = canonical(list(range(500)))
    verdict = problem_type("code_o").judge(problem("code_o", gold), answer(name, "code_o", gold, gold), None)
    assert verdict is AttemptVerdict.CORRECT


@pytest.mark.parametrize("name", DIALECTS)
def test_print_inside_an_input_string_is_only_text(name):
    draft = proposal(name, "code_o", PROGRAM, ["'print(1)'"])
    assert draft.inputs == ("('print(1)',)",)


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("text", [r"'a\nb'", "'''a\nb'''"])
def test_an_input_of_several_lines_is_one_value(name, text):
    assert proposal(name, "code_o", PROGRAM, [text]).inputs == (r"('a\nb',)",)


@pytest.mark.parametrize("name", DIALECTS)
def test_nested_functions_classes_and_banned_words_in_text_are_allowed_and_nothing_is_renamed(name):
    program = (
        "class A:\n def __init__(self, v):\n  self.v = v\n"
        "def f(x):\n # no import os, random or sys.exit here\n"
        " def g(y):\n  return A(y).v\n return ['subprocess', g(x)]"
    )
    draft = proposal(name, "code_o", program, ["1"])
    assert draft.program == program and refused(name, draft) is None


@pytest.mark.parametrize("name", DIALECTS)
def test_duplicate_inputs_of_code_f_are_trivial(name):
    count = dialect(name).rules.code_f_inputs_min
    inputs = [*map(str, range(count - 1)), " 0"]
    assert refused(name, proposal(name, "code_f", PROGRAM, inputs)) is ProposalVerdict.TRIVIAL


def test_an_input_block_before_the_program_is_not_taken_for_the_program():
    text = f"</think><answer>\n{fence('input', '1')}\n{fence('python', PROGRAM)}\n</answer>"
    assert dialect("instruct").parse_proposal("code_o", text).program == PROGRAM
