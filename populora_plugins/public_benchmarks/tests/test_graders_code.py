"""Programs are graded in a real sandbox: right ones pass, wrong and dishonest ones fail, a busy machine is no fault."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from benchmark_rows import (
    HUMANEVAL_PLUS,
    LIVECODEBENCH,
    MBPP_PLUS,
    ROWS,
    SOLUTIONS,
    Row,
    code_row,
    fenced,
    stdin,
)

from populora_core.benchmarks.benchmark import Item, ItemScore, Response, benchmark
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Job, JobResult, Sandbox
from populora_core.sandbox.status import Status
from populora_core.support.errors import SandboxUnavailable
from populora_plugins.public_benchmarks import evalplus, livecodebench
from populora_plugins.public_benchmarks.code_tests import code_limits, judge_time

pytestmark = pytest.mark.sandbox

CODE = ("humaneval_plus", "mbpp_plus", "livecodebench")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox("auto", code_limits(1.5), workers=2) as opened:
        yield opened


def grade(sandbox: Sandbox, name: str, *asked: tuple[Row, str], family: str = "instruct") -> list[ItemScore]:
    """Scores of completions of rows."""
    measured = benchmark(name)
    items = [measured.load([row])[0] for row, _ in asked]
    return measured.grade(items, [Response(text) for _, text in asked], family, sandbox)


def verdicts(scores: Sequence[ItemScore]) -> list[str]:
    return [score.verdict for score in scores]


@pytest.mark.parametrize("name", CODE)
def test_reference_solutions_pass(sandbox: Sandbox, name: str) -> None:
    scores = grade(sandbox, name, *zip(ROWS[name], map(fenced, SOLUTIONS[name]), strict=True))
    assert [(score.correct, score.verdict) for score in scores] == [(True, AttemptVerdict.CORRECT)] * len(
        ROWS[name]
    )


class Mutate(ast.NodeTransformer):
    """Spoils the first value that is returned, and whatever is printed."""

    def __init__(self) -> None:
        self.done = False

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if not self.done:
            self.done = True
            node.value = ast.Tuple([node.value or ast.Constant(None), ast.Constant("x")], ast.Load())
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "print":
            node.args.append(ast.Constant(1))
        return self.generic_visit(node)


@pytest.mark.parametrize("name", CODE)
def test_mutated_solutions_fail(sandbox: Sandbox, name: str) -> None:
    judged_by_presence = {"text_match_three"}  # any value that is not None is right there
    asked = [
        (row, fenced(ast.unparse(Mutate().visit(ast.parse(source)))))
        for row, source in zip(ROWS[name], SOLUTIONS[name], strict=True)
        if row.get("entry_point") not in judged_by_presence
    ]
    # What is spoilt first in find_zero's program is the helper that its search needs.
    assert [score.correct for score in grade(sandbox, name, *asked)] == [False] * len(asked)


DISHONEST: dict[str, tuple[str, AttemptVerdict]] = {
    "exits early": ("import sys\nsys.exit(0)", AttemptVerdict.RUNTIME_ERROR),
    "exits in the call": ("def last_place(*_):\n    raise SystemExit(0)", AttemptVerdict.RUNTIME_ERROR),
    "ends its process": ("import os\ndef last_place(*_):\n    os._exit(0)", AttemptVerdict.RUNTIME_ERROR),
    "loops": ("def last_place(*_):\n    while True:\n        pass", AttemptVerdict.TIMEOUT),
    "loops before it is called": (
        "while True:\n    limit = 1\ndef last_place(*_):\n    return limit",
        AttemptVerdict.TIMEOUT,
    ),
    "prints without end": (
        "def last_place(*_):\n    while True:\n        print('x' * 10**6)",
        AttemptVerdict.OUTPUT_LIMIT,
    ),
    "equals everything": (
        "class Yes:\n    def __eq__(self, other):\n        return True\ndef last_place(*_):\n    return Yes()",
        AttemptVerdict.WRONG,
    ),
    "equals everything as a number": (
        "class Yes(int):\n    def __eq__(self, other):\n        return True\ndef last_place(*_):\n    return Yes(7)",
        AttemptVerdict.WRONG,
    ),
    "edits the tests": (
        "import sys, json\ndef last_place(items, value):\n    frame = sys._getframe(1)\n"
        "    frame.f_globals['_encode'] = lambda value: json.dumps(True)\n"
        "    frame.f_globals['_decode'] = lambda text: [[], 0]\n    return True",
        AttemptVerdict.WRONG,
    ),
    "answers for the runner": (
        "import sys\ndef last_place(items, value):\n    sys._getframe(1).f_globals['f'] = lambda _: 1\n    return 7",
        AttemptVerdict.WRONG,
    ),
    "answers no packed value": (
        "import sys\ndef last_place(items, value):\n"
        "    sys._getframe(1).f_globals['_encode'] = lambda value: 'correct'\n    return 7",
        AttemptVerdict.NOT_PLAIN_DATA,
    ),
    "does not parse": ("def last_place(:", AttemptVerdict.SYNTAX_ERROR),
    "defines something else": ("def first_place(*_):\n    return -1", AttemptVerdict.SYNTAX_ERROR),
}


@pytest.mark.thorough
def test_a_function_that_does_not_answer_fails(sandbox: Sandbox) -> None:
    row = next(row for row in MBPP_PLUS if row["entry_point"] == "last_place")
    scores = grade(sandbox, "mbpp_plus", *((row, fenced(program)) for program, _ in DISHONEST.values()))
    assert [score.correct for score in scores] == [False] * len(DISHONEST)
    found = dict(zip(DISHONEST, verdicts(scores), strict=True))
    expected = {kind: verdict for kind, (_, verdict) in DISHONEST.items()}
    for each in (found, expected):
        del each["defines something else"]  # taken for a body, it makes another program
    assert found == expected


@pytest.mark.parametrize(("name", "place"), [("humaneval_plus", 0), ("mbpp_plus", 0), ("livecodebench", 2)])
def test_what_a_file_does_when_it_is_run_is_not_done_where_a_function_is_called(
    sandbox: Sandbox, name: str, place: int
) -> None:
    main = "\n\nif __name__ == '__main__':\n    import doctest\n    doctest.testmod()\n"
    (score,) = grade(sandbox, name, (ROWS[name][place], fenced(SOLUTIONS[name][place] + main)))
    assert score.correct


STDIN: dict[str, tuple[str, AttemptVerdict]] = {
    "exits early": ("import sys\nsys.exit()\nprint('cba')", AttemptVerdict.WRONG),
    "ends its process": ("import os\nprint(input()[::-1])\nos._exit(0)", AttemptVerdict.RUNTIME_ERROR),
    "prints extra": ("print(input()[::-1])\nprint('done')", AttemptVerdict.WRONG),
    "prints extra on the line": ("print('Answer:', input()[::-1])", AttemptVerdict.WRONG),
    "loops": ("while True:\n    pass", AttemptVerdict.TIMEOUT),
    "waits for more input": ("print(input()[::-1])\ninput()", AttemptVerdict.RUNTIME_ERROR),
    "prints to another stream": ("import sys\nprint(input()[::-1], file=sys.stderr)", AttemptVerdict.WRONG),
    "knows the public test": ("print('cba')", AttemptVerdict.WRONG),
    "edits the tests": (
        "import sys\nframe = sys._getframe(1)\nframe.f_locals['text'] = ''\n"
        "frame.f_globals['f'] = lambda text: ''\nprint('cba')",
        AttemptVerdict.WRONG,
    ),
    "reads the host": ("print(open('/etc/passwd').read())", AttemptVerdict.RUNTIME_ERROR),
    "runs a command": ("import os\nos.system('id')\nprint('cba')", AttemptVerdict.WRONG),
    "does not parse": ("print(", AttemptVerdict.SYNTAX_ERROR),
}


@pytest.mark.thorough
def test_a_program_that_does_not_answer_fails(sandbox: Sandbox) -> None:
    asked = ((LIVECODEBENCH[1], fenced(program)) for program, _ in STDIN.values())
    scores = grade(sandbox, "livecodebench", *asked)
    found = {kind: (score.correct, score.verdict) for kind, score in zip(STDIN, scores, strict=True)}
    assert found == {kind: (False, verdict) for kind, (_, verdict) in STDIN.items()}


WAYS = {
    "input": "print(input()[::-1])",
    "exits when done": "print(input()[::-1])\nexit()",
    "read": "import sys\nprint(sys.stdin.read().rstrip('\\n')[::-1])",
    "lines": "import sys\nfor line in sys.stdin:\n    print(line.rstrip('\\n')[::-1])",
    "bytes": "import sys\ndata = sys.stdin.buffer.readline().decode().rstrip('\\n')\n"
    "sys.stdout.buffer.write(data[::-1].encode())",
    "open": "print(open(0).read().rstrip('\\n')[::-1])",
    "write": "import sys\nsys.stdout.write(sys.stdin.readline().rstrip('\\n')[::-1])",
    "main": "def main():\n    print(input()[::-1])\nif __name__ == '__main__':\n    main()",
    "thread": "import threading\ndef main():\n    print(input()[::-1])\nthreading.stack_size(1 << 26)\n"
    "thread = threading.Thread(target=main)\nthread.start()\nthread.join()",
    "recursion": "import sys\nsys.setrecursionlimit(10**6)\ndef down(n):\n    return n and down(n - 1)\ndown(20000)\n"
    "print(input()[::-1])",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass Text:\n    text: str\n"
    "print(Text(input()).text[::-1])",
    "dates": "import time\nfrom datetime import datetime\nassert time.strptime('3', '%d').tm_mday == 3\n"
    "assert datetime.strptime('03-11-2000', '%m-%d-%Y').day == 11\nprint(input()[::-1])",
    "imports of the benchmark": "print(''.join(deque(reversed(input()))))",
    "globals that last": "seen = globals().setdefault('seen', 0)\nassert seen == 0\nseen += 1\nprint(input()[::-1])",
}


def test_every_usual_way_to_read_and_write_works(sandbox: Sandbox) -> None:
    scores = grade(
        sandbox, "livecodebench", *((LIVECODEBENCH[1], fenced(program)) for program in WAYS.values())
    )
    assert dict(zip(WAYS, verdicts(scores), strict=True)) == dict.fromkeys(WAYS, AttemptVerdict.CORRECT)


def test_a_call_may_be_answered_by_a_function_instead_of_a_class(sandbox: Sandbox) -> None:
    bare = (
        "def pair(nums, target):\n    pairs = ((i, j) for j in range(len(nums)) for i in range(j))\n"
        "    return next(([i, j] for i, j in pairs if nums[i] + nums[j] == target), [])"
    )
    wrong = "class Solution:\n    def pair(self, nums, target):\n        return [0, 1]"
    scores = grade(
        sandbox, "livecodebench", (LIVECODEBENCH[2], fenced(bare)), (LIVECODEBENCH[2], fenced(wrong))
    )
    assert verdicts(scores) == [AttemptVerdict.CORRECT, AttemptVerdict.WRONG]
    assert scores[1].detail == "test 2 is wrong"


def test_the_program_is_read_from_the_completion(sandbox: Sandbox) -> None:
    row = HUMANEVAL_PLUS[1]
    body = "    return text if len(text) < 2 else text[-1] + text[1:-1] + text[0]"
    whole = row["prompt"] + body
    first = fenced("def swap_ends(text):\n    return 1")
    asked = [
        (row, f"First try:\n{first}\nBetter:\n{fenced(whole)}"),
        (row, fenced(body)),  # the body alone completes the prompt
        (row, whole),
        (row, f"{fenced(whole)}\nExample:\n{fenced('print(swap_ends(1))')}"),
        (row, "I would swap them."),
    ]
    scores = grade(sandbox, "humaneval_plus", *asked)
    assert verdicts(scores) == [*[AttemptVerdict.CORRECT] * 4, AttemptVerdict.FORMAT_ERROR]


def test_a_base_model_completes_the_prompt_and_is_cut_where_it_goes_on(sandbox: Sandbox) -> None:
    row = HUMANEVAL_PLUS[1]
    text = row["canonical_solution"] + "\n\nprint(swap_ends(input()))\n\ndef other():\n    pass"
    over = row["canonical_solution"] + "<|endoftext|>Human: and now in Rust"
    for family in ("compact", "assert"):
        scores = grade(sandbox, "humaneval_plus", (row, text), (row, over), family=family)
        assert verdicts(scores) == [AttemptVerdict.CORRECT] * 2


class Recording:
    """A sandbox that keeps what it is sent."""

    def __init__(self, inner: Sandbox) -> None:
        self.inner, self.limits, self.outage = inner, inner.limits, None
        self.identity = inner.identity
        self.sent: list[Job] = []

    def run(self, jobs: Sequence[Job], *rest: Any, **named: Any) -> list[JobResult]:
        self.sent += jobs
        return self.inner.run(jobs, *rest, **named)


def test_no_expected_answer_enters_the_sandbox(sandbox: Sandbox) -> None:
    recording: Any = Recording(sandbox)
    secret = "a-secret-answer"
    row = code_row(7, public_test_cases="[]", private_test_cases="", metadata="{}")
    row["public_test_cases"] = '[{"input": "1", "output": "a-secret-answer", "testtype": "stdin"}]'
    (score,) = grade(recording, "livecodebench", (row, fenced("print(input())")))
    assert score.verdict == AttemptVerdict.WRONG
    candidate = "def last_place(items, value):\n    return 7"
    grade(recording, "mbpp_plus", (MBPP_PLUS[2], fenced(candidate)))
    candidates = [job for job in recording.sent if "yardstick" not in job.job_id]
    assert candidates and not any(secret in text for job in candidates for text in (job.program, *job.inputs))
    reference = MBPP_PLUS[2]["canonical_solution"].splitlines()[-1].strip()
    assert not any(reference in job.program for job in candidates if "return 7" in job.program)


def test_equal_programs_run_once(sandbox: Sandbox) -> None:
    recording: Any = Recording(sandbox)
    program = fenced(SOLUTIONS["mbpp_plus"][0])
    scores = grade(recording, "mbpp_plus", *[(MBPP_PLUS[0], program)] * 5)
    assert verdicts(scores) == [AttemptVerdict.CORRECT] * 5
    assert len(recording.sent) == 4  # reference and candidate, each on base and plus inputs


def test_a_reference_that_does_not_run_is_infrastructure(sandbox: Sandbox) -> None:
    row = MBPP_PLUS[2] | {"canonical_solution": "\nimport numpy\n\ndef last_place(*_): ...\n"}
    (score,) = grade(sandbox, "mbpp_plus", (row, fenced("def last_place(*_):\n    return -1")))
    assert (score.correct, score.verdict) == (None, AttemptVerdict.INFRASTRUCTURE)


# Time


def spin(rounds: int) -> str:
    return f"def spin(n):\n    for _ in range({rounds}):\n        pass\n    return n\n"


def test_the_limit_follows_what_the_reference_took(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evalplus, "FLOOR_SECONDS", 0.01)
    row = MBPP_PLUS[2] | {"entry_point": "spin", "prompt": "", "base_input": [[1]], "plus_input": []}
    slow, quick = row | {"canonical_solution": spin(12_000_000)}, row | {"canonical_solution": spin(1)}
    candidate = fenced(spin(12_000_000))
    assert verdicts(grade(sandbox, "mbpp_plus", (slow, candidate))) == [AttemptVerdict.CORRECT]
    assert verdicts(grade(sandbox, "mbpp_plus", (quick, candidate))) == [AttemptVerdict.TIMEOUT]


def test_the_limit_follows_what_the_yardstick_took(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    row = code_row(8, public_test_cases='[{"input": "1", "output": "1", "testtype": "stdin"}]')
    program = fenced("for _ in range(3_000_000):\n    pass\nprint(input())")
    monkeypatch.setattr(livecodebench, "TEST_SECONDS", 0.01)
    assert verdicts(grade(sandbox, "livecodebench", (row, program))) == [AttemptVerdict.TIMEOUT]
    monkeypatch.setattr(livecodebench, "YARDSTICK_SECONDS", 0.001)  # as if this machine were far slower
    assert verdicts(grade(sandbox, "livecodebench", (row, program))) == [AttemptVerdict.CORRECT]


class Scripted:
    """A sandbox whose one job takes the next of some times."""

    limits = code_limits(10.0)
    outage = None
    identity = "scripted-python3.13.5"

    def __init__(self, *again: float) -> None:
        self.again = list(again)

    def run(self, jobs: Sequence[Job], *_: Any, **__: Any) -> list[JobResult]:
        return [JobResult(jobs[0].job_id, Status.OK, ("1",), cpu_seconds=self.again.pop(0))]


@pytest.mark.parametrize(
    ("took", "status", "again", "judged"),
    [
        (0.5, Status.OK, [], Status.OK),
        (3.0, Status.OK, [1.0], Status.OK),  # near the limit: alone, it is quick
        (3.0, Status.OK, [3.0], Status.TIMEOUT),
        (1.5, Status.OK, [1.9], Status.OK),
        (9.0, Status.OK, [], Status.TIMEOUT),  # far beyond: nothing to try
        (10.0, Status.TIMEOUT, [], Status.TIMEOUT),
        (0.0, Status.INFRASTRUCTURE, [], Status.INFRASTRUCTURE),
    ],
)
def test_time_is_judged_against_the_own_limit(
    took: float, status: Status, again: list[float], judged: Status
) -> None:
    sandbox: Any = Scripted(*again)
    job = Job("j", "", ())
    result = judge_time(sandbox, job, JobResult("j", status, ("1",), cpu_seconds=took), 2.0)
    assert result.status is judged and sandbox.again == []


def test_a_job_that_the_sandbox_ended_before_its_own_limit_is_tried_again() -> None:
    sandbox: Any = Scripted(4.0)
    result = judge_time(sandbox, Job("j", "", ()), JobResult("j", Status.TIMEOUT, cpu_seconds=10.0), 8.0)
    assert result.status is Status.OK


class Lost:
    """A sandbox that answers nothing."""

    limits = code_limits(1.0)
    identity = "lost-python3.13.5"

    def __init__(self, outage: SandboxUnavailable | None) -> None:
        self.outage = outage

    def run(self, jobs: Sequence[Job], *_: Any, **__: Any) -> list[JobResult]:
        return [JobResult(job.job_id, Status.INFRASTRUCTURE, error="gone") for job in jobs]


@pytest.mark.parametrize("name", CODE)
def test_lost_jobs_are_no_wrong_answers(name: str) -> None:
    lost: Any = Lost(None)
    (score,) = grade(lost, name, (ROWS[name][0], fenced(SOLUTIONS[name][0])))
    assert (score.correct, score.verdict) == (None, AttemptVerdict.INFRASTRUCTURE)


@pytest.mark.parametrize("name", CODE)
def test_an_outage_gives_no_scores_at_all(name: str) -> None:
    lost: Any = Lost(SandboxUnavailable("the daemon is gone"))
    with pytest.raises(SandboxUnavailable, match="the daemon is gone"):
        grade(lost, name, (ROWS[name][0], fenced(SOLUTIONS[name][0])))


def test_a_test_that_is_too_large_to_send_is_no_wrong_answer(sandbox: Sandbox) -> None:
    row = code_row(9, public_test_cases=json.dumps(stdin(("x" * (65 << 20), "x"))))
    (score,) = grade(sandbox, "livecodebench", (row, fenced("print(input())")))
    assert (score.correct, score.verdict) == (None, AttemptVerdict.INFRASTRUCTURE)


def test_a_large_input_and_a_large_output_pass(sandbox: Sandbox) -> None:
    text = "7 " * 400_000
    row = code_row(10, public_test_cases=json.dumps(stdin((text, text))))
    (score,) = grade(sandbox, "livecodebench", (row, fenced("print(*input().split())")))
    assert score.verdict == AttemptVerdict.CORRECT, score


def test_items_keep_their_order(sandbox: Sandbox) -> None:
    measured = benchmark("livecodebench")
    items: list[Item] = measured.load([LIVECODEBENCH[1], LIVECODEBENCH[0]])
    responses = [Response(fenced(SOLUTIONS["livecodebench"][n])) for n in (1, 1)]
    assert [score.correct for score in measured.grade(items, responses, "instruct", sandbox)] == [True, False]
