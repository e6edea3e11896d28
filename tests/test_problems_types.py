"""The problem types: what is refused unseen, what students see, how answers are judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from populora_core.problems.dialects.compact import CompactDialect
from populora_core.problems.model import Draft, Problem
from populora_core.problems.types import PROBLEM_TYPES, AnswerForm, TypeRules, problem_type
from populora_core.problems.types.rules import OneExample
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.sandbox.jobs import Job, JobResult
from populora_core.sandbox.literals import MAX_LITERAL_CHARS
from populora_core.sandbox.status import Status
from populora_core.support.errors import ProblemError

RULES = TypeRules(code_f_inputs_min=3, code_f_inputs_max=4, code_f_shown=2)
DOUBLE = "def f(x):\n return x*2"
INPUTS = ("(1,)", "(2,)", "(3,)")
TYPES = sorted(PROBLEM_TYPES)


def draft(
    name: str, program: str = DOUBLE, inputs: tuple[str, ...] | None = None, message: str = ""
) -> Draft:
    if inputs is None:
        inputs = INPUTS if name == "code_f" else INPUTS[:1]
    return Draft(name, program, inputs, message)


def refused(given: Draft) -> ProposalVerdict | None:
    return problem_type(given.problem_type).refuse(given, RULES)


def problem(name: str) -> Problem:
    given = draft(name)
    return given.problem("prob-1", tuple(["2", "4", "6"][: len(given.inputs)]))


def result(*outputs: str, status: Status = Status.OK) -> JobResult:
    return JobResult("job", status, outputs, "")


@pytest.mark.parametrize("name", TYPES)
def test_a_sound_draft_is_not_refused(name):
    assert refused(draft(name)) is None


@pytest.mark.parametrize(
    ("outputs", "verdict"),
    [
        (("2", "4", "6"), None),
        (("1", "4", "6"), None),
        (("1", "2", "3"), None),
        (("2", "2", "2"), ProposalVerdict.TRIVIAL),
    ],
)
@pytest.mark.parametrize("name", ["code_o", "code_i"])
def test_several_inputs_that_give_one_output_are_trivial(name, outputs, verdict):
    asked = replace(RULES, inputs=3)
    assert problem_type(name).refuse(draft(name, inputs=INPUTS), asked, outputs) is verdict


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("code_o", ()),
        ("code_o", INPUTS[:2]),
        ("code_i", INPUTS[:2]),
        ("code_f", INPUTS[:2]),
        ("code_f", INPUTS * 2),
    ],
)
def test_a_wrong_number_of_inputs_is_a_format_error(name, inputs):
    assert refused(draft(name, inputs=inputs)) is ProposalVerdict.FORMAT_ERROR


@pytest.mark.parametrize("name", TYPES)
def test_inputs_that_do_not_fit_the_signature_are_a_format_error(name):
    assert refused(draft(name, "def f(x, y):\n return x+y")) is ProposalVerdict.FORMAT_ERROR


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("program", ["def f(x):\n return 5", "def f(*x):\n y = 3\n return y"])
def test_a_program_that_ignores_its_arguments_is_trivial(name, program):
    assert refused(draft(name, program)) is ProposalVerdict.TRIVIAL


def test_inputs_equal_only_across_types_are_not_repeated():
    assert refused(draft("code_f", inputs=("(1,)", "(True,)", "(1.0,)"))) is None


@pytest.mark.parametrize("message", [DOUBLE, "Hint: def f(x): return x * 2 !", "def\nf(x):\n\n\treturn x*2"])
def test_a_message_that_contains_the_program_is_trivial(message):
    assert refused(draft("code_f", message=message)) is ProposalVerdict.TRIVIAL


def test_a_message_in_words_is_fine():
    assert refused(draft("code_f", message="It doubles, so f(x) grows fast.")) is None


@pytest.mark.parametrize("name", ["code_o", "code_i"])
def test_an_output_that_is_the_argument_is_left_to_its_chance(name):
    assert problem_type(name).refuse(draft(name), RULES, ("1",)) is None


@pytest.mark.parametrize(
    ("outputs", "trivial"), [(("7", "7", "7"), True), (("1", "2", "3"), True), (("1", "2", "6"), False)]
)
def test_code_f_with_constant_or_echoed_outputs_is_trivial(outputs, trivial):
    verdict = problem_type("code_f").refuse(draft("code_f"), RULES, outputs)
    assert verdict is (ProposalVerdict.TRIVIAL if trivial else None)


@pytest.mark.parametrize("name", TYPES)
def test_an_output_too_long_to_be_answered_is_refused_whole(name):
    outputs = tuple(repr("a" * (MAX_LITERAL_CHARS + index)) for index in range(len(draft(name).inputs)))
    assert problem_type(name).refuse(draft(name), RULES, outputs) is ProposalVerdict.OUTPUT_LIMIT


def test_a_student_of_code_f_sees_the_first_examples_only():
    assert problem_type("code_f").shown(problem("code_f"), RULES) == (0, 1)
    assert problem_type("code_o").shown(problem("code_o"), RULES) == (0,)


def test_code_o_needs_no_run_and_compares_type_for_type():
    kind = problem_type("code_o")
    assert kind.answer_job(problem("code_o"), "2", RULES) is None
    assert kind.judge(problem("code_o"), "2", None) is AttemptVerdict.CORRECT
    assert kind.judge(problem("code_o"), "2.0", None) is AttemptVerdict.WRONG


def test_code_i_runs_the_program_on_the_answer_and_takes_any_preimage():
    kind = problem_type("code_i")
    job = kind.answer_job(problem("code_i"), "(-1,)", RULES)
    assert job is not None and (job.program, job.inputs) == (DOUBLE, ("(-1,)",))
    assert kind.judge(problem("code_i"), "(-1,)", result("2")) is AttemptVerdict.CORRECT
    assert kind.judge(problem("code_i"), "(-1,)", result("-2")) is AttemptVerdict.WRONG


def test_code_f_runs_the_answer_on_hidden_examples_too():
    kind = problem_type("code_f")
    answer = "def f(x):\n return x+x"
    job = kind.answer_job(problem("code_f"), answer, RULES)
    assert job is not None and (job.program, job.inputs) == (answer, INPUTS)
    assert kind.judge(problem("code_f"), answer, result("2", "4", "6")) is AttemptVerdict.CORRECT
    assert kind.judge(problem("code_f"), answer, result("2", "4", "5")) is AttemptVerdict.WRONG
    assert kind.judge(problem("code_f"), answer, result("2", "4")) is AttemptVerdict.WRONG


@pytest.mark.parametrize("name", ["code_i", "code_f"])
@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (Status.ERROR, AttemptVerdict.RUNTIME_ERROR),
        (Status.FORBIDDEN, AttemptVerdict.FORBIDDEN),
        (Status.TIMEOUT, AttemptVerdict.TIMEOUT),
        (Status.NOT_PLAIN_DATA, AttemptVerdict.NOT_PLAIN_DATA),
        (Status.INFRASTRUCTURE, AttemptVerdict.INFRASTRUCTURE),
    ],
)
def test_what_the_sandbox_found_is_the_verdict(name, status, verdict):
    assert problem_type(name).judge(problem(name), "(1,)", result(status=status)) is verdict


@pytest.mark.parametrize("name", ["code_i", "code_f"])
def test_judging_a_run_answer_without_its_result_is_an_error(name):
    with pytest.raises(ProblemError, match="without its result"):
        problem_type(name).judge(problem(name), "(1,)", None)


def test_jobs_of_different_answers_have_different_names():
    kind = problem_type("code_i")
    jobs = [kind.answer_job(problem("code_i"), answer, RULES) for answer in ("(1,)", "(2,)", "(1,)")]
    names = [job.job_id for job in jobs if job is not None]
    assert names[0] != names[1] and names[0] == names[2]


class Parity(OneExample):
    """A toy type: tell whether the output is even."""

    answer_form = AnswerForm.OUTPUT

    def answer_job(self, problem: Problem, answer: str, rules: TypeRules) -> Job | None:
        return None

    def judge(self, problem: Problem, answer: str, result: JobResult | None) -> AttemptVerdict:
        even = str(int(problem.outputs[0]) % 2 == 0)
        return AttemptVerdict.CORRECT if answer == even else AttemptVerdict.WRONG


def test_a_new_type_needs_one_class_and_its_templates(monkeypatch, tmp_path):
    monkeypatch.setitem(PROBLEM_TYPES, "parity", Parity())
    (tmp_path / "propose_parity.txt").write_text("<po>$references<new>\n")
    (tmp_path / "solve_parity.txt").write_text("$program$inputs even?\n")
    dialect = CompactDialect(tmp_path)

    proposed = dialect.parse_proposal("parity", DOUBLE + "\n#3")
    assert problem_type("parity").refuse(proposed, dialect.rules) is None
    known = proposed.problem("prob-1", ("6",))
    assert dialect.solve_prompt(known) == DOUBLE + "\n#3 even?"
    answer = dialect.parse_answer(known, "\n=True")
    assert problem_type("parity").judge(known, answer, None) is AttemptVerdict.CORRECT
