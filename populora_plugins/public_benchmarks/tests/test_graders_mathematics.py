"""Mathematics is graded as a person would, except where README.md says otherwise, and safely."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from benchmark_rows import ROWS
from conftest import alive, needs, ran, wait_for

from populora_core.benchmarks.benchmark import ItemScore, Response, benchmark
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.support.errors import BenchmarkError
from populora_core.support.shipped import REPOSITORY
from populora_plugins.public_benchmarks import math_judge
from populora_plugins.public_benchmarks.math_judge import Comparison, compare

pytestmark = needs("math_verify", "evaluation")

PAGE = REPOSITORY / "populora_plugins" / "public_benchmarks" / "README.md"
PAIRS = [
    json.loads(line) for line in (REPOSITORY / "tests" / "data" / "math_pairs.jsonl").read_text().splitlines()
]
BENCHMARKS = ("aime24", "aime25", "amc23", "math500", "minerva", "gsm8k", "olympiadbench")
TOWER = "9^{9^{9^{9^9}}}"


def grade(name: str, *answers: tuple[dict[str, Any], str]) -> list[ItemScore]:
    """Scores of responses to rows like the fixture's first, with some columns replaced."""
    measured = benchmark(name)
    items = [measured.load([{**ROWS[name][0], **row}])[0] for row, _ in answers]
    return measured.grade(items, [Response(text) for _, text in answers], "instruct", None)  # type: ignore[arg-type]


@pytest.mark.thorough
def test_pairs_are_judged_by_their_truth_but_for_those_that_the_page_lists() -> None:
    listed = set(re.findall(r"^\| `(\w+-\d+)` \|", PAGE.read_text(), re.MULTILINE))
    misjudged = set()
    for name in BENCHMARKS:
        pairs = [pair for pair in PAIRS if pair["benchmark"] == name]
        scores = grade(name, *((pair["row"], pair["response"]) for pair in pairs))
        for pair, score in zip(pairs, scores, strict=True):
            assert score.correct is not None, pair
            if score.correct is not pair["correct"]:
                misjudged.add(pair["id"])
    assert misjudged == listed
    assert len(misjudged) <= 0.05 * len(PAIRS)


@pytest.mark.thorough
def test_no_answer_is_badly_formatted_and_a_monstrous_one_takes_too_long() -> None:
    scores = grade("math500", ({}, "I give up."), ({}, f"\\boxed{{{TOWER}}}"), ({}, "\\boxed{3/4}"))
    assert [score.verdict for score in scores] == [
        AttemptVerdict.FORMAT_ERROR,
        AttemptVerdict.TIMEOUT,
        AttemptVerdict.CORRECT,
    ]
    assert [score.correct for score in scores] == [False, False, True]


def test_a_number_that_python_does_not_write_out_is_wrong() -> None:
    (score,) = grade("math500", ({"answer": "2516_8"}, rf"\boxed{{1{'f' * 4000}_{{16}}}}"))
    assert score.verdict is AttemptVerdict.WRONG


def test_alike_answers_are_one_vote() -> None:
    texts = [
        "\\boxed{\\frac{3}{4}}",
        "\\boxed{0.75}",
        "\\boxed{6/8}",
        "\\boxed{\\text{Red}}",
        "\\boxed{red}",
        "?",
    ]
    votes = [score.answer for score in grade("math500", *(({}, text) for text in texts))]
    assert votes == ["3/4", "3/4", "3/4", "red", "red", None]


def test_an_equation_is_a_vote_for_what_it_comes_to() -> None:
    texts = (
        "9*2=18",
        "x=18",
        "18=x",
        "3*4=12",
        "3*5=18",
        "18=3*5",
        "x+y=18",
        "y=2x+3",
        "2x+3=y",
        "3*4=6*2=12",
    )
    votes = [score.answer for score in grade("math500", *(({}, f"\\boxed{{{text}}}") for text in texts))]
    assert votes[:7] == ["18", "18", "18", "12", "18", "15", "Eq(x + y, 18)"]
    assert votes[7] == votes[8] != "2*x + 3"
    assert votes[9] == "3*4=6*2=12"


def test_rounding_to_six_decimals_makes_no_small_numbers_equal() -> None:
    answers = ["2e-9", "1e-9", "1.0000000001e-9", "0"]
    scores = grade("minerva", *(({"answer": "1e-9"}, f"\\boxed{{{answer}}}") for answer in answers))
    assert [score.correct for score in scores] == [False, True, True, False]


OLYMPIAD = "olympiadbench"
BESIDE = [  # benchmark, published, right, wrong
    ("aime25", "1000000000000", "10^{12}", "1000000000001"),
    (OLYMPIAD, "2^{101}-1", "2535301200456458802993406410751", "2^{101}"),
    (OLYMPIAD, "20!", "2432902008176640000", "20!+1"),
    (OLYMPIAD, r"\binom{60}{30}", "118264581564861424", r"\binom{60}{30}-1"),
    (OLYMPIAD, r"1-\frac{1}{2^{50}}", r"\frac{2^{50}-1}{2^{50}}", "1"),
    (OLYMPIAD, r"\frac{1}{10}+\frac{1}{10^{13}}", r"\frac{1000000000001}{10^{13}}", r"\frac{1}{10}"),
    (OLYMPIAD, r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}", r"\sqrt{5+2\sqrt{6}}+10^{-20}"),
    (OLYMPIAD, "$4 x y$", "4xy", "4"),
    (OLYMPIAD, "$2 a b$", "2ab", "2 c d"),
    (OLYMPIAD, r"$2 \pi$", "2 pi", "2"),
    ("minerva", "2 m v", "2mv", "2"),
    ("minerva", "3 k T", "3kT", "3kt"),
    ("minerva", "3e8", r"\frac{6e8}{2}", r"\frac{8e8}{2}"),
    ("minerva", "3e8", r"3e{8}", r"3e{9}"),
    ("aime25", "12", "12 km", "12 a b c"),
    (OLYMPIAD, "R-r", "-r+R", "r-R"),
    (OLYMPIAD, "(R-r)", "(-r+R)", "(r-R)"),
    (OLYMPIAD, "$4 xy$", "4 yx", "4 ab"),
    (OLYMPIAD, r"\frac{R}{r}", "R/r", "1"),
    (OLYMPIAD, "A_1-a_1", "-a_1+A_1", "0"),
    ("minerva", r"\frac{M}{M+m}", r"\frac{M}{m+M}", r"\frac{1}{2}"),
    ("minerva", r"\Delta x", r"x\Delta", r"\delta x"),
    ("minerva", r"\Omega", r"\Omega", r"\omega"),
    (OLYMPIAD, "X=2", "x=2", "X=3"),
    (OLYMPIAD, "R=2r", "R = r+r", "R=2R"),
    ("math500", r"\text{(C)}", r"\text{(c)}", r"\text{(d)}"),
    ("math500", r"\text{Evelyn}", r"\text{evelyn}", r"\text{Eve}"),
    ("math500", r"\frac{1}{2}", "½", "⅓"),
    ("math500", r"\sqrt{3}", "√3", "√2"),
    ("math500", r"\infty", "∞", "-∞"),
    ("math500", "x^2", "x²", "x³"),
    ("math500", r"30^\circ", "30°", "31°"),
    ("math500", r"-\frac{1}{2}", "–1/2", "1/2"),
    ("math500", "(1,2)", "（1，2）", "（1，3）"),
    ("math500", "5", "\u200b5", "\u200b6"),
    ("gsm8k", "#### 18", "£18", "£19"),
    ("gsm8k", "#### 18", "18€", "1.8€"),
    ("gsm8k", "#### 29", "29 km/h", "2.9 km/h"),
    ("gsm8k", "#### 29", r"\text{\$}29", r"\text{\$}28"),
    ("gsm8k", "#### 29", r"\approx 29", r"\approx 28"),
    ("gsm8k", "#### 1200", r"1\,200", r"1\,20"),
    ("gsm8k", "#### 1200", "1 200", "1 201"),
    (
        "minerva",
        r"\frac{1}{3} E_{1}+\frac{2}{3} E_{2}",
        r"\frac{E_1+2 E_2}{3}",
        r"\frac{1}{3} E_{1}+\frac{2}{3} E_{3}",
    ),
    ("minerva", "I_1 R", "R I_{1}", "I_2 R"),
    ("minerva", r"\gamma_1 v", r"v \gamma_{1}", r"\gamma_2 v"),
    ("math500", "40_9", "36_{10}", "40_{10}"),
    ("math500", "40_9", "36_10", "40_10"),
    (OLYMPIAD, "a_{11}", "a_{11}", "a_{12}"),
    ("math500", "2516_8", "2516_{8}", "2516_9"),
]


@pytest.mark.parametrize("name", sorted({case[0] for case in BESIDE}))
def test_the_right_value_is_told_from_the_wrong_one_beside_it(name: str) -> None:
    cases = [case[1:] for case in BESIDE if case[0] == name]
    column = "final_answer" if name == OLYMPIAD else "answer"
    answers = [
        ({column: [gold] if name == OLYMPIAD else gold}, f"\\boxed{{{answer}}}")
        for gold, *both in cases
        for answer in both
    ]
    judged = [score.correct for score in grade(name, *answers)]
    assert list(zip(answers, judged, strict=True)) == list(
        zip(answers, [True, False] * len(cases), strict=True)
    )


def test_a_base_model_is_not_judged_by_the_problem_that_it_asks_itself_next() -> None:
    measured = benchmark("gsm8k")
    (item,) = measured.load(ROWS["gsm8k"][:1])
    for begun in ("\n\nProblem:", "<|endoftext|>Human:"):
        text = f"It is \\boxed{{18}}.{begun}\nAnother?\n\nSolution:\n\\boxed{{5}}"
        completed, chatted = (
            measured.grade([item], [Response(text)], family, None)[0]  # type: ignore[arg-type]
            for family in ("compact", "instruct")
        )
        assert completed.correct and not chatted.correct


# The process


@pytest.mark.thorough
def test_answers_are_compared_from_any_thread() -> None:
    found = []
    comparisons = [Comparison("1/2", "0.5"), Comparison("1", TOWER), Comparison("x", "y")]
    thread = threading.Thread(target=lambda: found.extend(compare(comparisons, cpu_seconds=2.0)))
    thread.start()
    thread.join()
    assert [finding.verdict for finding in found] == ["correct", "timeout", "wrong"]


def test_the_process_ends_with_whoever_started_it() -> None:
    code = (
        "from populora_plugins.public_benchmarks.math_judge import *\n"
        f"compare([Comparison('1', {TOWER!r} + '+' + str(n)) for n in range(1000)])"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY)
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    wait_for(lambda: children.read_text().split())
    (worker,) = map(int, children.read_text().split())
    parent.kill()
    parent.wait()
    wait_for(lambda: not alive(worker))


WORKER_THAT_DIES = """
import os, sys
print("ready", flush=True)
for line in sys.stdin:
    if '"bad"' in line or ('"once"' in line and not os.path.exists(MARKER)):
        open(MARKER, "w").close()
        os.kill(os.getpid(), 9)
    print('{"verdict": "correct", "canonical": ""}', flush=True)
"""


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(f"MARKER = {str(tmp_path / 'marker')!r}\n{WORKER_THAT_DIES}")
    monkeypatch.setattr(math_judge, "WORKER", worker)


def test_a_process_that_is_killed_is_replaced(dying: None) -> None:
    found = compare([Comparison("1", answer) for answer in ("1", "once", "2")])
    assert [finding.verdict for finding in found] == ["correct"] * 3


def test_a_process_that_is_lost_again_and_again_is_infrastructure_and_no_wrong_answer(dying: None) -> None:
    found = compare([Comparison("1", answer) for answer in ("1", "bad", "2", "bad")])
    assert [finding.verdict for finding in found] == [
        "correct",
        "infrastructure",
        "correct",
        "infrastructure",
    ]
    (score,) = grade("gsm8k", ({}, "\\boxed{bad}"))
    assert score.correct is None and score.verdict is AttemptVerdict.INFRASTRUCTURE


def test_a_process_that_does_not_start_is_an_error_with_its_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(math_judge, "WORKER", tmp_path / "absent.py")
    with pytest.raises(BenchmarkError, match="does not start"):
        compare([Comparison("1", "1")])


@pytest.mark.thorough
def test_too_much_memory_is_found_and_the_process_goes_on() -> None:
    comparisons = [Comparison("1", "1"), Comparison("2", "2^{2^{33}}"), Comparison("3", "3")]
    found = compare(comparisons, cpu_seconds=60, memory_bytes=300 << 20)
    assert [finding.verdict == "correct" for finding in found] == [True, False, True]


def test_without_the_library_the_error_names_the_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    measured = benchmark("gsm8k")
    monkeypatch.setattr("importlib.metadata.version", missing)
    for ask in (lambda: compare([]), lambda: measured.template("instruct")):  # the latter before sampling
        with pytest.raises(BenchmarkError, match=re.escape("pip install -e '.[evaluation]'")):
            ask()


def test_the_versions_of_the_library_are_recorded() -> None:
    told = benchmark("gsm8k").template("instruct")
    for package in ("math-verify", "latex2sympy2-extended"):
        assert f"{package} {version(package)}" in told


# Nothing is evaluated


def in_worker(code: str) -> str:
    """What code prints that runs in the worker's module after it has been disarmed."""
    program = f"import sys; sys.path.insert(0, {str(math_judge.WORKER.parent)!r})\nimport math_worker\n{code}"
    done = ran([sys.executable, "-P", "-c", program], check=True)
    return done.stdout


HOSTILE = [
    "__import__('os').system('touch FILE')",
    "\\text{__import__('os').system('touch FILE')}",
    "\\operatorname{__import__}('os').system('touch FILE')",
    "x_{__import__('os').system('touch FILE')}",
    "1; __import__('os').system('touch FILE')",
    "\\sqrt{open('FILE', 'w')}",
    "\\gcd(open('FILE','w'), 2)",
    "\\log_{open('FILE','w')} 2",
    "lambda: open('FILE', 'w')",
    "\\begin{pmatrix} open('FILE','w') \\\\ 1 \\end{pmatrix}",
]


def test_hostile_answers_run_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    texts = [hostile.replace("FILE", str(marker)) for hostile in HOSTILE]
    found = compare(
        [Comparison(gold, answer) for text in texts for gold, answer in (("1", text), (text, "1"))]
    )
    assert not marker.exists()
    assert AttemptVerdict.INFRASTRUCTURE not in {finding.verdict for finding in found}


def test_sympy_would_evaluate_a_number_and_the_worker_does_not() -> None:
    watch = (
        "import sympy, sympy.parsing.sympy_parser as parser\n"
        "kept = parser.eval_expr\n"
        "def spy(code, *rest):\n    print('evaluated'); return kept(code, *rest)\n"
        "parser.eval_expr = spy\n"
    )
    compare = "print(math_worker.compare('12', '12', None)['verdict'])"
    assert set(in_worker(watch + compare).split()) == {"evaluated", "correct"}
    assert in_worker(watch + "math_worker.disarm()\n" + compare).split() == ["correct"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "attempt",
    [
        "sympy.sympify('x + 1')",
        "sympy.parse_expr('1 + 1')",
        "eval('1 + 1')",
        "exec('x = 1')",
        "compile('1', '<s>', 'eval')",
    ],
)
def test_no_text_becomes_code_in_the_worker(attempt: str) -> None:
    code = f"import sympy\nmath_worker.disarm()\ntry:\n    {attempt}\nexcept sympy.SympifyError:\n    print('refused')"
    assert in_worker(code).strip() == "refused"
