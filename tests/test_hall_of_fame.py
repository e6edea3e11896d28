"""The hall of fame in a run: past members play as they were, learn nothing, and stay though the run is pruned."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import contents

from populora_core import open_run
from populora_core.lifecycle.loop import rerun
from populora_core.lifecycle.pruning import prune
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.store.adapters import WEIGHTS
from populora_core.support.errors import AdapterError

pytestmark = [pytest.mark.loop, pytest.mark.sandbox, pytest.mark.thorough]

PLAYED = """
    SELECT generation, member_id, role FROM (
        SELECT generation, teacher_id AS member_id, match_id FROM matches
        UNION ALL SELECT generation, student_id, match_id FROM matches
    ) JOIN members USING (member_id) WHERE generation > died_generation ORDER BY ALL
"""


def test_past_members_of_both_roles_play_write_and_answer_and_never_learn(finished_with_a_past: Path) -> None:
    with open_run(finished_with_a_past) as catalogue:
        played = catalogue.rows(PLAYED)
        wrote = catalogue.rows(
            """SELECT DISTINCT generation, member_id, role FROM (
                   SELECT generation, teacher_id AS member_id FROM proposals
                   UNION ALL SELECT generation, student_id FROM attempts
               ) JOIN members USING (member_id) WHERE generation > died_generation ORDER BY ALL"""
        )
        learnt = catalogue.rows(
            "SELECT * FROM adapters JOIN members USING (member_id) WHERE generation > died_generation"
        )
        (tokens,) = catalogue.rows(
            """SELECT sum(prompt_tokens + generated_tokens) AS counted,
                      (SELECT sum(sampled_tokens) FROM figures_generation) AS sampled FROM tokens"""
        )
        past = catalogue.rows(
            """SELECT sum(generated_tokens) AS written, sum(trained_tokens) AS trained
               FROM tokens JOIN members USING (member_id) WHERE generation > died_generation"""
        )
    assert {row["role"] for row in played} == {"teacher", "student"}
    assert [row for row in played if row["role"] == "teacher"] == [
        row for row in wrote if row["role"] == "teacher"
    ]
    assert learnt == []
    assert tokens["counted"] == tokens["sampled"], "what past members cost is counted too"
    assert past[0]["written"] > 0 and past[0]["trained"] == 0


def test_anchors_are_asked_of_students_that_learn_from_them(finished_with_a_past: Path) -> None:
    with open_run(finished_with_a_past) as catalogue:
        asked = catalogue.rows(
            """SELECT DISTINCT attempts.generation, died_generation FROM attempts JOIN problems USING (problem_id)
               JOIN members ON student_id = member_id WHERE problems.teacher_id = 'anchor'"""
        )
        past = catalogue.rows(PLAYED)
    played = {row["generation"] for row in past if row["role"] == "student"}
    assert played & {row["generation"] for row in asked}, "a past student was there to be passed over"
    assert all(row["died_generation"] is None or row["died_generation"] >= row["generation"] for row in asked)


def test_a_pruned_run_still_has_its_past_and_one_that_lost_it_says_so(
    finished_with_a_past: Path, tmp_path: Path
) -> None:
    run = Run.open(shutil.copytree(finished_with_a_past, tmp_path / "copy"))
    before = contents(run.directory)
    prune(run, keep=1)
    with Session(run) as session:
        rerun(session, 3, "propose")
    assert contents(run.directory) == before
    with open_run(run.directory) as catalogue:
        teacher = next(
            row for row in catalogue.rows(PLAYED) if (row["generation"], row["role"]) == (3, "teacher")
        )
        (member,) = catalogue.rows(f"SELECT * FROM members WHERE member_id = '{teacher['member_id']}'")
    (run.directory / member["adapter_path"] / WEIGHTS).unlink()
    with Session(run) as session, pytest.raises(AdapterError, match=teacher["member_id"]):
        rerun(session, 3, "propose")
