"""The benchmark of large populations: its rows, and that what it times is the project's own work."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench import analytics, scale
from made_runs.repeated import EVERY, SyntheticRun
from made_runs.scaled import ATTEMPTS, PER_TYPE, TYPES, VALID, ScaledRun
from populora_core.config.sections import RatingSection
from populora_core.population.member import Member
from populora_core.population.rating import Match, Outcome, rate
from populora_core.store.catalogue import Catalogue, publish

PARTS = ("match", "grade", "ratings", "selection", "catalogue", "store")


@pytest.fixture(scope="module")
def scaled(tmp_path_factory):
    run = ScaledRun(tmp_path_factory.mktemp("scaled") / "run", members=6)
    yield run
    run.close()


@pytest.mark.thorough
def test_the_rows_name_each_part_with_its_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = dict(list(analytics.questions().items())[:2])
    monkeypatch.setattr(scale, "questions", lambda: asked)
    rows = {row.name: row for row in scale.members(1, lambda line: None, sizes=(2, 4, 6))}
    for part in PARTS:
        assert rows[f"seconds.{part}"].goal == "<= 5"
        assert rows[f"growth_2_to_6.{part}"].goal == "<= 1"
        assert {
            f"seconds.{part}.2_members",
            f"seconds.{part}.4_members",
            f"marginal.{part}",
            f"cpu_seconds.{part}",
        } <= rows.keys()
        assert rows[f"seconds.{part}"].value > 0.0
    assert rows["growth_2_to_6"].value == max(rows[f"growth_2_to_6.{part}"].value for part in PARTS)


def test_a_generation_has_the_rows_that_are_stated(scaled: ScaledRun) -> None:
    teachers = 3
    proposals, problems = teachers * len(TYPES) * PER_TYPE, teachers * len(TYPES) * VALID
    assert len(scaled.rows("match", "matches")) == teachers
    assert len(scaled.rows("propose", "proposals")) == proposals
    assert len(scaled.rows("verify", "problems")) == problems
    assert len(scaled.rows("solve", "attempts")) == problems * ATTEMPTS
    assert len({row["program"] for row in scaled.rows("verify", "problems")}) == problems


def test_grading_judges_every_answer_by_what_the_sandbox_knows(scaled: ScaledRun) -> None:
    grades = scaled.rows("grade", "attempt_grades")
    verdicts = Counter(row["verdict"] for row in grades)
    assert verdicts.keys() == {"correct", "wrong", "format_error"}
    assert min(verdicts["correct"], verdicts["wrong"]) > len(grades) // 4


def test_the_ratings_that_are_timed_are_those_of_the_stage(scaled: ScaledRun) -> None:
    outcomes = {row["match_id"]: row["outcome"] for row in scaled.rows("grade", "match_results")}
    matches = [
        Match(row["teacher_id"], row["student_id"], Outcome(outcomes[row["match_id"]]))
        for row in scaled.rows("match", "matches")
    ]
    before = {row["member_id"]: Member.of(row).rating for row in scaled.rows("evolve", "population")}
    after = rate(matches, before, RatingSection())
    assert {row["member_id"]: row["mu"] for row in scaled.rows("grade", "ratings")} == {
        name: rating.mu for name, rating in after.items()
    }


def test_storing_puts_every_adapter_and_stage_in_its_place(scaled: ScaledRun, tmp_path: Path) -> None:
    parts = scale.Parts(scaled, tmp_path)
    with parts.storing() as store:
        store()
        assert len(list((tmp_path / "stored" / "members").glob("*/g0001/adapter_config.json"))) == 6
        folders = list((tmp_path / "stored" / "generations" / "0001").iterdir())
        assert {folder.name for folder in folders} == scaled.tables.keys()
    assert not (tmp_path / "stored").exists()


@pytest.mark.thorough
def test_a_long_run_tells_one_generation_again_under_numbers_of_its_own(tmp_path: Path) -> None:
    pattern = ScaledRun(tmp_path / "pattern", members=8)
    pattern.close()
    SyntheticRun(tmp_path / "long", pattern).write(EVERY + 1)
    publish(tmp_path / "long")
    with Catalogue(tmp_path / "long") as catalogue:

        def numbers(sql: str) -> list[int]:
            return list(catalogue.query(sql).arrow().to_pylist()[0].values())

        attempts = len(pattern.rows("solve", "attempts"))
        told = numbers(
            "SELECT count(*), count(DISTINCT attempt_id), count(DISTINCT problem_id) FROM attempts"
        )
        assert told == [(EVERY + 1) * attempts] * 2 + [(EVERY + 1) * attempts // ATTEMPTS]
        children = "SELECT child_id FROM evolutions"
        assert numbers(f"SELECT count(*) FROM ({children})") == [2], "one of four in each role"
        after = f"generation > {EVERY} AND"
        assert numbers(f"SELECT count(*) FROM matches WHERE {after} teacher_id IN ({children})") == [1]
