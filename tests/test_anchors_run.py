"""A run with anchors, which was killed and resumed."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from command import populora
from conftest import ask, commits, contents, ran, small_config, start, write_lines
from test_anchors import drawn, row, settings
from test_solo import KILLED

from populora_core.benchmarks.files import read_rows
from populora_core.benchmarks.heldout import TINY
from populora_core.config.load import Config
from populora_core.lifecycle.loop import fork, rerun, train
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.support.errors import ProblemError
from populora_plugins.harvest.curriculum import CARD, write_curriculum

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def data_set(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The problems of another run, with some that must not be played: of a suite, and one that fails."""
    folder = tmp_path_factory.mktemp("anchors")
    write_curriculum([finished], folder / "set")
    rows = [
        {name: each[name] for name in ("problem_type", "program", "inputs", "message")}
        for each in read_rows(folder / "set" / "problems" / "train.parquet")
        if each["problem_type"] == "code_o"
    ]
    fails = {"problem_type": "code_o", "program": "def f(a):\n return a//0", "inputs": ["(3,)"]}
    suite = [
        each for each in read_rows(TINY) if each["problem_type"] == "code_o" and not each["known_program"]
    ]
    forbidden = [{name: each[name] for name in ("problem_type", "program", "inputs")} for each in suite[:4]]
    return write_lines(folder / "own.jsonl", [*rows[:4], fails, *forbidden])


@pytest.fixture(scope="module")
def played(data_set: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with anchors that was killed while it graded its second generation, and resumed."""
    directory = tmp_path_factory.mktemp("runs") / "run"
    start(directory, with_anchors(data_set))
    killed = ran(
        [sys.executable, "-c", KILLED, directory, "2", "grade"],
        cwd=ROOT / "tests",
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = populora("resume", directory, "--plain")
    assert resumed.returncode == 0, resumed.stderr
    return directory


def with_anchors(data_set: Path) -> Config:
    return small_config(
        run={"generations": 2, "seed": 6},
        population={"teachers": 2},
        propose={"types": ("code_o",), "references": (2, 2)},
        anchors={"share": 0.4, "parameters": {"path": str(data_set)}},
    )


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
class TestARunWithAnchors:
    def test_it_ends_equal_to_one_that_was_not_killed(
        self, played: Path, data_set: Path, tmp_path: Path
    ) -> None:
        with Session(start(tmp_path / "run", with_anchors(data_set))) as session:
            train(session, 2)
        assert contents(tmp_path / "run") == contents(played)

    def test_what_a_suite_holds_or_what_fails_is_not_played(self, played: Path) -> None:
        found = ask(
            played,
            "SELECT verdict, count(*) AS n FROM tables.proposal_checks "
            "WHERE proposal_id LIKE 'prop-g0001-anchor-%' OR proposal_id LIKE 'prop-g0002-anchor-%' GROUP BY 1",
        )
        verdicts = {each["verdict"]: each["n"] for each in found}
        assert verdicts["valid"] and verdicts["duplicate"]
        anchors = ask(played, "SELECT program_key FROM problems WHERE teacher_id = 'anchor'")
        assert len({each["program_key"] for each in anchors}) == len(anchors) == verdicts["valid"]

    def test_students_learn_from_them_and_teachers_see_them(self, played: Path) -> None:
        learnt = ask(
            played,
            "SELECT count(*) AS n FROM attempts JOIN problems USING (problem_id) "
            "WHERE teacher_id = 'anchor' AND advantage <> 0",
        )
        shown = ask(
            played,
            "SELECT count(*) AS n FROM (SELECT unnest(reference_ids) AS id FROM proposals) WHERE id LIKE '%-anchor-%'",
        )
        assert learnt[0]["n"] > 0 and shown[0]["n"] > 0

    def test_figures_tell_them_from_the_teachers_problems(self, played: Path) -> None:
        for figures in ("figures_generation", "figures_type"):
            told = ask(played, f"SELECT sum(problems) AS own, sum(anchors) AS anchors FROM {figures}")
            counted = ask(
                played,
                "SELECT count(*) FILTER (teacher_id <> 'anchor') AS own, "
                "count(*) FILTER (teacher_id = 'anchor') AS anchors FROM problems",
            )
            assert told == counted and counted[0]["anchors"] > 0

    def test_a_data_set_that_has_changed_has_nothing_made_again(
        self, played: Path, data_set: Path, tmp_path: Path
    ) -> None:
        run = Run.open(shutil.copytree(played, tmp_path / "run"))
        before = data_set.read_text()
        try:
            write_lines(data_set, [row(1)])
            with Session(run) as session, pytest.raises(ProblemError, match="has changed since generation 1"):
                train(session, 3)
            with Session(fork(run, 2, tmp_path / "fork", run.config)) as session:
                train(session, 2)
                (made, *_) = rerun(session, 2, "verify")
            assert not made.reused, "what the fork took over is made again with its own data set"
            data_set.write_text(before)
            with Session(run) as session:
                train(session, 2)
        finally:
            data_set.write_text(before)
        assert contents(run.directory) == contents(played)
        assert set(commits(run.directory).values()) == {1}

    def test_its_data_set_marks_them_and_can_be_one_of_anchors(self, played: Path, tmp_path: Path) -> None:
        write_curriculum([played], tmp_path / "set")
        rows = read_rows(tmp_path / "set" / "problems" / "train.parquet")
        anchors = sum(each["teacher_id"] == "anchor" for each in rows)
        assert f"{anchors} are anchors" in (tmp_path / "set" / CARD).read_text()
        again = drawn(settings(0.5, path=str(tmp_path / "set")), {"code_o": 1000})
        assert len(again["code_o"]) == len(rows) > anchors > 0
