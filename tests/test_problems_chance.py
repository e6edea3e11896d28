"""Chance: how often a blind guess solves a problem, on problems whose chance is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from populora_core.problems.chance import MOST_CHARS, STOCK, beginnings, blind_input, chances
from populora_core.problems.grading import RunJobs
from populora_core.problems.model import Problem
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Job, JobResult, Limits
from populora_core.sandbox.literals import parse_arguments
from populora_core.sandbox.policy import refuse_program
from populora_core.sandbox.status import Status
from populora_core.sandbox.verify import verify_or_raise

pytestmark = pytest.mark.sandbox

NEAR = 0.35  # of twenty guesses at a coin


@pytest.fixture(scope="module")
def run_jobs() -> Iterator[RunJobs]:
    with open_sandbox("auto", Limits(), workers=1) as sandbox:
        yield lambda jobs: verify_or_raise(sandbox, jobs, determinism=False)


def problem(
    kind: str, body: str, inputs: Sequence[str], outputs: Sequence[str], arguments: str = "a"
) -> Problem:
    return Problem(
        f"{kind} {body}", kind, f"def f({arguments}):\n return {body}", tuple(inputs), tuple(outputs), ""
    )


def alone(run_jobs: RunJobs, asked: Problem) -> float:
    (chance,) = chances([asked], run_jobs, [np.random.default_rng(0)])
    assert chance is not None
    return chance


@pytest.mark.parametrize("kind", ["code_o", "code_i"])
def test_a_constant_is_always_guessed(run_jobs: RunJobs, kind: str) -> None:
    assert alone(run_jobs, problem(kind, "a*0+7", ["(3,)"], ["7"])) == 1.0


@pytest.mark.parametrize("kind", ["code_o", "code_i"])
@pytest.mark.parametrize("body", ["a>0", "a%2"])
def test_a_boolean_and_a_parity_are_guessed_every_other_time(run_jobs: RunJobs, kind: str, body: str) -> None:
    output = "True" if ">" in body else "1"
    assert alone(run_jobs, problem(kind, body, ["(3,)"], [output])) == pytest.approx(0.5, abs=NEAR)


@pytest.mark.parametrize("kind", ["code_o", "code_i"])
def test_a_free_value_is_hardly_guessed(run_jobs: RunJobs, kind: str) -> None:
    asked = problem(kind, "[b*a for b in range(5)]", ["([4, 1, 2],)"], ["[[], [4, 1, 2]]"])
    assert alone(run_jobs, asked) == 0.0
    assert alone(run_jobs, problem(kind, "a*a*a+3*a", ["(777,)"], ["469099764"])) == 0.0


@pytest.mark.parametrize("kind", ["code_o", "code_i"])
def test_of_several_outputs_each_must_be_guessed(run_jobs: RunJobs, kind: str) -> None:
    once = [
        alone(run_jobs, problem(kind, "a%2", [given], [output]))
        for given, output in (("(3,)", "1"), ("(4,)", "0"))
    ]
    both = alone(run_jobs, problem(kind, "a%2", ["(3,)", "(4,)"], ["1", "0"]))
    assert both == pytest.approx(0.25, abs=0.1) and both < min(once)


@pytest.mark.parametrize("kind", ["code_o", "code_i"])
@pytest.mark.parametrize(
    ("body", "given", "output", "least", "most"),
    [
        ("a", "([1, 2],)", "[1, 2]", 1.0, 1.0),
        ("sorted(a)", "([1, 2, 4],)", "[1, 2, 4]", 0.05, 0.7),
        ("a.replace('x','y')", "('abc',)", "'abc'", 0.3, 0.95),
        ("{k:max(v,0) for k,v in a.items()}", "({'a': 1, 'b': 2},)", "{'a': 1, 'b': 2}", 0.05, 0.8),
        ("a+[][a!=[1]:]", "([1],)", "[1]", 1.0, 1.0),
        ("[a[0]]+[][a!=[1]]", "([1],)", "[1]", 1.0, 1.0),
    ],
    ids=["identity", "order", "letters that are looked for", "dictionaries", "long way", "others fail"],
)
def test_who_copies_the_argument_is_right_as_often_as_the_program_gives_it_back(
    run_jobs: RunJobs, kind: str, body: str, given: str, output: str, least: float, most: float
) -> None:
    assert least <= alone(run_jobs, problem(kind, body, [given], [output])) <= most


def test_guesses_on_which_a_program_fails_are_missed(run_jobs: RunJobs) -> None:
    asked = problem("code_i", "[1, 2, 3][a]", ["(1,)"], ["2"])
    assert 0.0 < alone(run_jobs, asked) < NEAR, "1 and -2 of -10 to 10"


DIGITS = "def f(n):\n s=0\n while n:\n  s+=1\n  n//=10\n return s"  # a negative number has no end
ROOT = "def f(n):\n return 1 if n>=0 else n**.5"  # complex numbers are no plain data
SAYS_FAILED = "def f(a):\n return 'failed' if a==3 else 1//(a*0)"
CALLS_ITSELF = (
    "def f(n):\n if n<-9:\n  raise ValueError\n try:\n  return f(n-1)\n except ValueError:\n  return 7"
)


@pytest.mark.parametrize(
    ("program", "given", "output", "least", "most"),
    [
        (DIGITS, "(7,)", "1", 0.2, 0.8),
        (ROOT, "(7,)", "1", 0.2, 0.8),
        (SAYS_FAILED, "(3,)", "'failed'", 0.0, 0.2),
        (CALLS_ITSELF, "(3,)", "7", 0.8, 1.0),
    ],
    ids=["never ends", "no plain data", "a value like ours", "calls itself"],
)
def test_a_guess_that_ends_badly_is_missed_alone(
    run_jobs: RunJobs, program: str, given: str, output: str, least: float, most: float
) -> None:
    asked = Problem("guessed", "code_i", program, (given,), (output,), message="")
    assert least <= alone(run_jobs, asked) <= most


def test_a_functions_chance_is_its_own_whatever_is_asked_beside_it(run_jobs: RunJobs) -> None:
    asked = problem("code_f", "a+a", ["('x',)", "('yz',)"], ["'xx'", "'yzyz'"])
    texts = ["z" * 6000, "z" * 5001]
    long = problem("code_f", "a*2", [f"({text!r},)" for text in texts], [repr(text * 2) for text in texts])
    found = chances([asked, long], run_jobs, [np.random.default_rng(0)] * 2)
    assert found[0] == alone(run_jobs, asked) == 2 / len(STOCK[1])


def test_copies_of_a_problem_lend_their_inputs_once(run_jobs: RunJobs) -> None:
    copied = [problem("code_i", f"a+{number}", [f"({-number - 20},)"], ["-20"]) for number in range(8)] * 3
    twice = [problem("code_i", f"a*{number}", ["(50,)"], ["0"]) for number in (2, 3)]
    asked = problem(
        "code_i", "a in (50,60)", ["(60,)"], ["True"]
    )  # it is right of the input that two problems share
    found = chances([*copied, *twice, asked], run_jobs, [np.random.default_rng(0)] * 27)
    assert found[-1] == 1 / 20


def test_an_output_that_other_problems_have_is_guessed_as_often(run_jobs: RunJobs) -> None:
    rare = problem("code_o", "a**3", ["(777,)"], ["469097433"])
    common = [problem("code_o", f"'yes'*(a>{bound})", ["(90000,)"], ["'yes'"]) for bound in range(5000, 5004)]
    found = chances([rare, *common], run_jobs, [np.random.default_rng(0)] * 5)
    assert found == [0.0, 0.75, 0.75, 0.75, 0.75]


def test_an_input_that_other_problems_take_is_guessed_as_often(run_jobs: RunJobs) -> None:
    asked = [problem("code_i", f"a*a*a+{number}", ["(50,)"], [str(125000 + number)]) for number in range(8)]
    assert chances(asked, run_jobs, [np.random.default_rng(0)] * 8) == [1.0] * 8
    others = [problem("code_i", f"a*a*a-{n}", [f"({n + 60},)"], [str((n + 60) ** 3 - n)]) for n in range(7)]
    found = chances([*asked, *others], run_jobs, [np.random.default_rng(0)] * 15)
    assert found == [0.5] * 8 + [0.0] * 7


def test_who_stops_early_is_right_where_the_rest_undoes_itself(run_jobs: RunJobs) -> None:
    program = "def f(a):\n a=a*a\n a=a+1\n a=a-3\n a=a+2\n return a"
    asked = Problem("undone", "code_o", program, ("(777,)",), ("603729",), message="")
    assert alone(run_jobs, asked) == 1 / 4, "right before the second statement, and before no other"
    asked = replace(asked, program=program.replace("+2", "+4"), outputs=("603731",))
    assert alone(run_jobs, asked) == 0.0


def test_a_program_stops_before_each_statement_and_returns() -> None:
    program = "def g(a):\n return a\ndef f(a):\n b=1\n for _ in a:\n  b=b*2\n return b"
    assert [text.split("def f(a):\n")[1] for text in beginnings(program)] == [
        " pass\n return b",
        " b=1\n pass\n return b",
    ]
    assert list(beginnings("def f(a):\n print(a)")) == [], "it returns nowhere"


def test_no_more_beginnings_are_made_than_are_run() -> None:
    lines = [f" a+={number}\n" for number in range(1000)]
    made = list(beginnings(f"def f(a):\n{''.join(lines)} return a"))
    assert [text.count("a+=") for text in made] == list(range(0, 1000, 50)), "spread over the program"


def test_who_stops_early_goes_to_each_return_wherever_it_stands() -> None:
    program = "def f(a):\n b=1\n if a:\n  b=2; c=3\n  return b\n b=4\n return b"
    assert [text.split("def f(a):\n")[1] for text in beginnings(program, 1)] == [
        " pass\n if a:\n  pass\n  return b\n b=4\n return b",
        " b=1\n if a:\n  pass\n  return b\n b=4\n return b",
        " b=1\n if a:\n  b=2; pass\n  return b\n b=4\n return b",
    ]
    assert len(list(beginnings(program))) == 3


HIDDEN = "def f(a):\n if True:\n  a=a*a\n  a=a+1\n  a=a-3\n  a=a+2\n  return a"
TELLS = "def f(a):\n try:\n  populora_made\n  return 0\n except NameError:\n  return a>0"
LOOKS = "def f(a):\n if 'locals' in str(f):\n  return 0\n return a>0"
COUNTS = "def f(a,seen=[]):\n seen.append(a)\n if len(seen)>1:\n  return seen\n return a*a%7%2"
COUNTS_OTHERS = "n=0\ndef f(a):\n global n\n n+=1\n return a*a%7%2 if n<2 or a==777 else [a]"
COUNTS_ELSEWHERE = (
    "import math\nmath.n=0\ndef f(a):\n math.n+=1\n return a*a%7%2 if math.n<2 or a==777 else [a]"
)


@pytest.mark.parametrize(
    ("kind", "program", "output", "least"),
    [
        ("code_o", HIDDEN, "603729", 0.25),
        ("code_o", TELLS, "True", 0.2),
        ("code_o", LOOKS, "True", 0.2),
        ("code_i", COUNTS, "0", 0.2),
        ("code_i", COUNTS_OTHERS, "0", 0.2),
        ("code_i", COUNTS_ELSEWHERE, "0", 0.2),
    ],
    ids=[
        "no return at the end",
        "by the names of the measure",
        "by where it is defined",
        "by counting its calls",
        "by counting the calls of others",
        "by counting in a module",
    ],
)
def test_a_program_cannot_tell_its_chance_what_to_say(
    run_jobs: RunJobs, kind: str, program: str, output: str, least: float
) -> None:
    assert alone(run_jobs, Problem("told", kind, program, ("(777,)",), (output,), "")) >= least


def test_a_blind_input_of_lists_in_lists_is_within_bounds() -> None:
    for depth in range(1, 48):
        text = "(" + "[" * depth + "1" + "]" * depth + ",)"
        for seed in range(5):
            assert len(blind_input(text, np.random.default_rng(seed))) < 3 * MOST_CHARS


LINES = "".join(f" b{number}=1\n" for number in range(40))
AT_THE_END = f"def f(a):\n n=0\n while n<1:\n  n+=1\n b=1\n{LINES} d=1\n while d<2: d=d+b0\n return a*0+7"
AT_EACH_RETURN = (
    "def f(a):\n n=0\n while a:\n" + LINES.replace(" b", "  b") + "  n=1\n"
    "  if n and a==1: return 1\n  if n and a==2: return 2\n  if n and a==777: return 7"
)


@pytest.mark.thorough
@pytest.mark.parametrize(("program", "limits"), [(AT_THE_END, 10), (AT_EACH_RETURN, 26)])
def test_endless_beginnings_take_a_few_time_limits(program: str, limits: int) -> None:
    asked = Problem("slow", "code_o", program, ("(777,)",), ("7",), "")
    spent = 0.0
    with open_sandbox("auto", Limits(cpu_seconds=0.5), workers=1) as sandbox:

        def timed(jobs: Sequence[Job]) -> list[JobResult]:
            nonlocal spent
            found = verify_or_raise(sandbox, jobs, determinism=False, alone=False)
            spent += sum(result.cpu_seconds for result in found)
            return found

        alone(timed, asked)
    assert spent < 0.5 * limits


def test_copies_of_a_problem_make_it_no_easier(run_jobs: RunJobs) -> None:
    asked = problem("code_o", "a**3", ["(777,)"], ["469097433"])
    other = problem("code_o", "a**3+1", ["(777,)"], ["469097434"])
    found = chances([asked, asked, other], run_jobs, [np.random.default_rng(0)] * 3)
    assert found[0] < 0.1


def test_an_input_of_another_problem_is_a_guess(run_jobs: RunJobs) -> None:
    asked = problem("code_i", "a>5000", ["(9999,)"], ["True"])
    other = problem("code_o", "a+1", ["(7777,)"], ["7778"])
    assert alone(run_jobs, asked) == 0.0
    assert chances([asked, other], run_jobs, [np.random.default_rng(0)] * 2)[0] == 1 / 20


def test_a_function_is_guessed_by_short_ones(run_jobs: RunJobs) -> None:
    short = problem("code_f", "a*2", ["(1,)", "(3,)"], ["2", "6"])
    long = problem("code_f", "7*a-3", ["(1,)", "(3,)"], ["4", "18"])
    two = problem("code_f", "b+a", ["(1, 5)", "(3, 2)"], ["6", "5"], "a,b")
    three = problem("code_f", "a+b+c", ["(1, 5, 1)"], ["7"], "a,b,c")
    right = [2 / len(STOCK[1]), 0.0, 1 / len(STOCK[2]), 0.0]
    assert chances([short, long, two, three], run_jobs, [np.random.default_rng(0)] * 4) == right


@pytest.mark.parametrize("kind", ["code_o", "code_i", "code_f"])
def test_no_one_knows_the_chance_of_whom_infrastructure_lost_a_guess(run_jobs: RunJobs, kind: str) -> None:
    lost, kept = (
        problem(kind, body, ["(1,)", "(3,)"][: 1 + (kind == "code_f")], outputs)
        for body, outputs in (("7*a+3", ["10", "24"]), ("5*a+2", ["7", "17"]))
    )

    def losing(jobs: Sequence[Job]) -> list[JobResult]:
        return [
            JobResult(job.job_id, Status.INFRASTRUCTURE)
            if job.job_id.startswith((lost.problem_id, "stock"))
            else result
            for job, result in zip(jobs, run_jobs(jobs), strict=True)
        ]

    whole, apart = (chances([lost, kept], run, [np.random.default_rng(0)] * 2) for run in (run_jobs, losing))
    assert apart == [None, whole[1]]


def test_the_stock_can_be_run() -> None:
    for programs in STOCK.values():
        assert all(refuse_program(program) is None for program in programs)


def test_a_blind_input_has_the_same_types() -> None:
    text = "(3, True, 'abc', [1.5, 2.5], (1, 'x'), None)"
    for seed in range(20):
        drawn = parse_arguments(blind_input(text, np.random.default_rng(seed)))
        assert list(map(type, drawn)) == [int, bool, str, list, tuple, type(None)]
        assert all(isinstance(item, float) for item in drawn[3])


def test_equal_sources_give_equal_chances(run_jobs: RunJobs) -> None:
    asked = problem("code_o", "a%3", ["(4,)"], ["1"])
    assert alone(run_jobs, asked) == alone(run_jobs, asked)
