"""Figures as trackers are told them: a number per name and generation, equal to those of the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from populora_core.report.figures import read_figures
from populora_core.report.metrics import ENTROPY, LOSS, METRICS, SOLVE_RATE
from populora_core.report.scalars import by_generation

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]


def test_figures_are_those_of_the_report(finished: Path) -> None:
    report = read_figures(finished)
    told = by_generation(report)
    assert list(told) == [1, 2, 3]
    for name, points in {
        "solve_rate/all": SOLVE_RATE.points(report, None),
        "solve_rate/code_o": SOLVE_RATE.points(report, "code_o"),
        "entropy/teacher": ENTROPY.points(report, "teacher"),
        "loss/student": LOSS.points(report, "student"),
    }.items():
        assert [(g, own[name]) for g, own in told.items() if name in own] == [
            (g, value) for g, value in points if value is not None
        ]
        assert points
    rated = {row["member_id"]: row for row in report["ratings"] if row["generation"] == 3}
    for member, row in rated.items():
        assert told[3][f"rating_mu/{member}"] == row["mu"]
        assert told[3][f"fitness/{member}"] == row["fitness"]
    (row,) = (row for row in report["figures_generation"] if row["generation"] == 2)
    for what in ("proposals", "attempts"):
        counts = [v for name, v in told[2].items() if name.startswith(f"{what[:-1]}_verdicts/")]
        assert sum(counts) == row[what]
    assert {"stage_seconds/solve", "cumulative_cells", "ast_depth/all"} <= told[1].keys()


def test_names_come_from_keys(finished: Path) -> None:
    told = by_generation(read_figures(finished))
    keys = {metric.key for metric in (*METRICS, LOSS)}
    rows = {"proposal_verdicts", "attempt_verdicts", "rating_mu", "fitness", "stage_seconds", "score"}
    assert {name.partition("/")[0] for own in told.values() for name in own} <= keys | rows
    assert len(keys) == len(METRICS) + 1
