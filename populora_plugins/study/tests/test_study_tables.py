"""The report of a study says what a verdict follows from, and at which budget."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from test_study_claims import answered, as_the_paper_says, made, study_of, write_planted

from populora_core.report.charts import MOST_ROWS, Series, line_plot
from populora_core.report.palette import LINES
from populora_core.report.text import percent
from populora_plugins.study.budget import JUDGED, Basis
from populora_plugins.study.claims import CLAIMS
from populora_plugins.study.judgement import ClaimResult, Verdict, overall
from populora_plugins.study.report import render
from populora_plugins.study.statistics import Test
from populora_plugins.study.summary import Summary, Value
from populora_plugins.study.tables import arms_table, benchmarks_table, claims_table, deciding, why
from populora_plugins.study.verdicts import Results, read_results

CLAIM = next(claim for claim in CLAIMS if claim.key == "ast_depth")  # its margin is 0.25


def answer(
    basis: Basis,
    verdict: Verdict,
    value: float,
    low: float,
    high: float,
    met: bool | None = True,
    p: float = 0.01,
) -> ClaimResult:
    test = Test(value, low, high, 1.0, p)
    return ClaimResult(CLAIM, basis, verdict, test, p, {}, {"rises in the population": met})


def of_bases(*told: Sequence) -> list[ClaimResult]:
    return [answer(basis, *own) for basis, own in zip(JUDGED, told, strict=True)]


REPRODUCED = of_bases(
    (Verdict.REPRODUCED, 0.9, 0.5, 1.3),
    (Verdict.REPRODUCED, 0.4, 0.3, 0.5),
    (Verdict.REPRODUCED, 0.8, 0.5, 1.0),
)
NOT_REPRODUCED = of_bases(
    (Verdict.NOT_REPRODUCED, -0.9, -1.3, -0.5),
    (Verdict.NOT_REPRODUCED, -0.1, -0.4, 0.2),
    (Verdict.NOT_REPRODUCED, 0.6, 0.1, 1.1, False),
)
SPLIT = of_bases(
    (Verdict.NOT_REPRODUCED, -0.9, -1.3, -0.5),
    (Verdict.CANNOT_TELL, 0.2, -0.1, 0.5, None, 0.3),
    (Verdict.REPRODUCED, 0.8, 0.5, 1.0),
)


def test_a_row_shows_the_basis_on_which_its_verdict_is_hardest_to_hold() -> None:
    assert [own.basis for own in deciding(Verdict.REPRODUCED, REPRODUCED)] == [Basis.TRAINED]
    assert [own.basis for own in deciding(Verdict.NOT_REPRODUCED, NOT_REPRODUCED)] == [Basis.TOTAL]
    assert [own.basis for own in deciding(Verdict.CANNOT_TELL, SPLIT)] == list(JUDGED)


def test_why_names_conditions_and_the_bases_on_which_they_are_so() -> None:
    assert why(REPRODUCED) == "effect beyond the margin, significant, every condition met"
    assert why(NOT_REPRODUCED) == (
        "the whole interval is at or below the margin (updates, trained tokens); "
        "not so: rises in the population (tokens of all)"
    )
    assert overall(SPLIT) is Verdict.CANNOT_TELL
    assert why(SPLIT) == (
        "not reproduced (updates); cannot tell (trained tokens); reproduced (tokens of all); "
        "the whole interval is at or below the margin (updates); "
        "unclear: rises in the population (trained tokens); not significant (trained tokens); "
        "effect below the margin (trained tokens); "
        "effect beyond the margin, significant, every condition met (tokens of all)"
    )


@pytest.mark.parametrize("seeds", [0, 2, 4])
def test_too_few_seeds_are_the_reason_that_is_given(seeds: int) -> None:
    groups = study_of(as_the_paper_says, seeds=seeds) if seeds else [[], []]
    by_basis = [answered(*groups, basis) for basis in JUDGED]
    table = claims_table(
        [(claim, overall(own), own) for claim, own in zip(CLAIMS, zip(*by_basis, strict=True), strict=True)]
    )
    for row in table.rows:
        assert row["verdict"] == "cannot tell"
        assert row["why"], row["claim"]


def results_of(*runs: Summary) -> Results:
    return Results("planted", "pop-4+4", ("solo", "pop-4+4", "short"), runs, solo="solo")


def test_an_arm_that_spends_less_than_the_claims_budget_has_no_row_and_lowers_no_other() -> None:
    (population,), (solo,) = study_of(as_the_paper_says, seeds=1)
    few = tuple(value for value in population.values if value.generation <= 5)
    short = Summary(replace(population.origin, arm="short"), few)
    table = arms_table(results_of(population, solo, short), Basis.TOTAL)
    assert [row["arm"] for row in table.rows] == ["solo", "pop-4+4"]
    assert table == arms_table(results_of(population, solo), Basis.TOTAL)
    assert "720,000" in table.title, "120 generations of solo"


def test_scores_stand_by_benchmark_beside_the_base() -> None:
    run = made("pop-4+4", 0, lambda arm, progress, rng: {})
    scores = [("base", 0.3), ("student-00", 0.4), ("student-01", 0.6), ("teacher-00", 0.1)]
    values = [Value(15, f"held_out{kind}", part, score) for part, score in scores for kind in ("", ".code_o")]
    values += [Value(0, "held_out", "student-00", 0.0)]
    table = benchmarks_table(results_of(Summary(run.origin, tuple(values))))
    assert table.rows == [
        {"arm": "base", "all": percent(0.3), "code_o": percent(0.3)},
        {"arm": "pop-4+4", "all": percent(0.5), "code_o": percent(0.5)},
    ]


def test_lines_end_at_the_budget_of_both_and_the_base_is_drawn(tmp_path: Path) -> None:
    page = render(read_results(write_planted(tmp_path)))
    learning = page[page.index('id="learning"') : page.index('id="complexity"')]
    spent = [float(told.replace(",", "")) for told in re.findall(r"<tr data-x=[^>]+><td>([\d,.]+)", learning)]
    assert max(spent) == 60.0, "solo goes on to 240"
    held_out = page[page.index('id="held-out"') : page.index('id="runs"')]
    assert re.search(r">base</text>", held_out)


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_the_table_behind_a_plot_tells_of_every_line_whatever_x_counts(scale: float) -> None:
    first = Series("first", LINES[0], [(scale * x, 1.0) for x in range(1, 11)])
    second = Series("second", LINES[1], [(scale * (x + 0.3), 2.0) for x in range(1, 11)])
    plot = line_plot("plot", "", "unit", [first, second], along="tokens")
    assert plot is not None and plot.table is not None
    assert plot.table.header == ("tokens", "first", "second")
    assert len(plot.table.rows) == 20
    assert all(cells[1:] == ("1", "2") for _, cells in plot.table.rows)


def test_the_table_of_a_long_run_is_thinned_and_keeps_the_newest() -> None:
    line = Series("a", LINES[0], [(x, float(x)) for x in range(1, 1001)])
    plot = line_plot("plot", "", "unit", [line])
    assert plot is not None and plot.table is not None
    assert len(plot.table.rows) <= MOST_ROWS
    assert plot.table.rows[-1][1] == ("1000", "1000")
