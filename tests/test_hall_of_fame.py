"""The hall of fame in a run: past members play as they were, learn nothing, and stay though the run is pruned."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import ask, contents

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
    played = ask(finished_with_a_past, PLAYED)
    wrote = ask(
        finished_with_a_past,
        """SELECT DISTINCT generation, member_id, role FROM (
               SELECT generation, teacher_id AS member_id FROM proposals
               UNION ALL SELECT generation, student_id FROM attempts
           ) JOIN members USING (member_id) WHERE generation > died_generation ORDER BY ALL""",
    )
    (tokens,) = ask(
        finished_with_a_past,
        """SELECT sum(prompt_tokens + generated_tokens) AS counted,
                  (SELECT sum(sampled_tokens) FROM figures_generation) AS sampled FROM tokens""",
    )
    (past,) = ask(
        finished_with_a_past,
        """SELECT sum(generated_tokens) AS written, sum(trained_tokens) AS trained
           FROM tokens JOIN members USING (member_id) WHERE generation > died_generation""",
    )
    assert {row["role"] for row in played} == {"teacher", "student"}
    assert [row for row in played if row["role"] == "teacher"] == [
        row for row in wrote if row["role"] == "teacher"
    ]
    assert not ask(
        finished_with_a_past,
        "FROM adapters JOIN members USING (member_id) WHERE generation > died_generation",
    )
    assert tokens["counted"] == tokens["sampled"], "what past members cost is counted too"
    assert past["written"] > 0 and past["trained"] == 0


def test_anchors_are_asked_of_students_that_learn_from_them(finished_with_a_past: Path) -> None:
    asked = ask(
        finished_with_a_past,
        """SELECT DISTINCT attempts.generation, died_generation FROM attempts JOIN problems USING (problem_id)
           JOIN members ON student_id = member_id WHERE problems.teacher_id = 'anchor'""",
    )
    played = {row["generation"] for row in ask(finished_with_a_past, PLAYED) if row["role"] == "student"}
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
    played = ask(run.directory, PLAYED)
    teacher = next(row["member_id"] for row in played if (row["generation"], row["role"]) == (3, "teacher"))
    (member,) = ask(run.directory, f"SELECT * FROM members WHERE member_id = '{teacher}'")
    (run.directory / member["adapter_path"] / WEIGHTS).unlink()
    with Session(run) as session, pytest.raises(AdapterError, match=teacher):
        rerun(session, 3, "propose")
