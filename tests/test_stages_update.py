"""update in a run: who learns, in how many steps, and from whose rewards."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest
from conftest import small_config, start
from typer.testing import CliRunner

from populora_core import open_run
from populora_core.commands.app import app
from populora_core.config.load import apply_overrides
from populora_core.lifecycle.loop import fork, rerun
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.decisive import decisive
from populora_core.stages.engine import run_generation
from populora_core.stages.update import own_groups
from populora_core.support import trust

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]

HERE = "test_stages_update"


def rewards_as_they_are(rewards, groups, cohorts, *, std_floor, clip):
    """An estimator that shows what it was given."""
    return list(rewards)


PAIR = {
    "population": {"teachers": 1, "students": 1},
    "propose": {"per_type": 8, "types": ("code_o", "code_i")},
    "solve": {"attempts": 4},
}


def played(directory: Path, **sections: dict) -> Path:
    """One generation of one teacher and one student."""
    config = small_config(**PAIR | sections)
    with Session(start(directory, config)) as session:
        run_generation(session, 0)
        run_generation(session, 1)
    return directory


def test_students_alone_learn_in_minibatches_held_to_the_base(tmp_path: Path) -> None:
    settings = {"roles": "students", "minibatches": 2, "kl": 0.1, "estimator": "maxrl", "token_mean": "type"}
    run = played(tmp_path / "run", update=settings)
    with open_run(run) as catalogue:
        (teacher,) = catalogue.rows("SELECT * FROM updates WHERE role = 'teacher'")
        (student,) = catalogue.rows("SELECT * FROM updates WHERE role = 'student'")
        hashes = catalogue.rows(
            "SELECT count(DISTINCT adapter_sha256) AS kept FROM tables.population WHERE role = 'teacher'"
        )
        (tokens,) = catalogue.rows("SELECT sum(updates) AS updates FROM tokens")
    assert (teacher["steps"], teacher["n_rows"], teacher["kl"]) == (0, 0, None)
    assert hashes == [{"kept": 1}]
    assert student["steps"] == tokens["updates"] == 2
    assert student["kl"] > 0.0  # at the second step it is no longer the base


@pytest.mark.parametrize("students", [1, 2, 3, 4])
@pytest.mark.parametrize("minibatches", [2, 3, 4])
def test_every_minibatch_has_an_even_share_of_each_students_problems_and_anchors(
    students: int, minibatches: int
) -> None:
    asked = [(f"student-{number % students}", f"own-{number}") for number in range(8 * students)]
    asked.sort()  # a teacher's problems come together
    asked += [(f"student-{number % students}", f"anchor-{number}") for number in range(8 * students)]
    rows = [row for row in asked for _ in range(2)]  # two attempts each
    shares = Counter(
        (member, problem_id.partition("-")[0], group % minibatches)
        for (member, problem_id), group in zip(rows, own_groups(*zip(*rows, strict=True)), strict=True)
    )
    assert max(shares.values()) - min(shares.values()) <= 2, "one problem of two attempts"
    assert len(shares) == students * 2 * minibatches


def test_teachers_may_learn_at_a_rate_of_their_own_and_rewards_be_shuffled(tmp_path: Path) -> None:
    trust.remember([f"{HERE}:rewards_as_they_are"])
    shown = f"{HERE}:rewards_as_they_are"
    settings = {"teacher_learning_rate": 1e-4, "shuffle_rewards": True, "estimator": shown}
    run = played(tmp_path / "run", update=settings)
    with open_run(run) as catalogue:
        rates = {
            row["role"]: row["learning_rate"]
            for row in catalogue.rows("SELECT role, learning_rate FROM updates")
        }
        attempts = catalogue.rows(
            "SELECT student_id, problem_type, reward, advantage FROM attempts JOIN problems USING (problem_id)"
        )
    assert rates == {"teacher": 1e-4, "student": 2e-3}
    paid, dealt = defaultdict(Counter), defaultdict(Counter)
    for row in attempts:
        cohort = row["student_id"], row["problem_type"]
        paid[cohort][row["reward"]] += 1
        dealt[cohort][row["advantage"]] += 1
    assert dealt == paid
    assert any(row["reward"] != row["advantage"] for row in attempts)


def test_completions_count_at_the_temperature_at_which_the_run_before_the_fork_drew_them(
    finished: Path, tmp_path: Path
) -> None:
    source = Run.open(finished)
    hotter = apply_overrides(source.config, ["propose.temperature=0.5", "solve.temperature=2.0"])
    forked = fork(source, 1, tmp_path / "fork", hotter)
    with Session(forked) as session:
        rerun(session, 1, "update")
    with open_run(forked.directory) as catalogue:
        rows = catalogue.rows("SELECT logprob_mismatch AS apart FROM updates WHERE steps > 0")
    assert rows and all(row["apart"] < 1e-3 for row in rows)


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one generation, many of whose answers max_tokens cut."""
    return played(
        tmp_path_factory.mktemp("cut") / "run",
        propose={"per_type": 8, "types": ("code_o",)},
        solve={"attempts": 4, "max_tokens": 6},
        grade={"cut_answers": "judge"},
        update={"cut_completions": "mask"},
    )


def test_what_was_cut_teaches_no_one_where_it_is_masked(cut: Path) -> None:
    with open_run(cut) as catalogue:
        rows = catalogue.rows("SELECT finish_reason, reward, advantage FROM attempts")
    short = [row for row in rows if row["finish_reason"] == "length"]
    assert 0 < len(short) < len(rows)
    assert all(row["advantage"] is None and row["reward"] is not None for row in short)
    assert all(row["advantage"] is not None for row in rows if row["finish_reason"] == "stop")


def test_inspect_says_which_answers_were_cut(cut: Path) -> None:
    with open_run(cut) as catalogue:
        (row, *_) = catalogue.rows(
            "SELECT problem_id, count(*) FILTER (finish_reason = 'length') AS short FROM attempts "
            "GROUP BY 1 ORDER BY 2 DESC"
        )
    shown = CliRunner().invoke(app, ["inspect", str(cut), "--problem", row["problem_id"]]).output
    assert row["short"] and shown.count("(cut by max_tokens)") == row["short"]


def test_settings_that_came_later_are_in_no_key_until_they_are_used() -> None:
    stages = ("grade", "update")
    plain = decisive(small_config(), stages)
    assert "cut_answers" not in plain["grade"] and "cut_completions" not in plain["update"]
    used = decisive(small_config(grade={"cut_answers": "judge"}, update={"cut_completions": "mask"}), stages)
    assert used["grade"]["cut_answers"] == "judge" and used["update"]["cut_completions"] == "mask"
