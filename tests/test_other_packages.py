"""Other people's packages: they join by an entry point or by place, without a line changed here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from inspect import isfunction
from pathlib import Path

import numpy as np
import pytest
from conftest import needs, ran, small_config, start
from test_solo import KILLED

from populora_core.benchmarks.anchors import ANCHOR_SOURCES, draw_anchors
from populora_core.benchmarks.benchmark import BENCHMARKS, Benchmark, Response, benchmark
from populora_core.benchmarks.suite import Entry
from populora_core.config.load import build_config
from populora_core.learner.estimators import ESTIMATORS
from populora_core.population.fitness import FITNESS
from populora_core.population.matchmaking import SCHEMES
from populora_core.problems.buffer import Buffer
from populora_core.problems.dialects import DIALECTS, Dialect, dialect
from populora_core.problems.grading import check_proposals, judge_attempts
from populora_core.problems.rewards import TEACHER_REWARDS
from populora_core.problems.types import PROBLEM_TYPES, problem_type
from populora_core.problems.types.protocol import ProblemType
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.runs.preflight import check_names
from populora_core.sandbox.jobs import Job, Sandbox
from populora_core.support.errors import ConfigError, PopuloraError
from populora_core.support.finish import FinishReason
from populora_core.support.registry import Registry
from populora_core.support.trust import remember

REPOSITORY = Path(__file__).resolve().parents[1]
PLACE = "populora_countdown:Countdown"
TRAIN = REPOSITORY / "examples" / "problem_type" / "train_base.py"
MEASURE = TRAIN.with_name("measure_base.py")
PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "somebody-elses"
version = "0.1.0"
[project.entry-points."populora.dialects"]
terse = "somebody_elses:Terse"
[project.entry-points."populora.benchmarks"]
doubles = "somebody_elses:Doubles"
[project.entry-points."populora.teacher_rewards"]
cubic = "somebody_elses:cubic"
[project.entry-points."populora.estimators"]
plain = "somebody_elses:plain"
[project.entry-points."populora.fitness"]
slot = "somebody_elses:slot"
[project.entry-points."populora.matchmaking_schemes"]
last = "somebody_elses:last"
[tool.hatch.build.targets.wheel]
only-include = ["somebody_elses.py"]
"""
MODULE = """\
from populora_core.benchmarks.benchmark import Item, ItemScore
from populora_core.problems.dialects.compact import CompactDialect
from populora_core.problems.verdicts import AttemptVerdict

class Terse(CompactDialect):
    name = "terse"

class Deaf:
    name, rules, stop, digest = "deaf", None, (), ""
    propose_prompt = solve_prompt = parse_proposal = encode = print

class Doubles:
    name, version, schema, votes, limits = "doubles", 1, {"number": (int,)}, True, None
    def load(self, rows):
        return [Item(str(row["number"]), self.name, row, "all") for row in rows]
    def prompt(self, item, family):
        return f"{item.fields['number']} doubled is "
    def template(self, family):
        return "doubles/1"
    def grade(self, items, responses, family, sandbox):
        right = [reply.text == str(2 * item.fields["number"]) for item, reply in zip(items, responses)]
        verdicts = (AttemptVerdict.CORRECT if each else AttemptVerdict.WRONG for each in right)
        return [ItemScore(verdict, reply.text, "") for verdict, reply in zip(verdicts, responses)]

class Ungraded(Doubles):
    grade = property()

def cubic(solve_rate, rules):
    return solve_rate ** 3

def plain(*arguments):
    return arguments

slot = last = plain
"""
UNDECIDED = "not signal"  # whether the base has anything to say in a type that it has never seen


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the package of examples/problem_type is installed, from its wheel."""
    folder = tmp_path_factory.mktemp("countdown")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    ran(command, cwd=REPOSITORY / "examples" / "problem_type", check=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def of_others(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same folder, into which a second package is installed: a dialect, a benchmark, a reward and more."""
    folder = tmp_path_factory.mktemp("others")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "somebody_elses.py").write_text(MODULE)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    ran(command, cwd=folder, check=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    return site


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(PROBLEM_TYPES, "made", {})


def python(site: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Python where the package is installed, beside ours."""
    return ran(
        [sys.executable, *map(str, arguments)],
        cwd=REPOSITORY / "tests",
        env=os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{REPOSITORY}"},
    )


def audit(site: object, run: Path, chosen: str) -> subprocess.CompletedProcess[str]:
    """`make audit` of a run where the packages of others are installed."""
    files = ["test_audit.py", "test_audit_payments.py"]
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", chosen]
    return ran(
        [sys.executable, *words],
        cwd=REPOSITORY / "tests",
        env=os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{REPOSITORY}", "POPULORA_RUN": str(run)},
    )


def test_a_type_that_is_not_installed_is_refused_before_any_work() -> None:
    config = small_config(propose={"types": ("countdown",)})
    with pytest.raises(ConfigError, match=r"propose\.types names 'countdown', which is not registered"):
        check_names(config, "the configuration")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["countdown", PLACE])
def test_an_installed_type_is_known_by_its_entry_point_and_by_its_place(name: str) -> None:
    remember([PLACE])
    check_names(small_config(propose={"types": (name,)}), "the configuration")
    assert problem_type(name).answer_form == "program"


@pytest.mark.parametrize(
    ("section", "key"), [("grade", "teacher_reward"), ("base", "dialect"), ("evolve", "fitness")]
)
def test_what_lacks_a_part_is_refused_with_the_name_of_the_setting(section: str, key: str) -> None:
    config = build_config({section: {key: "json:no_such_thing"}}, "the configuration")
    with pytest.raises(ConfigError, match=rf"{section}\.{key}"):
        check_names(config, "the configuration")


@pytest.mark.parametrize(
    ("registry", "name", "attribute"),
    [
        (DIALECTS, "terse", "Terse"),
        (BENCHMARKS, "doubles", "Doubles"),
        (TEACHER_REWARDS, "cubic", "cubic"),
        (ESTIMATORS, "plain", "plain"),
        (FITNESS, "slot", "slot"),
        (SCHEMES, "last", "last"),
    ],
)
def test_every_kind_joins_by_its_entry_point_and_by_its_place(
    registry: Registry, name: str, attribute: str, of_others: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "made", {})
    with pytest.raises(PopuloraError, match=f"{name}(.|\n)*{registry.group}"):
        registry.find(name)
    monkeypatch.syspath_prepend(of_others)
    import somebody_elses

    expected = getattr(somebody_elses, attribute)
    remember([f"somebody_elses:{attribute}"])
    for known_as in (name, f"somebody_elses:{attribute}"):
        found = registry.find(known_as)
        assert found is expected or type(found) is expected
    assert name in registry.names()


@pytest.mark.parametrize(
    ("registry", "attribute", "missing"),
    [
        (DIALECTS, "Deaf", "method `parse_answer`"),
        (BENCHMARKS, "Ungraded", "method `grade`"),
        (TEACHER_REWARDS, "forgotten", "no attribute 'forgotten'"),
    ],
)
def test_what_lacks_a_method_is_told_which(
    registry: Registry, attribute: str, missing: str, of_others: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(of_others)
    remember([f"somebody_elses:{attribute}"])
    with pytest.raises(PopuloraError, match=missing):
        registry.find(f"somebody_elses:{attribute}")


@pytest.mark.parametrize("protocol", [ProblemType, Dialect, Benchmark])
def test_no_protocol_asks_for_more_than_five_methods(protocol: type) -> None:
    methods = [name for name, part in vars(protocol).items() if isfunction(part) and name[0] != "_"]
    assert 0 < len(methods) <= 5


def test_another_packages_benchmark_grades(of_others: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(of_others)
    entry = {"benchmark": "doubles", "dataset": "numbers.jsonl"}
    assert Entry.model_validate(entry).benchmark == "doubles"
    doubles = benchmark("doubles")
    items = doubles.load([{"number": 4}, {"number": 5}])
    scores = doubles.grade(items, [Response("8"), Response("11")], "compact", None)  # type: ignore[arg-type]
    assert [score.verdict for score in scores] == [AttemptVerdict.CORRECT, AttemptVerdict.WRONG]


def in_blocks(**blocks: str) -> str:
    inner = "\n".join(f"```{tag}\n{text}\n```" for tag, text in blocks.items())
    return f"so it is.</think>\n<answer>\n{inner}\n</answer>"


def completion(name: str, program: str, arguments: str = "") -> dict[str, str]:
    blocks = {"python": program, "input": arguments} if arguments else {"python": program}
    compact = program + (f"\n#{arguments}" if arguments else "")
    text = compact if name == "compact" else in_blocks(**blocks)
    return {"problem_type": "countdown", "completion": text, "finish_reason": FinishReason.STOP}


@pytest.mark.sandbox
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["compact", "instruct"])
def test_countdown_is_proposed_asked_and_judged_in_both_dialects(name: str, sandbox: Sandbox) -> None:
    spoken = dialect(name)
    program = "def f(a,b,c):\n return (a-b)*c"
    written = {
        "valid": (program, "25,3,4"),
        "echo": ("def f(a,b):\n return a//b", "6,1"),
        "constant": ("def f(a,b):\n return a*b+1", "6,2"),
        "twice": ("def f(a,b):\n return a*a+b", "6,2"),
        "text": ("def f(a,b):\n return a+b", "'x','y'"),
    }
    asked = [completion(name, *each) for each in written.values()]
    checks = dict(zip(written, check_proposals(spoken, sandbox.run, asked), strict=True))
    assert {key: check.verdict for key, check in checks.items()} == {
        "valid": ProposalVerdict.VALID,
        "echo": ProposalVerdict.TRIVIAL,
        "constant": ProposalVerdict.FORMAT_ERROR,
        "twice": ProposalVerdict.FORMAT_ERROR,
        "text": ProposalVerdict.FORMAT_ERROR,
    }
    draft = checks["valid"].draft
    assert draft is not None
    problem = draft.problem("prob-1", checks["valid"].outputs)
    prompt = spoken.solve_prompt(problem)
    assert "88" in prompt and "a-b" not in prompt, "a student sees the target and not the way"
    answers = {
        program: AttemptVerdict.CORRECT,
        "def f(x,y,z):\n return x*z-y*z": AttemptVerdict.WRONG,  # 88, but z twice
        "def f(a,b,c):\n return a+b+c": AttemptVerdict.WRONG,
        "def f(a,b,c):\n return 88": AttemptVerdict.WRONG,
    }
    attempts = [(problem, completion(name, answer)) for answer in answers]
    judged = judge_attempts(spoken, sandbox.run, attempts)
    assert [each.verdict for each in judged] == list(answers.values())


@pytest.mark.sandbox
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "name",
    ["countdown", pytest.param("countdown_of_reasoning_gym", marks=needs("reasoning_gym", "reasoning"))],
)
def test_its_sources_give_anchors_that_the_sandbox_finds_valid(
    name: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ANCHOR_SOURCES, "made", {})
    anchors = {"share": 0.5, "source": name}
    config = small_config(propose={"types": ("countdown",)}, anchors=anchors)
    check_names(config, "the configuration")
    drafts = draw_anchors(
        config.anchors, {"countdown": 20}, Buffer(10), [], lambda _: np.random.default_rng(0)
    )["countdown"]
    checks = check_proposals(dialect("instruct"), sandbox.run, drafts)
    valid = [check for check in checks if check.verdict is ProposalVerdict.VALID]
    assert len(drafts) == 20 and len(valid) >= 16, "but for a few whose target is among the numbers"


@pytest.mark.sandbox
@pytest.mark.usefixtures("installed")
def test_what_its_base_is_trained_on_is_read_as_it_is_meant(
    monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox
) -> None:
    monkeypatch.syspath_prepend(TRAIN.parent)
    import train_base

    rng, spoken = np.random.default_rng(0), dialect("compact")
    for number in range(20):
        own = train_base.problem(rng)
        (result,) = sandbox.run([Job(str(number), own.program, own.inputs)])
        assert result.outputs == own.outputs
    for prompt, written in (train_base.document(rng) for _ in range(40)):
        if prompt.startswith("<po>"):
            assert spoken.parse_proposal("countdown", written).program
        else:
            assert spoken.parse_answer(own, written)


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_a_base_that_is_trained_on_countdown_plays_it(site: Path, tmp_path: Path) -> None:
    trained = python(site, TRAIN, tmp_path / "base", 2)
    assert trained.returncode == 0 and "step 1: loss" in trained.stdout, trained.stderr
    played = python(
        *(site, "-m", "populora_core.commands", "run", "--plain", "--run-dir", tmp_path / "run"),
        *("--config", REPOSITORY / "configs" / "quick.toml"),
        *("--set", "run.generations=1", "--set", f"base.path={tmp_path / 'base'}"),
        *("--set", 'propose.types=["countdown"]', "--set", "propose.per_type=2"),
        *("--set", "anchors.share=0.5", "--set", "anchors.source=countdown"),
    )
    assert played.returncode == 0, played.stderr
    asked = "SELECT count(*) > 0 AS played FROM attempts JOIN problems USING (problem_id) WHERE teacher_id = 'anchor'"
    told = python(site, "-m", "populora_core.commands", "query", tmp_path / "run", asked, "--format", "json")
    assert json.loads(told.stdout) == {"played": True}
    few = ("--trained", 2, "--proposals", 2, "--problems", 2, "--output", tmp_path / "figures.json")
    measured = python(site, MEASURE, tmp_path / "base", *few)
    assert measured.returncode == 0, measured.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())["bases"]["base"]
    assert figures["proposals"] == 2 and figures["3_numbers"]["drawn_in_training"] == 0.0


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_a_run_with_another_packages_type_and_reward_is_killed_resumed_and_audited(
    of_others: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, directory = of_others, tmp_path / "run"
    monkeypatch.setenv("POPULORA_TRUST", "somebody_elses:cubic")  # named here where its code is not installed
    start(
        directory,
        small_config(
            run={"generations": 2},
            population={"teachers": 2},
            propose={"types": ("code_o", "countdown"), "per_type": 3},
            grade={"teacher_reward": "somebody_elses:cubic"},
        ),
    )
    killed = python(site, "-c", KILLED, directory, 1, "grade")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = python(site, "-m", "populora_core.commands", "resume", directory, "--plain")
    assert resumed.returncode == 0, resumed.stderr
    audited = audit(site, directory, UNDECIDED)
    assert audited.returncode == 0, audited.stdout
    asked = (
        "SELECT problem_type, count(*) AS n, max(generation) AS newest FROM proposals GROUP BY 1 ORDER BY 1"
    )
    told = python(site, "-m", "populora_core.commands", "query", directory, asked, "--format", "json")
    assert [json.loads(line) for line in told.stdout.splitlines()] == [
        {"problem_type": "code_o", "n": 12, "newest": 2},
        {"problem_type": "countdown", "n": 12, "newest": 2},
    ]
    paying_more = tmp_path / "later"
    paying_more.mkdir()
    (paying_more / "somebody_elses.py").write_text(MODULE.replace("solve_rate ** 3", "solve_rate + 1"))
    audited = audit(f"{paying_more}{os.pathsep}{site}", directory, "teachers_are_paid")
    assert audited.returncode == 1 and "1 failed" in audited.stdout, "not what was paid"
