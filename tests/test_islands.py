"""Islands: groups of one population that share nothing but averages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import ask, small_config, start

from populora_core.lifecycle.loop import train
from populora_core.population.islands import anchor_index, island_of, island_of_problem
from populora_core.runs.session import Session
from populora_core.stages.decisive import decisive
from populora_core.stages.table import FOUND, LOOP, as_configured
from populora_core.support import ids

APART: dict[str, dict[str, Any]] = {
    "run": {"generations": 2},
    "population": {"teachers": 4, "students": 4, "islands": 2},
    "match": {"uniform_floor": 1.0},
    "propose": {"per_type": 4, "references": [2, 2]},
    "anchors": {"share": 0.3, "source": "replay", "parameters": {"largest": 1.0}},
    "evolve": {"every": 1, "crossover_probability": 0.0, "last_share": 0.0, "average_every": 2},
}


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two islands with replay, births and an average at its end."""
    run = start(tmp_path_factory.mktemp("islands") / "run", small_config(**APART))
    with Session(run) as session:
        train(session, run.config.run.generations)
    return run.directory


def home(member: str) -> int:
    return island_of(ids.slot_of(member), 2)


@pytest.mark.loop
@pytest.mark.sandbox
def test_members_meet_on_their_island(apart: Path) -> None:
    matches = ask(apart, "SELECT teacher_id, student_id FROM matches")
    assert len(matches) == 8
    assert all(home(row["teacher_id"]) == home(row["student_id"]) for row in matches)


@pytest.mark.loop
@pytest.mark.sandbox
def test_teachers_see_their_islands_problems(apart: Path) -> None:
    shown = ask(
        apart,
        """SELECT r.teacher_id AS reader, q.teacher_id AS writer, q.problem_id
           FROM (SELECT teacher_id, unnest(reference_ids) AS id FROM proposals) r
           JOIN problems q ON q.problem_id = r.id WHERE q.teacher_id IS NOT NULL AND q.generation > 0""",
    )
    assert shown
    for row in shown:
        assert home(row["reader"]) == island_of_problem(row["problem_id"], row["writer"], 2)


@pytest.mark.loop
@pytest.mark.sandbox
def test_students_are_asked_again_what_their_island_was_asked(apart: Path) -> None:
    asked = ask(
        apart,
        """SELECT DISTINCT a.student_id, p.problem_id, p.program, p.problem_type FROM attempts a
           JOIN problems p USING (problem_id) WHERE p.teacher_id = 'anchor'""",
    )
    assert {home(row["student_id"]) for row in asked} == {0, 1}
    before = {
        (row["problem_type"], row["program"], home(row["teacher_id"]))
        for row in ask(
            apart, "SELECT problem_type, program, teacher_id FROM problems WHERE teacher_id LIKE 'teacher-%'"
        )
    }
    for row in asked:
        assert home(row["student_id"]) == island_of_problem(row["problem_id"], ids.ANCHOR, 2)
        assert (row["problem_type"], row["program"], home(row["student_id"])) in before


@pytest.mark.loop
@pytest.mark.sandbox
def test_children_have_parents_of_their_island_and_averages_take_all(apart: Path) -> None:
    born = ask(apart, "SELECT removed_id, parent_ids FROM evolutions")
    assert {home(row["removed_id"]) for row in born} == {0, 1}
    for row in born:
        assert {home(parent) for parent in row["parent_ids"]} == {home(row["removed_id"])}
    averaged = ask(apart, "SELECT member_ids FROM averages")
    assert averaged and all({home(member) for member in row["member_ids"]} == {0, 1} for row in averaged)


@pytest.mark.parametrize("islands", [1, 2, 3])
def test_an_anchor_knows_the_island_that_it_was_drawn_for(islands: int) -> None:
    for island in range(islands):
        for number in range(3):
            anchor = ids.anchor_id(4, "code_o", anchor_index(number, island, islands))
            assert island_of_problem(ids.problem_id(anchor), ids.ANCHOR, islands) == island


def test_one_island_leaves_the_keys_as_they_were() -> None:
    config = small_config()
    assert [as_configured(stage, config) for stage in LOOP] == list(LOOP)
    assert "islands" not in decisive(config, FOUND.config)["population"]
