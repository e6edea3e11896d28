"""Refills: others are written for what was no new problem, until as many problems are new as were asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ask, small_config, start

from populora_core.runs.session import Session
from populora_core.stages.decisive import decisive
from populora_core.stages.engine import run_generation, run_stage
from populora_core.stages.table import LOOP, STAGES, as_configured, stages_of

ASKED = 6
REFILLED = small_config(
    population={"teachers": 2, "students": 1},
    propose={"per_type": ASKED, "types": ("code_o", "code_i"), "temperature": 0.3, "refills": 4},
    anchors={"share": 0.25, "source": "base_model.anchors:tiny"},
)


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose first generation is verified."""
    run = start(tmp_path_factory.mktemp("refills") / "run", REFILLED)
    with Session(run) as session:
        run_generation(session, 0)
        for stage in stages_of(1)[:3]:
            run_stage(session, 1, stage)
    return run.directory


@pytest.mark.loop
@pytest.mark.sandbox
def test_teachers_write_until_as_many_are_new_as_were_asked_for(verified: Path) -> None:
    rows = ask(
        verified,
        """SELECT count(*) AS proposals, count(problem_id) AS problems, count(*) FILTER (verdict = 'duplicate') AS again
           FROM proposals GROUP BY teacher_id, problem_type""",
    )
    assert [row["problems"] for row in rows] == [ASKED] * 4
    assert sum(row["again"] for row in rows) > 0 and sum(row["proposals"] for row in rows) > 4 * ASKED


@pytest.mark.loop
@pytest.mark.sandbox
def test_refills_bring_no_further_anchors(verified: Path) -> None:
    rows = ask(
        verified, "SELECT count(*) AS n FROM problems WHERE teacher_id = 'anchor' GROUP BY problem_type"
    )
    assert [row["n"] for row in rows] == [REFILLED.anchors.beside(2 * ASKED)] * 2


def test_without_refills_no_key_knows_of_them() -> None:
    plain = small_config()
    assert all(as_configured(stage, plain) == stage for stage in LOOP)
    assert "refills" not in decisive(plain, ("propose",))["propose"]


def test_refills_follow_from_what_decides_a_new_problem() -> None:
    propose, verify = (as_configured(STAGES[name], REFILLED) for name in ("propose", "verify"))
    assert propose.sandbox and {"sandbox", "verify"} <= set(propose.config)
    assert "propose" in verify.config
    assert decisive(REFILLED, propose.config)["propose"]["refills"] == 4
