"""Problems of a run in other trainers: the package is installed, and `verifiers` evaluates with its own runner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command import populora
from conftest import PATIENCE, needs
from served_fleet import KEY, MEMBERS, served, tiny_fleet

from populora_core.problems.dialects import dialect
from populora_core.problems.model import Problem
from populora_core.sampler.requests import Completion, Request
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Job, Limits
from populora_core.sandbox.verify import verify
from populora_core.serving.fleet import Fleet
from populora_core.serving.grader import Grader
from populora_core.support.finish import FinishReason

pytestmark = [needs("verifiers", "trainers"), pytest.mark.loop, pytest.mark.sandbox, pytest.mark.thorough]
ROOT = Path(__file__).resolve().parent.parent
SPEECH = dialect("compact")
RIGHT, WRONG, UNREADABLE = 1.0, -0.5, -1.0
HACK = "def f(*x):\n import os\n os._exit(0)"
FORGED = "class A:\n def __eq__(self,other):\n  return True\ndef f(*x):\n return A()"
CRASH = "def f(*x):\n return 1//0"
EVALUATE = "from verifiers.v1.cli.eval.main import main; main()"


@pytest.fixture(scope="module")
def package(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment of the finished run, installed: the folder that Python imports it from."""
    folder = tmp_path_factory.mktemp("environment")
    done = populora("environment", finished, "--to", folder / "written")
    assert done.returncode == 0, done.stderr
    return installed(folder / "written", folder / "site")


def installed(written: Path, site: Path) -> Path:
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(written)], check=True)
    (package,) = (path for path in site.iterdir() if path.suffix == "")
    return package


class Scripted:
    """A sampler that gives each prompt the answer that was written for it."""

    def __init__(self, fleet: Fleet, answers: dict[str, str]) -> None:
        self._tokens = {
            tuple(fleet.dialect.encode(fleet.vocabulary.tokenizer, prompt)): tuple(
                fleet.vocabulary.tokenizer(answer, add_special_tokens=False)["input_ids"]
            )
            for prompt, answer in answers.items()
        }
        self._end = min(fleet.vocabulary.stop_ids)

    def generate(self, requests: Sequence[Request], *others: object) -> list[Completion]:
        written = [(*self._tokens[request.prompt_ids], self._end) for request in requests]
        return [Completion(ids, (0.0,) * len(ids), FinishReason.STOP) for ids in written]


def evaluated(package: Path, address: str, model: str, count: int, to: Path) -> list[dict]:
    """The traces of an evaluation by the library's own command."""
    words = [package.name, "-m", model, "-n", str(count), "-o", str(to), "--no-push", "--no-rich"]
    words += ["--client.base-url", f"{address}/v1", "--client.api-key-var", "ENDPOINT_KEY"]
    words += ["--env.agent.runtime.type", "subprocess", "--sampling.max-tokens", "48"]
    done = subprocess.run(
        [sys.executable, "-c", EVALUATE, *words],
        env=os.environ
        | {
            "PYTHONPATH": f"{package.parent}:{ROOT}",
            "ENDPOINT_KEY": KEY,
            "HOME": str(to),
            "no_proxy": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=to,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (traces,) = to.rglob("traces.jsonl")
    return [trace for line in traces.read_text().splitlines() for trace in traces_of(json.loads(line))]


def traces_of(record: dict) -> list[dict]:
    """A line holds an episode or one trace."""
    return record.get("traces") or [record]


def said(trace: dict) -> str:
    (answer,) = (node["message"]["content"] for node in trace["nodes"] if node.get("sampled"))
    return str(answer)


def test_the_library_evaluates_a_served_member_and_scores_it_as_we_do(package: Path, tmp_path: Path) -> None:
    grader = Grader(package)
    problems = {problem.problem_id: problem for problem in grader.problems()}
    with served(tiny_fleet()) as address:
        traces = evaluated(package, address, MEMBERS[0], 12, tmp_path)
    assert len(traces) == 12
    for trace in traces:
        problem = problems[trace["task"]["data"]["id"]]
        ended = trace["calls"][-1]["finish_reason"] != "length"
        assert score(trace) == grader.reward(problem, said(trace), ended)


def score(trace: dict) -> float:
    reward = trace["rewards"]["student_reward"]
    return float(reward["score"])


def test_wrong_answers_hacks_and_crashes_score_as_they_should(package: Path, tmp_path: Path) -> None:
    problems = list(Grader(package).problems())
    turns = {
        "code_o": cycle([("right", RIGHT), ("\n=['no such output']", WRONG), ("nothing", UNREADABLE)]),
        "code_i": cycle([("right", RIGHT), ("'too','many','arguments'", WRONG), ("f(", UNREADABLE)]),
        "code_f": cycle([(HACK, WRONG), (CRASH, WRONG), ("right", RIGHT), (FORGED, WRONG)]),
    }
    answers, worth = {}, {}
    for problem in problems:
        prompt = SPEECH.solve_prompt(problem)
        if prompt not in answers:
            answer, paid = next(turns[problem.problem_type])
            answers[prompt] = right(problem) if answer == "right" else answer
            worth[problem.problem_id] = paid
    fleet = tiny_fleet()
    scripted = replace(fleet, sampler=Scripted(fleet, answers))  # type: ignore[arg-type]
    with served(scripted) as address:
        traces = evaluated(package, address, "base", len(problems), tmp_path)
    found = {trace["task"]["data"]["id"]: score(trace) for trace in traces}
    assert {name: found[name] for name in worth} == worth
    tried = {answers[SPEECH.solve_prompt(problem)] for problem in problems}
    assert {HACK, CRASH, FORGED} <= tried


def right(problem: Problem) -> str:
    """An answer that is correct, in the compact dialect."""
    match problem.problem_type:
        case "code_o":
            return f"\n={problem.outputs[0]}"
        case "code_i":
            return problem.inputs[0][1:-1].removesuffix(",")
        case _:
            return problem.program


def test_a_live_package_hands_out_verified_problems_without_end(finished: Path, tmp_path: Path) -> None:
    done = populora("environment", finished, "--to", tmp_path / "written", "--live", "--teacher", "T0")
    assert done.returncode == 0, done.stderr
    package = installed(tmp_path / "written", tmp_path / "site")
    script = (
        "import json, importlib, sys\n"
        f"environment = importlib.import_module('{package.name}').load_environment()\n"
        "assert not environment.taskset.bounded\n"
        "for task in environment.taskset.take(3):\n"
        "    print(json.dumps(task.data.model_dump()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": f"{package.parent}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len({row["id"] for row in rows}) == 3
    assert all(row["id"].startswith("teacher-00-") for row in rows)
    with open_sandbox("auto", Limits(), workers=2) as sandbox:
        found = verify(sandbox, [Job(row["id"], row["program"], tuple(row["inputs"])) for row in rows])
    assert [list(result.outputs) for result in found] == [row["outputs"] for row in rows]


def test_the_package_holds_the_problems_that_pass_the_filters(finished: Path, tmp_path: Path) -> None:
    done = populora("environment", finished, "--to", tmp_path / "some", "--solve-rate", "0.3", "0.7")
    assert done.returncode == 0, done.stderr
    (table,) = (tmp_path / "some").rglob("problems.parquet")
    rates = pq.read_table(table)["solve_rate"].to_pylist()
    assert rates and all(0.3 <= rate <= 0.7 for rate in rates)
    again = populora("environment", finished, "--to", tmp_path / "some")
    assert again.returncode == 2 and "is not free" in again.stderr
    both = populora("environment", finished, finished, "--to", tmp_path / "live", "--live")
    assert both.returncode == 2 and "one run" in both.stderr
