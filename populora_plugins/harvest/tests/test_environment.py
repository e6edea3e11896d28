"""Problems of a run in other trainers: the package is installed, and `verifiers` evaluates with its own runner."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import torch
from command import populora
from conftest import needs, ran, small_config, start, wait_for
from own_suite import name_own_suite
from served_fleet import KEY, MEMBERS, TINY, served, tiny_fleet
from torch.nn.functional import cross_entropy

from populora_core.lifecycle.loop import train
from populora_core.model.base import load_base
from populora_core.problems.dialects import dialect
from populora_core.problems.dialects.instruct import fence
from populora_core.problems.model import Problem
from populora_core.problems.normal import program_key
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Job, Limits, python_of
from populora_core.sandbox.verify import verify
from populora_core.support.errors import ConfigError, RunDirectoryError, SandboxUnavailable
from populora_plugins.harvest.curriculum import Filters
from populora_plugins.harvest.environment import SETTINGS, read_settings, write_environment
from populora_plugins.harvest.grader import Grader

pytestmark = [needs("verifiers", "trainers"), pytest.mark.loop, pytest.mark.sandbox, pytest.mark.thorough]
ROOT = Path(__file__).resolve().parents[3]
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


torch.set_num_threads(1)  # matrices this small lose time to threads


def taught(answers: dict[str, str], to: Path) -> Path:
    """The bundled base once it has learnt by heart which answer each prompt gets."""
    base = load_base(TINY, "float32")
    model, tokenizer = base.model.requires_grad_(True).train(), base.tokenizer
    rows = []
    for prompt, answer in answers.items():
        asked = SPEECH.encode(tokenizer, prompt)
        told = [*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        rows.append((asked, told))
    width = max(len(asked) + len(told) for asked, told in rows)
    ids, wanted = torch.zeros(len(rows), width, dtype=torch.long), torch.full((len(rows), width), -100)
    for row, (asked, told) in enumerate(rows):
        ids[row, : len(asked) + len(told)] = torch.tensor([*asked, *told])
        wanted[row, len(asked) : len(asked) + len(told)] = torch.tensor(told)
    optimiser = torch.optim.AdamW(model.parameters(), 2e-3)
    for _ in range(1000):
        logits = model(input_ids=ids).logits[:, :-1].flatten(0, 1)
        losses = cross_entropy(logits, wanted[:, 1:].flatten(), ignore_index=-100, reduction="none")
        if losses.max() < 0.5:  # the least likely token of all has a probability of .6
            break
        optimiser.zero_grad()
        losses.sum().div(len(rows)).backward()
        optimiser.step()
    assert losses.max() < 0.5, "the answers were not learnt"
    model.save_pretrained(to)
    tokenizer.save_pretrained(to)
    return to


@contextmanager
def populora_serve(run: Path, key_file: Path) -> Iterator[tuple[str, str]]:
    """Address and key of the command's endpoint, in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["serve", str(run), "--port", str(port), "--key-file", str(key_file)]
    process = subprocess.Popen(
        [sys.executable, "-m", "populora_core.commands", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )

    def listens() -> bool:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(listens)
        yield f"http://127.0.0.1:{port}", key_file.read_text().strip()
    finally:
        process.terminate()
        process.communicate()


def evaluated(
    package: Path, address: str, model: str, count: int, to: Path, key: str = KEY, temperature: float = 1.0
) -> list[dict]:
    """The traces of an evaluation by the library's own command."""
    words = [package.name.replace("_", "-"), "-m", model, "-n", str(count), "-o", str(to)]
    words += ["--no-push", "--no-rich"]
    words += ["--client.base-url", f"{address}/v1", "--client.api-key-var", "ENDPOINT_KEY"]
    words += ["--env.agent.runtime.type", "subprocess", "--sampling.max-tokens", "96"]
    words += ["--sampling.temperature", str(temperature)]
    own = {"PYTHONPATH": f"{package.parent}:{ROOT}", "ENDPOINT_KEY": key, "HOME": str(to)}
    done = ran(
        [sys.executable, "-c", EVALUATE, *words], env=os.environ | own | {"no_proxy": "127.0.0.1"}, cwd=to
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (traces,) = to.rglob("traces.jsonl")
    return [trace for line in traces.read_text().splitlines() for trace in traces_of(json.loads(line))]


def traces_of(record: dict) -> list[dict]:
    """A line holds an episode or one trace."""
    return record.get("traces") or [record]


def said(trace: dict) -> str:
    (message,) = (node["message"] for node in trace["nodes"] if node.get("sampled"))
    return str(message.get("content") or "")  # an answer that is empty is left out


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


def test_a_served_member_is_scored_as_it_should_when_it_is_right_wrong_crashes_or_hacks(
    package: Path, tmp_path: Path
) -> None:
    """The run's endpoint, the library's runner and our sandbox, each in processes of its own."""
    problems = list(Grader(package).problems())
    turns = {
        "code_o": iter([("right", RIGHT), ("\n=['no such output']", WRONG), ("nothing", UNREADABLE)]),
        "code_i": iter([("right", RIGHT), ("'too','many','arguments'", WRONG), ("f(", UNREADABLE)]),
        "code_f": iter([(HACK, WRONG), (CRASH, WRONG), ("right", RIGHT), (FORGED, WRONG)]),
    }
    answers, worth = {}, {}
    for problem in problems:
        prompt = SPEECH.solve_prompt(problem)
        if prompt not in answers and (turn := next(turns[problem.problem_type], None)):
            answers[prompt] = right(problem) if turn[0] == "right" else turn[0]
            worth[problem.problem_id] = turn[1]
    assert len(worth) == 10, "each kind of answer is given once"
    asked = 1 + max(number for number, problem in enumerate(problems) if problem.problem_id in worth)
    base = taught(answers, tmp_path / "base")
    run = start(tmp_path / "run", small_config(base={"path": str(base)}))
    with Session(run) as session:
        train(session, 0)  # newborn members say what the base says
    with populora_serve(run.directory, tmp_path / "key") as (address, key):
        traces = evaluated(package, address, "S0", asked, tmp_path, key, temperature=0.0)
    found = {trace["task"]["data"]["id"]: trace for trace in traces}
    prompts = {problem.problem_id: SPEECH.solve_prompt(problem) for problem in problems}
    assert {name: said(found[name]) for name in worth} == {name: answers[prompts[name]] for name in worth}
    assert {name: score(found[name]) for name in worth} == worth


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
    done = ran([sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": f"{package.parent}:{ROOT}"})
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len({row["id"] for row in rows}) == 3
    assert all(row["id"].startswith("teacher-00-") for row in rows)
    with open_sandbox("auto", Limits(), workers=2) as sandbox:
        found = verify(sandbox, [Job(row["id"], row["program"], tuple(row["inputs"])) for row in rows])
    assert [list(result.outputs) for result in found] == [row["outputs"] for row in rows]


def test_a_live_package_never_hands_out_what_its_runs_own_suite_holds(
    copy_of: Callable[[], Path], tmp_path: Path
) -> None:
    run = copy_of()
    package = live_package(run, tmp_path / "written")
    first = next(Grader(package).problems())
    name_own_suite(run, [first.program])
    other = next(Grader(package).problems())
    assert program_key(other.program) != program_key(first.program)


def test_a_live_package_whose_teachers_write_nothing_valid_ends_with_an_error(
    copy_of: Callable[[], Path], tmp_path: Path
) -> None:
    run = copy_of()
    package = live_package(run, tmp_path / "written")
    record = json.loads((run / "run.json").read_text())
    record["config"]["propose"]["max_tokens"] = 1
    (run / "run.json").write_text(json.dumps(record))
    with pytest.raises(RunDirectoryError, match="write no valid problem"):
        next(Grader(package).problems())


@pytest.mark.parametrize(
    ("folder", "package"),
    [
        ("Easy ones", "populora_easy_ones"),
        ("core", "populora_core_run"),
        ("Plugins", "populora_plugins_run"),
        ("問題", "populora_run"),
    ],
)
def test_a_package_is_named_after_its_folder_and_never_like_ours(
    finished: Path, tmp_path: Path, folder: str, package: str
) -> None:
    written = write_environment([Run.open(finished)], tmp_path / folder, Filters())
    assert written.package == package
    assert [path.name for path in written.folder.iterdir() if path.is_dir()] == [package]


def live_package(run: Path, to: Path) -> Path:
    done = populora("environment", run, "--to", to, "--live", "--teacher", "T0")
    assert done.returncode == 0, done.stderr
    (package,) = (path for path in to.iterdir() if path.is_dir())
    return package


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


@pytest.mark.parametrize("command", ["environment", "problems"])
@pytest.mark.parametrize(
    ("words", "column", "least", "most"),
    [(("--statements", 3, 4), "lines_of_code", 3, 4), (("--novelty", 0.2), "novelty", 0.2, 1.0)],
)
def test_the_command_line_passes_every_filter_on(
    finished: Path,
    tmp_path: Path,
    command: str,
    words: tuple[object, ...],
    column: str,
    least: float,
    most: float,
) -> None:
    def written(*options: object) -> list[float]:
        to = tmp_path / f"{len(options)}"
        done = populora(command, finished, "--to", to, *options)
        assert done.returncode == 0, done.stderr
        tables = [*to.rglob("problems.parquet"), *to.glob("problems/*.parquet")]
        return [value for table in tables for value in pq.read_table(table)[column].to_pylist()]

    every = written()
    passing = [value for value in every if least <= value <= most]
    assert 0 < len(passing) < len(every), "else this tests nothing"
    assert sorted(written(*words)) == sorted(passing)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--live", "--level", "1", "3"], "--live takes whatever its teachers write"),
        (["--teacher", "T0"], "need --live"),
        (["--live", "--teacher", "T9"], "no member is called T9"),
    ],
)
def test_idle_options_are_refused(finished: Path, tmp_path: Path, words: list[str], told: str) -> None:
    done = populora("environment", finished, "--to", tmp_path / "written", *words)
    assert done.returncode == 2 and told in done.stderr
    assert not (tmp_path / "written").exists()


def test_a_split_chooses_the_problems_that_are_asked(package: Path) -> None:
    rows, grader = pq.read_table(package / "problems.parquet").to_pylist(), Grader(package)
    for split in ("train", "test"):
        own = [row["problem_id"] for row in rows if row["split"] == split]
        assert [problem.problem_id for problem in grader.problems(split)] == own
    with pytest.raises(ConfigError, match="no such split"):
        next(grader.problems("validation"))


@pytest.mark.thorough
def test_problems_of_two_runs_have_names_of_their_own(
    finished: Path, finished_with_a_past: Path, tmp_path: Path
) -> None:
    runs = [Run.open(finished), Run.open(finished_with_a_past)]
    written = write_environment(runs, tmp_path / "both", Filters())
    package = written.folder / written.package
    known = pq.read_table(package / "problems.parquet")["problem_id"].to_pylist()
    names = [problem.problem_id for problem in Grader(package).problems()]
    assert len(names) == len(set(names)) == len(known) > len(set(known)), "a run's own names are places"


HUNGRY = "def f(n):\n    cells = [0] * (n * 1000000)\n    return len(cells) // 1000000 + 1"


@pytest.fixture(scope="module")
def hungry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of a run in which a problem takes 500 MiB."""
    folder = tmp_path_factory.mktemp("hungry")
    row = {"problem_type": "code_i", "program": HUNGRY, "inputs": ["(60,)"]}
    (folder / "anchors.jsonl").write_text(json.dumps(row) + "\n")
    config = small_config(
        sandbox={"memory_mib": 1024},
        anchors={"share": 0.3, "source": "dataset", "parameters": {"path": str(folder / "anchors.jsonl")}},
    )
    run = start(folder / "run", config)
    with Session(run) as session:
        train(session, 1)
    return write_environment([run], folder / "package", Filters()).folder / "populora_package"


def test_a_package_judges_by_the_limits_of_its_run(hungry: Path) -> None:
    grader = Grader(hungry)
    (asked,) = (problem for problem in grader.problems() if problem.program == HUNGRY)
    assert [grader.reward(asked, answer, ended=True) for answer in ("60", "59")] == [RIGHT, WRONG]
    beyond = replace(asked, inputs=("(200,)",), outputs=("201",))  # 1,600 MiB
    assert grader.verdict(beyond, "200", ended=True) is AttemptVerdict.OUT_OF_MEMORY


def test_what_the_sandbox_could_not_judge_is_asked_again(
    hungry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grader = Grader(hungry)
    (asked,) = (problem for problem in grader.problems() if problem.program == HUNGRY)
    with monkeypatch.context() as patch:
        lost = SimpleNamespace(verdict=AttemptVerdict.INFRASTRUCTURE)
        patch.setattr("populora_plugins.harvest.grader.judge_attempts", lambda *asked: [lost])
        with pytest.raises(SandboxUnavailable, match="try the rollout again"):
            grader.reward(asked, "60", ended=True)
    assert grader.reward(asked, "60", ended=True) == RIGHT


def test_what_comes_after_a_stop_text_of_the_dialect_is_no_part_of_an_answer(hungry: Path) -> None:
    """A server that does not know the text lets the model go on to its last token."""
    grader = Grader(hungry, "instruct")
    (asked,) = (problem for problem in grader.problems() if problem.program == HUNGRY)
    answer = f"</think><answer>\n{fence('input', '60')}\n</answer>"
    for text in (answer, f"{answer}\nAnd now"):
        assert grader.verdict(asked, text, ended=False) is AttemptVerdict.CORRECT
    assert grader.verdict(asked, answer[:-1], ended=False) is not AttemptVerdict.CORRECT


def test_a_package_is_judged_under_its_python_or_not_at_all(hungry: Path, tmp_path: Path) -> None:
    settings = read_settings(hungry)
    with open_sandbox("auto", Limits(), workers=2) as sandbox:
        assert python_of(sandbox.identity).startswith(f"{settings['python']}.")
    other = tmp_path / "other"
    shutil.copytree(hungry, other)
    (other / SETTINGS).write_text(json.dumps({**settings, "python": "3.9"}))
    grader = Grader(other)
    asked = next(problem for problem in grader.problems() if problem.program == HUNGRY)
    with pytest.raises(SandboxUnavailable, match=r"no sandbox of this machine has Python 3\.9"):
        grader.verdict(asked, "60", ended=True)
