"""grade in a run: who stays eligible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import small_config, start

from populora_core import open_run
from populora_core.problems.grading import ProposalCheck, check_proposals
from populora_core.problems.verdicts import ProposalVerdict
from populora_core.runs.session import Session
from populora_core.stages.engine import run_generation

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]

WINDOW = 2
SUCCESSES = """
    SELECT generation, student_id AS member_id FROM attempts WHERE verdict = 'correct'
    UNION SELECT generation, teacher_id FROM proposals WHERE verdict = 'valid'
"""
PLAYED = "SELECT generation, unnest([teacher_id, student_id]) AS member_id FROM matches"


def test_only_generations_with_a_match_count_against_a_member(tmp_path: Path) -> None:
    config = small_config(
        population={"teachers": 1, "students": 4},
        propose={"per_type": 2, "types": ("code_o",)},
        solve={"attempts": 1},
        grade={"eligible_window": WINDOW},
    )
    with Session(start(tmp_path / "run", config)) as session:
        for generation in range(6):
            run_generation(session, generation)
    with open_run(tmp_path / "run") as catalogue:
        succeeded, played = (
            {(row["generation"], row["member_id"]) for row in catalogue.rows(query)}
            for query in (SUCCESSES, PLAYED)
        )
        rows = catalogue.rows("SELECT * FROM ratings WHERE generation > 0 ORDER BY generation")
    missed, idle = Counter[str](), Counter[str]()
    for row in rows:
        member, at = row["member_id"], (row["generation"], row["member_id"])
        missed[member] = 0 if at in succeeded else missed[member] + (at in played)
        idle[member] = 0 if at in played else idle[member] + 1
        assert row["eligible"] == (missed[member] < WINDOW), at
    assert max(idle.values()) > WINDOW, "someone waited longer than the window"


def test_a_generation_that_the_sandbox_lost_counts_against_no_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*asked: Any) -> Sequence[ProposalCheck]:
        return [
            replace(check, verdict=ProposalVerdict.INFRASTRUCTURE, outputs=())
            for check in check_proposals(*asked)
        ]

    config = small_config(
        population={"teachers": 1, "students": 1},
        propose={"per_type": 2, "types": ("code_o",)},
        solve={"attempts": 1},
        grade={"eligible_window": 1},
    )
    monkeypatch.setattr("populora_core.stages.verify.check_proposals", lost)
    with Session(start(tmp_path / "run", config)) as session:
        for generation in range(3):
            run_generation(session, generation)
    with open_run(tmp_path / "run") as catalogue:
        rows = catalogue.rows("SELECT eligible, productive_generation FROM ratings WHERE generation = 2")
        verdicts = catalogue.rows("SELECT DISTINCT verdict FROM proposals")
    assert [row["verdict"] for row in verdicts] == ["infrastructure"]
    assert len(rows) == 2 and all(row["eligible"] for row in rows)
