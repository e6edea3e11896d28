"""The archive: a cell keeps its best problem, whatever comes after it and however the problems come."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import contents, small_config
from hypothesis import given
from hypothesis import strategies as st

from populora_core.lifecycle.loop import fork, train
from populora_core.problems.archive import Archive, Graded, learnability
from populora_core.problems.coverage import Cell, Construct
from populora_core.problems.model import Problem
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.engine import run_stage
from populora_core.stages.table import STAGES
from populora_core.store.catalogue import Catalogue

CELLS = [
    Cell((depth, 0, lines, 0), made_of)
    for depth in (2, 3)
    for lines in (0, 9)
    for made_of in ((), (Construct.LOOP,))
]
FOUND = st.lists(
    st.tuples(st.sampled_from(["code_o", "code_i"]), st.sampled_from(CELLS), st.integers(0, 8)), max_size=60
)


def graded(found: list[tuple[str, Cell, int]]) -> list[Graded]:
    return [
        Graded(
            Problem(f"p{i:02d}", kind, f"def f(x):\n return {i}", ("(1,)",), (f"{i}",), ""),
            cell,
            2,
            correct / 8,
        )
        for i, (kind, cell, correct) in enumerate(found)
    ]


def best_of_every_cell(batch: list[Graded], kind: str) -> list[str]:
    best: dict[Cell, Graded] = {}
    for each in batch:
        if each.problem.problem_type == kind:
            held = best.get(each.cell)
            if held is None or learnability(each.solve_rate) > learnability(held.solve_rate):
                best[each.cell] = each
    return sorted(each.problem.problem_id for each in best.values())


def test_of_an_elite_that_was_asked_again_the_newest_solve_rate_counts() -> None:
    (first, other), archive = graded([("code_o", CELLS[0], 4), ("code_o", CELLS[0], 6)]), Archive()
    archive.add([first, replace(first, solve_rate=1.0), other])
    assert archive.elites("code_o") == [other.problem]


def test_half_solved_problems_are_the_most_learnable() -> None:
    assert [learnability(p) for p in (0.0, 0.25, 0.5, 1.0)] == [0.0, 0.1875, 0.25, 0.0]


@given(FOUND)
def test_every_cell_holds_its_most_learnable_problem_the_first_of_equals(
    found: list[tuple[str, Cell, int]],
) -> None:
    archive = Archive()
    archive.add(graded(found))
    for kind in ("code_o", "code_i"):
        elites = [problem.problem_id for problem in archive.elites(kind)]
        assert elites == best_of_every_cell(graded(found), kind)


def test_elites_are_those_of_a_grid_of_pyribs() -> None:
    """Recorded with `GridArchive` of pyribs 0.12: eight bins a measure, so that sizes beyond the last share it."""
    found = [
        ("code_o", Cell((i * 7 % 11, 1, i % 3, 0), (Construct.LOOP,) if i % 5 == 0 else ()), i * 5 % 9)
        for i in range(60)
    ]
    archive = Archive()
    archive.add(graded(found))
    recorded = (
        "p00 p01 p02 p05 p06 p07 p08 p10 p15 p17 p19 p20 p21 p22 p24 p25 p26 p27 p29 p30 p32 p33 p35 p37 p38 p40"
        " p43 p44 p45 p46 p48 p49 p51 p55"
    )
    assert [problem.problem_id for problem in archive.elites("code_o")] == recorded.split()


@given(FOUND, st.data())
def test_a_rebuilt_archive_equals_one_that_grew(
    found: list[tuple[str, Cell, int]], data: st.DataObject
) -> None:
    batch = graded(found)
    whole, grown = Archive(), Archive()
    whole.add(batch)
    while batch:
        taken = data.draw(st.integers(1, len(batch)))
        grown.add(batch[:taken])
        batch = batch[taken:]
    for kind in ("code_o", "code_i"):
        assert grown.elites(kind) == whole.elites(kind)


def test_sampling_follows_the_generator_and_shows_every_cell_equally_often() -> None:
    archive = Archive()
    archive.add(graded([("code_o", CELLS[0], 4)] * 90 + [("code_o", CELLS[1], 1)]))
    assert archive.sample("code_o", 2, np.random.default_rng(5)) == archive.sample(
        "code_o", 2, np.random.default_rng(5)
    )
    drawn = [archive.sample("code_o", 1, np.random.default_rng(seed))[0].problem_id for seed in range(200)]
    assert set(drawn) == {"p00", "p90"}
    assert 60 < drawn.count("p90") < 140


def test_sampling_gives_what_there_is() -> None:
    archive = Archive()
    assert archive.sample("code_f", 2, np.random.default_rng(0)) == []
    archive.add(graded([("code_f", CELLS[0], 0)]))
    assert len(archive.sample("code_f", 2, np.random.default_rng(0))) == 1


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_teachers_see_elites_of_earlier_generations_and_the_stage_can_be_redone(
    finished: Path, tmp_path: Path
) -> None:
    config = small_config(propose={"reference_source": "archive"})
    with Session(fork(Run.open(finished), 2, tmp_path / "run", config)) as session:
        train(session, 3)
        before = contents(tmp_path / "run")
        run_stage(session, 3, STAGES["propose"], force=True)
    assert contents(tmp_path / "run") == before
    with Catalogue(tmp_path / "run") as catalogue:
        shown = catalogue.rows(
            "SELECT DISTINCT unnest(reference_ids) AS id FROM proposals WHERE generation = 3"
        )
        rates = {
            row["problem_id"]: (row["problem_type"], row["cell"], row["solve_rate"])
            for row in catalogue.rows("FROM problems WHERE generation < 3 AND solve_rate IS NOT NULL")
        }
    assert shown
    for row in shown:
        kind, cell, rate = rates[row["id"]]
        rivals = [r for k, c, r in rates.values() if (k, c) == (kind, cell)]
        assert learnability(rate) == max(map(learnability, rivals))
