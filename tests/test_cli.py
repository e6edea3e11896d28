"""The `populora` command as a person uses it: its output, its exit code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from command import populora
from conftest import GENERATIONS, PATIENCE, ask, small_config
from store_run import write_run
from typer.testing import CliRunner

from populora_core.commands import app
from populora_core.config.load import Config
from populora_core.report.figures import read_figures
from populora_core.report.notes import headline
from populora_core.report.write import ReportWarning
from populora_core.runs.run import Run
from populora_core.store.manifest import stage_dir
from populora_core.support.errors import PopuloraError
from populora_core.support.shipped import REPOSITORY
from populora_core.terminal.options import GROUPS, Prefixed
from populora_plugins.machine.doctor import EXTRAS

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "configs" / "demo.toml"
ERROR = 2


def test_help_names_every_command() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "populora_core.commands", "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "160"},
        timeout=PATIENCE,
        check=True,
    )
    groups = [shown.stdout.index(f" {group} ") for group in GROUPS]
    assert groups == sorted(groups), "what one starts with comes first"
    named = {line.split()[1] for line in shown.stdout.splitlines() if len(line.split()) > 2}
    play = {"run", "resume", "rerun", "fork", "inspect", "query", "report", "export", "evaluate"}
    assert named >= play | {"suite", "study", "verify", "image", "reap", "prune", "bench", "ui", "doctor"}


def test_a_wrong_dialect_of_a_trial_is_told_before_its_base_is_looked_for() -> None:
    tried = populora("try", "--base", "nobody/nothing", "--dialect", "klingon")
    assert tried.returncode == ERROR and "klingon" in tried.stderr


def test_a_dry_run_prints_the_plan_and_starts_nothing(tmp_path: Path) -> None:
    script = (
        "import sys; sys.argv[0] = 'populora'\n"
        "from populora_core.commands.app import app\n"
        "app(standalone_mode=False)\n"
        "heavy = {'torch', 'transformers', 'prefect', 'docker'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    command = [sys.executable, "-c", script, "run", "--config", str(DEMO), "--run-dir", str(tmp_path / "run")]
    command += ["--dry-run", "--set", "run.seed=7"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "seed = 7" in done.stdout
    assert "Nothing was started" in done.stdout
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("every", [0, 1])
def test_a_plan_says_which_rows_a_run_must_have_first(tmp_path: Path, every: int) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"[evaluate]\nsuite = 'bundled:cruxeval-held-out'\nreport_every = {every}\n")
    words = ["run", "--config", path, "--run-dir", tmp_path / "run"]
    planned = populora(*words, "--dry-run", POPULORA_BENCHMARKS=str(tmp_path))
    assert planned.returncode == 0 and "Nothing was started" in planned.stdout
    refused = populora(*words, POPULORA_BENCHMARKS=str(tmp_path))
    assert refused.returncode == ERROR and not (tmp_path / "run").exists()
    for said in (planned.stdout, refused.stderr):
        assert "the rows of cruxeval_o are not on this machine" in said and "suite fetch cruxeval_o" in said


def test_an_unknown_key_is_named_with_what_would_be_right(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("[solve]\natempts = 4\n")
    done = populora("run", "--config", path, "--run-dir", tmp_path / "run")
    assert done.returncode == ERROR
    assert "solve.atempts: unknown key (got 4). Did you mean solve.attempts?" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_directory_that_holds_another_run_is_left_alone(finished: Path) -> None:
    before = (finished / "run.json").read_text()
    done = populora("run", "--config", DEMO, "--run-dir", finished)
    assert done.returncode == ERROR
    assert "already holds a run" in done.stderr
    assert "populora resume" in done.stderr
    assert (finished / "run.json").read_text() == before


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    done = populora("run", "--config", DEMO, "--run-dir", tmp_path)
    assert done.returncode == ERROR
    assert "is not empty and holds no run" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.sandbox
def test_a_base_model_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    for file in (ROOT / "base_model" / "tiny").iterdir():
        if not file.name.startswith("tokenizer"):
            (base / file.name).write_bytes(file.read_bytes())
    done = populora(
        "run", "--plain", "--config", DEMO, "--run-dir", tmp_path / "run", "--set", f"base.path={base}"
    )
    assert done.returncode == ERROR
    assert "tokenizer" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [["resume"], ["inspect"], ["query", "SELECT 1"]])
def test_a_folder_that_is_no_run_is_named(tmp_path: Path, command: list[str]) -> None:
    done = populora(command[0], tmp_path, *command[1:])
    assert done.returncode == ERROR
    assert "is not a run directory" in done.stderr


def test_a_finished_run_is_resumed_without_doing_anything(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    done = populora("resume", directory, "--plain")
    assert done.returncode == 0, done.stderr
    assert "generations done already: 3;" in done.stdout
    assert done.stderr == ""


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_rerun_that_changes_nothing_says_why(copy_of: Callable[[], Path]) -> None:
    done = populora("rerun", copy_of(), "--generation", 1, "--stage", "match")
    assert done.returncode == 0, done.stderr
    assert "making match of generation 1 again" in done.stdout
    assert "match    unchanged" in done.stdout
    assert "its seed are the same; --seed N draws again" in done.stdout
    assert f" --generations {GENERATIONS + 10} goes on from here" in done.stdout


def test_inspect_shows_run_generation_stage_member_and_problem(finished: Path) -> None:
    glance = populora("inspect", finished).stdout
    assert "generation   3/3" in glance
    assert "cells so far" in glance
    assert "attempt_grades" in populora("inspect", finished, "--generation", 2).stdout
    manifest = json.loads(populora("inspect", finished, "--generation", 2, "--stage", "solve").stdout)
    assert manifest["stage"] == "solve"
    assert "founder" in populora("inspect", finished, "--member", "teacher-00-g0000").stdout
    rows = populora("query", finished, "SELECT problem_id FROM problems LIMIT 1", "--format", "json")
    problem = json.loads(rows.stdout)["problem_id"]
    shown = populora("inspect", finished, "--problem", problem).stdout
    assert "def f(" in shown
    assert "attempt 2 by student" in shown


def test_inspect_shows_a_member_as_of_a_generation(finished: Path) -> None:
    (gone,) = ask(finished, "FROM members WHERE died_generation IS NOT NULL ORDER BY ALL LIMIT 1")
    died, name = gone["died_generation"], gone["member_id"]
    ratings = ask(finished, f"FROM ratings WHERE member_id = '{name}' ORDER BY generation")
    for generation in (1, died):
        then = populora("inspect", finished, "--member", name, "--generation", generation).stdout
        assert f"adapter_path  members/{name}/g{generation:04d}\n" in then
        assert f"mu  {ratings[generation - 1]['mu']}\n" in then
        assert f"died_generation  {died if generation == died else None}\n" in then
        assert len(re.findall(r"^\W*\d+\W+(teacher|student)", then, re.M)) == generation
    (child,) = ask(finished, f"FROM members WHERE born_generation = {died} ORDER BY ALL LIMIT 1")
    for member, generation in ((name, died + 1), (child["member_id"], died - 1)):
        refused = populora("inspect", finished, "--member", member, "--generation", generation)
        assert refused.returncode == ERROR
        assert f"no member is called {member} in generation {generation}" in refused.stderr


def test_inspect_counts_to_the_generation_that_a_run_went_on_to(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", small_config(run={"generations": 1}), "0" * 64)
    write_run(run.directory, generations=2)
    assert "generation   2/2" in populora("inspect", run.directory).stdout


def test_inspect_shows_a_generation_that_is_under_way(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    shutil.rmtree(stage_dir(directory, 3, "grade"))
    shown = populora("inspect", directory, "--generation", 3)
    assert shown.returncode == 0 and "absent" in shown.stdout, shown.stderr


def test_inspect_leads_with_the_headline_and_a_narrow_terminal_cuts_nothing(finished: Path) -> None:
    glance = populora("inspect", finished, COLUMNS="80").stdout
    assert "\n".join(headline(read_figures(finished, samples=False))) in glance[: glance.index("generation ")]
    for arguments in ([], ["--generation", 2], ["--member", "S0"]):
        assert "…" not in populora("inspect", finished, *arguments, COLUMNS="80").stdout


def test_what_is_not_there_is_said_so(finished: Path) -> None:
    for arguments in (
        ["--generation", 9],
        ["--member", "nobody"],
        ["--problem", "none"],
        ["--stage", "solve"],
    ):
        done = populora("inspect", finished, *arguments)
        assert done.returncode == ERROR
        assert "Traceback" not in done.stderr


def test_a_run_without_a_question_is_told_that_the_question_is_missing(tmp_path: Path) -> None:
    asked = populora("query", tmp_path)
    assert asked.returncode == ERROR
    assert "ask one question, in quotes" in " ".join(asked.stderr.replace("│", " ").split())
    assert "Missing" not in asked.stderr


def test_options_that_do_not_go_together_are_refused(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    asked = [
        (("run", "--preset", "quick", "--dry-run", "--hours", "1"), "--hours or --dry-run"),
        (("run", "--preset", "quick", "--dry-run", "--run-dir", str(finished)), "already holds a run"),
        (("evaluate", str(finished), "--base", "tiny"), "a run has a base already"),
        (("evaluate", str(finished), "--dialect", "assert"), "a run has a base already"),
        (("evaluate", str(tmp_path / "adapter"), "--generation", "1"), "no members and no generations"),
        (("study", "--dry-run", "release", "--to", "x"), "options stand behind"),
        (("inspect", str(finished), "--problem", "P", "--member", "M"), "--problem and --member do not go"),
        (("inspect", str(finished), "--problem", "P", "--generation", "1"), "--problem and --generation do"),
        (("inspect", str(finished), "--member", "M", "--stage", "solve"), "--member and --stage do not go"),
    ]
    for arguments, told in asked:
        done = populora(*arguments)
        assert done.returncode != 0 and told in " ".join(done.stderr.replace("│", "").split()), arguments


def test_query_prints_csv_and_json_and_explains_bad_sql(finished: Path) -> None:
    sql = "SELECT generation, count(*) AS n FROM matches GROUP BY 1 ORDER BY 1"
    table = populora("query", finished, sql, "--format", "csv").stdout
    assert table.splitlines() == ["generation,n", "1,3", "2,3", "3,3"]
    lines = populora("query", finished, sql, "--format", "json").stdout.splitlines()
    assert [json.loads(line)["n"] for line in lines] == [3, 3, 3]
    bad = populora("query", finished, "SELECT nonsense FROM matches")
    assert bad.returncode == ERROR
    assert "nonsense" in bad.stderr


@pytest.mark.sandbox
def test_verify_answers_every_line_in_order() -> None:
    jobs = [
        {"id": "a", "program": "def f(x):\n return x+1", "inputs": ["(1,)", "(2,)"]},
        {"id": "b", "program": "import os\ndef f(x):\n return 1", "inputs": ["(1,)"]},
        {"id": "c", "program": "def f(x):\n return 1/0", "inputs": ["(1,)"]},
    ]
    done = populora("verify", "-", stdin="\n".join(json.dumps(job) for job in jobs))
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(a["id"], a["status"]) for a in answers] == [("a", "ok"), ("b", "forbidden"), ("c", "error")]
    assert answers[0]["outputs"] == ["2", "3"]


@pytest.mark.sandbox
def test_verify_runs_a_dictionary_in_the_order_that_was_written() -> None:
    program = "def f(d):\n return [list(d), d]"
    job = {"id": "a", "program": program, "inputs": ["({'b': 1, 'a': 2},)", "({'a': 2, 'b': 1},)"]}
    done = populora("verify", "-", stdin=json.dumps(job))
    assert json.loads(done.stdout)["outputs"] == [
        "[['b', 'a'], {'b': 1, 'a': 2}]",
        "[['a', 'b'], {'a': 2, 'b': 1}]",
    ]


@pytest.mark.sandbox
@pytest.mark.parametrize(("options", "status"), [((), "nondeterministic"), (("--once",), "ok")])
def test_verify_runs_a_program_twice_unless_told_otherwise(options: tuple[str, ...], status: str) -> None:
    job = {"id": "a", "program": "def f(x):\n return hash('a')", "inputs": ["(1,)"]}
    done = populora("verify", "-", *options, stdin=json.dumps(job))
    assert json.loads(done.stdout)["status"] == status, done


def test_verify_names_a_line_that_is_not_a_job() -> None:
    done = populora("verify", "-", stdin='{"id": "a"}\n')
    assert done.returncode == ERROR
    assert "line 1 is not a job" in done.stderr


@pytest.mark.sandbox
def test_doctor_says_what_works() -> None:
    done = populora("doctor", "--require", "sandbox")
    assert done.returncode == 0, done.stdout
    assert "sandbox" in done.stdout
    assert "bundled base" in done.stdout
    assert "memory" in done.stdout and "optional parts" in done.stdout


def test_doctor_knows_every_optional_part_by_a_package_that_it_brings() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == {extra for extra, needs in extras.items() if needs} - {"dev", "vllm"}
    for extra, package in EXTRAS.items():
        assert any(re.split(r"[^\w-]", needed)[0] == package for needed in extras[extra]), extra


def test_a_warning_of_ours_is_told_without_the_line_of_code_that_gave_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> None:
        warnings.warn("the report is late", ReportWarning, stacklevel=1)
        warnings.warn("somebody else's", UserWarning, stacklevel=1)

    monkeypatch.setattr(app, "app", work)
    monkeypatch.setattr(os, "umask", lambda mask: mask)
    with pytest.warns(UserWarning, match="somebody else's") as others:
        app.main()
    assert capsys.readouterr().err == "populora: the report is late\n"
    assert len(others) == 1


@pytest.mark.parametrize(("shared", "mode"), [("", 0o600), ("1", 0o644)])
def test_what_commands_write_is_their_users_alone_unless_it_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: str, mode: int
) -> None:
    """Run directories, databases and logs hold prompts and parameters."""
    monkeypatch.setenv(app.SHARED, shared)
    monkeypatch.setattr(app, "app", (tmp_path / "written").touch)
    before = os.umask(0o022)
    try:
        app.main()
    finally:
        os.umask(before)
    assert (tmp_path / "written").stat().st_mode & 0o777 == mode


def test_the_version_is_that_of_the_distribution() -> None:
    done = populora("--version")
    assert done.stdout.strip() == f"populora {version('populora-core')}"


def test_a_terminal_without_boxes_ends_no_command(tmp_path: Path) -> None:
    write_run(Run.create(tmp_path / "run", Config(), "0" * 64).directory)
    ascii_alone = {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "populora_core.commands", "inspect", "run"],
        cwd=tmp_path,
        env=os.environ | ascii_alone | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("raised", "said"), [(EOFError("unexpected EOF"), "unexpected EOF"), (typer.Abort(), "Ctrl-C or the end")]
)
def test_no_command_ends_with_the_bare_word_aborted(raised: Exception, said: str) -> None:
    command = typer.Typer(cls=Prefixed, rich_markup_mode="markdown")

    @command.command()
    def one() -> None:
        raise raised

    @command.command()
    def other() -> None: ...

    done = CliRunner().invoke(command, ["one"])
    assert isinstance(done.exception, PopuloraError)
    assert said in done.exception.got and done.exception.fix
    assert "Aborted" not in done.output


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--config=~/mine"],
        ["run", "--plain", "--preset=quick", "--run-dir=~/mine"],
        ["study", "--config=~/mine"],
        ["study", "release", "--config=~/mine", "--to=~/out"],
        ["suite", "fetch", "gsm8k", "--from=~/mine"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_the_shells_sign_for_the_home_folder_is_read_in_an_option(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    done = CliRunner().invoke(app.app, words)
    assert isinstance(done.exception, PopuloraError)
    assert str(tmp_path / "mine") in str(done.exception)
