"""Scores by level: the first hard level is chosen by the base alone, and what fell is shown beside what rose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import small_config
from store_run import commit_stage, item_row, write_run

from populora_core.benchmarks.metrics import Interval
from populora_core.benchmarks.scores import BASE
from populora_core.benchmarks.strata import by_stratum, in_order, level_of
from populora_core.benchmarks.suite import Entry, Suite
from populora_core.commands.console import questions, strata_table
from populora_core.report.figures import read_figures
from populora_core.report.learnt import fallen_most, level_claim
from populora_core.report.notes import notes
from populora_core.report.scored import Scored, of_items
from populora_core.report.text import NARROW
from populora_core.runs.run import Run
from populora_core.store.catalogue import Catalogue
from populora_core.terminal.screen import console
from populora_plugins.pages.dumbbell import Dumbbell, dumbbell_plot
from populora_plugins.pages.lead import strata_plot

SUITE = Suite(suite="tiny", benchmarks=(Entry(benchmark="tiny_code_o", dataset="bundled:tiny.parquet"),))
STUDENTS = ("student-00-g0000", "student-01-g0000")
ANSWERS = {  # level -> right of ten problems: the base, each student
    2: (10, (10, 10)),
    3: (6, (5, 6)),
    4: (3, (9, 8)),
    10: (2, (0, 0)),
}


def rows(generation: int = 1, answers: dict[int, tuple[int, tuple[int, int]]] = ANSWERS) -> list[dict]:
    """Rows of evaluation_items, of which so many are right."""
    made = []
    for level, (base, students) in answers.items():
        for player, right in zip((BASE, *STUDENTS), (base, *students), strict=True):
            for place in range(10):
                row = item_row(generation, player) | {
                    "suite": "tiny",
                    "benchmark": "tiny_code_o",
                    "part": "test",
                }
                row |= {"item_id": f"{level}-{place}", "stratum": f"level {level}", "sample_index": 0}
                made.append(row | {"correct": place < right, "temperature": 0.0})
    return made


def scored_of(answers: dict[int, tuple[int, tuple[int, int]]] = ANSWERS) -> Scored:
    found = of_items(1, SUITE, rows(1, answers))
    assert found is not None
    return found


def test_strata_come_by_level_and_hold_the_same_problems_for_both_sides() -> None:
    found = by_stratum(rows(), SUITE, STUDENTS)
    assert list(found) == ["level 2", "level 3", "level 4", "level 10"]
    ((own, base),) = found["level 4"]
    assert (sum(own) / 10, sum(base) / 10) == (pytest.approx(0.85), pytest.approx(0.3))
    assert in_order(["sum", "level 10", "chain", "level 9"]) == ["level 9", "level 10", "chain", "sum"]
    assert [level_of(name) for name in ("level 7", "level x", "algebra", "")] == [7, None, None, None]


def test_a_suite_of_one_stratum_or_of_none_has_no_table() -> None:
    assert by_stratum([row | {"stratum": ""} for row in rows()], SUITE, STUDENTS) == {}
    assert scored_of({4: ANSWERS[4]}).strata == {}


def test_the_first_hard_level_is_chosen_by_the_base_alone() -> None:
    assert scored_of().first_hard_level() == "level 4"
    better = {level: (base, (10, 10)) for level, (base, _) in ANSWERS.items()}
    assert scored_of(better).first_hard_level() == "level 4"
    assert scored_of({level: (5, own) for level, (_, own) in ANSWERS.items()}).first_hard_level() is None
    claim = level_claim(scored_of()).replace(NARROW, " ")
    assert claim.startswith(
        "Of level 4, the first that the base solves less than half of, solvers get 85 % right ("
    )
    assert claim.endswith("the base 30 %; 10 problems")


def test_the_level_that_fell_most_is_named_beside_it() -> None:
    assert fallen_most(scored_of()).startswith("Of all levels level 10 fell most: −20 points (")
    assert fallen_most(scored_of()).endswith("which may be chance")
    steep = ANSWERS | {10: (10, (0, 0))}
    assert "chance" not in fallen_most(scored_of(steep))
    risen = {level: (base, (10, 10)) for level, (base, _) in ANSWERS.items()}
    assert fallen_most(scored_of(risen)) == ""


def levels_of(source: np.random.Generator, *fallen: float) -> Scored:
    """Seven levels of forty problems: base and solvers solve .6 of each, but for the first ones, which fell so far."""

    def right(share: float) -> list[float]:
        return [float(each) for each in source.random(40) < share]

    shares = [0.6 - fall for fall in fallen] + [0.6] * (7 - len(fallen))
    strata = {f"level {level}": [(right(share), right(0.6))] for level, share in enumerate(shares, 2)}
    return Scored(1, "tiny", [], seed=0, strata=strata)


def test_a_fall_that_would_be_sure_of_one_level_may_be_chance_of_several() -> None:
    several = scored_of(ANSWERS | {10: (5, (0, 0))})
    assert several.by_stratum["level 10"].gain.high < 0
    assert fallen_most(several).endswith("which may be chance")
    alone = replace(several, strata={"level 10": several.strata["level 10"]})
    assert fallen_most(alone).startswith("Of all levels level 10") and "chance" not in fallen_most(alone)


@pytest.mark.thorough
def test_the_lowest_of_many_levels_is_seldom_called_sure_by_chance() -> None:
    source = np.random.default_rng(0)
    told = [fallen_most(levels_of(source)) for _ in range(200)]
    assert sum(bool(each) and "chance" not in each for each in told) <= 200 * 0.05
    real = [fallen_most(levels_of(source, 0.55)) for _ in range(10)]
    named = [each for each in real if each.startswith("Of all levels level 2 fell most")]
    assert len(named) >= 9, "another level may fall further by chance"
    assert not [each for each in named if "chance" in each]


def test_the_plot_joins_base_and_solvers_at_every_level() -> None:
    plot = strata_plot(scored_of())
    assert plot is not None and plot.table is not None
    assert plot.title.replace(NARROW, " ") == "Level 4: from 30 % to 85 % solved"
    assert [cells[0] for _, cells in plot.table.rows] == [f"level {level} (10)" for level in ANSWERS]
    assert "The title names the first level" in plot.says
    assert [cells[1].replace(NARROW, " ") for _, cells in plot.table.rows] == [
        "100 %",
        "60 %",
        "30 %",
        "20 %",
    ]
    assert [key.label for key in plot.keys] == ["base", "solvers"]
    half = Interval(0.5, 0.25, 0.75)
    drawn = dumbbell_plot("t", "s", ("a", "b"), [Dumbbell("x", half, half, Interval(0.0, -0.1, 0.1))])
    assert drawn is not None and str(drawn.drawing).count("<line") == 3
    assert dumbbell_plot("t", "s", ("a", "b"), []) is None


def test_the_plot_speaks_of_a_level_in_its_title_only_where_one_is_there() -> None:
    solved = scored_of({level: (5, own) for level, (_, own) in ANSWERS.items()})
    kinds = replace(scored_of(), strata={"chain": [([1.0], [0.0])], "sum": [([1.0], [0.0])]})
    for plot in (strata_plot(solved), strata_plot(kinds)):
        assert plot is not None and plot.title == "tiny: score by stratum"
        assert plot.says.endswith("lines are 95 % intervals.")


def test_the_table_has_a_line_a_level() -> None:
    with console.capture() as shown:
        console.print(strata_table(scored_of()))
    told = shown.get().replace(NARROW, " ")
    assert "level 10" in told and "30 %" in told and "minus" in told


def test_the_view_says_the_same(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run")
    commit_stage(directory, 1, "evaluate-tiny", {"evaluation_items": rows(), "evaluations": []})
    with Catalogue(directory) as catalogue:
        found = catalogue.rows(
            "SELECT level, n, score, low, high FROM evaluation_strata WHERE member_id = 'base' ORDER BY level"
        )
    assert [(row["level"], row["n"]) for row in found] == [(level, 10) for level in ANSWERS]
    assert [row["score"] for row in found] == [pytest.approx(base / 10) for base, _ in ANSWERS.values()]
    assert all(row["low"] <= row["score"] <= row["high"] <= 1.0 for row in found)


def test_the_question_by_level_is_of_the_suite_and_half_that_the_run_tells_of(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", small_config(), "digest")
    write_run(run.directory)
    assert len(questions(run.directory)) == 1, "nothing is scored"
    halves = [*rows(), *(row | {"part": "validation", "stratum": "kept back"} for row in rows())]
    others = [row | {"suite": "other", "stratum": "elsewhere"} for row in rows()]
    suite = {"suite": SUITE.model_dump(mode="json")}
    for name, items, config in (("tiny", halves, suite), ("other", others, None)):
        tables = {"evaluation_items": items, "evaluations": []}
        commit_stage(run.directory, 1, f"evaluate-{name}", tables, config=config)
    *_, (_, sql) = questions(run.directory)
    with Catalogue(run.directory) as catalogue:
        found = {row["stratum"]: row["base"] for row in catalogue.rows(sql)}
    assert found == {f"level {level}": pytest.approx(base / 10) for level, (base, _) in ANSWERS.items()}


def test_only_players_whose_scores_do_not_rise_are_warned_of_falling_entropy(tmp_path: Path) -> None:
    Run.create(tmp_path / "run", small_config(), "digest")
    figures = read_figures(write_run(tmp_path / "run", generations=6))
    falling = [row | {"entropy": 1.0 / row["generation"]} for row in figures["figures_member"]]
    sure = replace(figures, rows={**figures.rows, "figures_member": falling})

    def warned() -> list[str]:
        texts = [note.text for note in notes(sure) if note.kind == "watch"]
        return [
            role
            for role in ("teacher", "student")
            if any(f"{role}s' entropy falls" in text for text in texts)
        ]

    assert warned() == ["teacher", "student"]
    tables = {"evaluation_items": rows(6, {4: (2, (9, 9))}), "evaluations": []}
    commit_stage(
        tmp_path / "run", 6, "evaluate-tiny", tables, config={"suite": SUITE.model_dump(mode="json")}
    )
    assert warned() == ["teacher"]
