"""Claims are answered at equal budgets, and a verdict follows from values planted in summaries."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from populora_core.support.shipped import REPOSITORY
from populora_plugins.study.budget import JUDGED, Basis, spent, window, windows
from populora_plugins.study.claims import CLAIMS
from populora_plugins.study.config import load_study
from populora_plugins.study.judgement import (
    LEAST_SEEDS,
    ClaimArm,
    ClaimResult,
    Verdict,
    answers,
    decide,
    overall,
)
from populora_plugins.study.report import render, write_report
from populora_plugins.study.statistics import Test
from populora_plugins.study.summary import Origin, Summary, Value, write_summary
from populora_plugins.study.verdicts import VERDICTS, as_json, read_results, write_verdicts

GENERATIONS = {"pop-4+4": 60, "solo": 120}
COMPLEXITY = ("ast_depth", "cyclomatic_complexity", "lines_of_code", "variable_count")


def made(
    arm: str, seed: int, measures: Callable[[str, float, np.random.Generator], dict], noise: float = 0.02
) -> Summary:
    """A run whose values at a share of its arm's updates are given, with noise.

    A solo adapter takes two updates of 1000 tokens a generation, each of eight members one.
    """
    rng = np.random.default_rng([seed, len(arm)])
    solo = arm == "solo"
    values = []
    for generation in range(1, GENERATIONS[arm] + 1):
        updates = 2.0 if solo else 1.0
        spends = {
            "updates": updates,
            "trained_tokens": 1000 * updates,
            "total_tokens": 3000 * (2 if solo else 8),
            "proposals": 72.0 if solo else 288.0,
        }
        values += [Value(generation, name, "all", value) for name, value in spends.items()]
        progress = min(1.0, generation * updates / 60)
        for (name, part), value in measures(arm, progress, rng).items():
            values.append(Value(generation, name, part, value + noise * rng.normal()))
    config = {"run": {"generations": GENERATIONS[arm], "seed": seed}}
    return Summary(
        Origin(arm, seed, config, {"match": 1}, "base", "suite", 15, ("abc",), 60.0), tuple(values)
    )


def as_the_paper_says(arm: str, progress: float, rng: np.random.Generator) -> dict:
    """A population that does everything that the paper reports, and a single agent that collapses."""
    solo = arm == "solo"
    sign = -1.0 if solo else 1.0
    slots = ["solo-00"] if solo else [f"student-{slot:02d}" for slot in range(4)]
    swing = 0.0 if solo else 0.1 * np.sin(25 * np.pi * progress)
    return (
        {(name, "all"): 5.0 + 2 * sign * progress for name in COMPLEXITY}
        | {
            ("solve_rate", "all"): (0.5 + 0.48 * progress) if solo else 0.5 + swing,
            ("student_reward", "all"): 0.9 * progress if solo else 0.1,
            ("new_cells", "all"): (2.0 if solo else 30.0) * (1 - 0.5 * progress),
            ("entropy", "teacher"): 0.8 - 0.75 * progress if solo else 0.8,
            ("proposal_length", "all"): 30 + 8 * sign * progress,
            ("attempt_length", "all"): 20 + 8 * sign * progress,
            ("held_out", "base"): 0.3,
        }
        | {("held_out", slot): 0.3 + (-0.1 if solo else 0.2) * progress for slot in slots}
    )


def nothing_differs(arm: str, progress: float, rng: np.random.Generator) -> dict:
    alike = as_the_paper_says("solo", 0.0, rng)
    alike.pop(("held_out", "solo-00"))
    return alike | {("held_out", "solo-00" if arm == "solo" else "student-00"): 0.3}


@cache
def study_of(measures: Callable, seeds: int = 6, noise: float = 0.02) -> list[list[Summary]]:
    return [[made(arm, seed, measures, noise) for seed in range(seeds)] for arm in ("pop-4+4", "solo")]


def answered(population: Sequence[Summary], solo: Sequence[Summary], basis: Basis) -> list[ClaimResult]:
    """The paper's claims."""
    return answers(CLAIMS, {ClaimArm.POPULATION: population, ClaimArm.SOLO: solo}, basis)


def verdicts(groups: Sequence[Sequence[Summary]], basis: Basis) -> dict[str, Verdict]:
    return {answer.claim.key: answer.verdict for answer in answered(*groups, basis)}


def test_windows_hold_equal_budgets_not_equal_generations() -> None:
    groups = study_of(as_the_paper_says, seeds=1)
    (population,), (solo,) = windows(groups, Basis.UPDATES)
    assert (population.generations[-1], solo.generations[-1]) == (60, 30)
    assert (population.late, solo.late) == (tuple(range(46, 61)), tuple(range(23, 31)))
    assert (population.early, solo.early) == (tuple(range(1, 10)), tuple(range(1, 5)))
    (population,), (solo,) = windows(groups, Basis.TOTAL)
    assert (population.generations[-1], solo.generations[-1]) == (30, 120)
    for basis in JUDGED:
        for (run,) in windows(groups, basis):
            assert spent(run.run, basis)[run.generations[-1]] == pytest.approx(run.budget)


def test_a_score_between_evaluations_lies_on_the_line_between_them() -> None:
    values = [Value(g, "updates", "all", 1.0) for g in range(1, 31)]
    values += [Value(15, "held_out", "base", 0.2), Value(15, "held_out", "student-00", 0.4)]
    values += [Value(30, "held_out", "student-00", 0.5)]
    run = Summary(made("pop-4+4", 0, nothing_differs).origin, tuple(values))
    at = {b: window(run, Basis.UPDATES, b).held_out("student-00") for b in (0.0, 7.5, 15.0, 21.0, 30.0)}
    assert at == pytest.approx({0.0: 0.2, 7.5: 0.3, 15.0: 0.4, 21.0: 0.44, 30.0: 0.5})


@pytest.mark.parametrize("basis", JUDGED)
def test_what_the_paper_says_is_found_where_it_is_so(basis: Basis) -> None:
    found = verdicts(study_of(as_the_paper_says), basis)
    assert found == dict.fromkeys((claim.key for claim in CLAIMS), Verdict.REPRODUCED)


def test_without_a_difference_nothing_is_reproduced() -> None:
    for basis in JUDGED:
        found = verdicts(study_of(nothing_differs, noise=0.3), basis)
        assert Verdict.REPRODUCED not in found.values()
        assert found["solo_solves_all"] is Verdict.NOT_REPRODUCED, "0.5 is far from all"


def test_the_opposite_is_not_reproduced() -> None:
    population, solo = study_of(as_the_paper_says)
    swapped = verdicts([solo, population], Basis.UPDATES)
    trends = {swapped[key] for key in (*COMPLEXITY, "entropy", "coverage")}
    assert trends == {Verdict.NOT_REPRODUCED}


def test_too_few_seeds_cannot_tell() -> None:
    found = verdicts(study_of(as_the_paper_says, seeds=LEAST_SEEDS - 1), Basis.UPDATES)
    assert set(found.values()) == {Verdict.CANNOT_TELL}
    assert set(verdicts([[], []], Basis.UPDATES).values()) == {Verdict.CANNOT_TELL}


def test_a_verdict_needs_every_basis() -> None:
    by_basis = [answered(*study_of(as_the_paper_says), basis) for basis in JUDGED]
    own = [found[0] for found in by_basis]
    assert overall(own) is Verdict.REPRODUCED
    none = answered([], [], Basis.TOTAL)[0]
    assert overall([*own[:2], none]) is Verdict.CANNOT_TELL


@pytest.mark.parametrize(
    ("test", "p", "met", "verdict"),
    [
        (Test(1.0, 0.5, 1.5, None, 0.001), 0.01, [True], Verdict.REPRODUCED),
        (Test(1.0, 0.5, 1.5, None, 0.001), 0.06, [True], Verdict.CANNOT_TELL),
        (Test(0.2, 0.1, 0.5, None, 0.001), 0.01, [True], Verdict.CANNOT_TELL),
        (Test(1.0, 0.5, 1.5, None, 0.001), 0.01, [None], Verdict.CANNOT_TELL),
        (Test(1.0, 0.5, 1.5, None, 0.001), 0.01, [False], Verdict.NOT_REPRODUCED),
        (Test(-1.0, -2.0, 0.2, None, 0.9), 1.0, [], Verdict.NOT_REPRODUCED),
        (None, 1.0, [], Verdict.CANNOT_TELL),
    ],
)
def test_the_rule_of_verdicts(test: Test | None, p: float, met: list, verdict: Verdict) -> None:
    claim = next(claim for claim in CLAIMS if claim.key == "ast_depth")
    assert claim.margin == 0.25
    assert decide(claim, test, p, met) is verdict


def test_the_page_that_freezes_the_study_names_every_margin_and_condition() -> None:
    text = (REPOSITORY / "bench/results/study-1/study.md").read_text()
    rows = [
        line
        for line in text.splitlines()
        if line.startswith("| ") and text.index(line) > text.index("margin |")
    ]
    assert len(rows) == len(CLAIMS) + 0
    for claim, row in zip(CLAIMS, rows, strict=True):
        assert row.split("|")[3].split()[0] == f"{claim.margin:g}", claim.key
        for condition in claim.conditions:
            if condition.arm is ClaimArm.SOLO and condition.bound not in (0.0, claim.margin):
                assert f"{condition.bound:g}" in row.split("|")[4]


def write_planted(folder: Path) -> Path:
    """A folder of results with every planted run, written as a study writes it."""
    study, _ = load_study(REPOSITORY / "configs/study-tiny.toml")
    study = study.model_copy(update={"results": folder / "results"})
    for run in (run for group in study_of(as_the_paper_says) for run in group):
        write_summary(study.results / f"{run.origin.name}.parquet", run.origin, run.values)
    write_verdicts(study)
    return study.results


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return write_planted(tmp_path)


@pytest.mark.thorough
def test_the_table_is_recomputed_from_the_summaries_alone(results: Path) -> None:
    kept = json.loads((results / VERDICTS).read_text())
    assert kept == json.loads(json.dumps(as_json(read_results(results))))
    assert {claim["verdict"] for claim in kept["claims"]} == {"reproduced"}
    (results / "solo-seed-0000.parquet").unlink()
    (results / "solo-seed-0001.parquet").unlink()
    found = as_json(read_results(results))
    assert {claim["verdict"] for claim in found["claims"]} == {"cannot tell"}, "four seeds are too few"


def test_the_report_is_one_page_with_claims_first(results: Path, tmp_path: Path) -> None:
    page = write_report(results, tmp_path / "page.html").read_text()
    body = page[page.index("<main>") :]
    assert body.index('id="claims"') < body.index('id="learning"') < body.index('id="runs"')
    for claim in CLAIMS:
        assert claim.title.replace("'", "&#39;") in body
    assert page.count("<figure") == 20  # one a measure, and the forest of claims
    named = page.replace("http-equiv", "").replace(
        "'http://www.w3.org/2000/svg'", ""
    )  # a namespace loads nothing
    assert "http" not in named
    assert render(read_results(results)).count("reproduced") >= len(CLAIMS)
