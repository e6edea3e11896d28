"""Retention: who returns is read from the curves, controls are what they claim, and defaults return."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.retention import FOUNDER, OUTPUT, Plan, read, retention, returned, table
from populora_core.compute.arena import Arena
from populora_core.config.sections import REPOSITORY, EvolveSection
from populora_core.learner.rows import UpdateRules
from populora_core.population.variation import CROSSOVERS, MUTATIONS
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits


def curve(*points: tuple[float, float]) -> list[dict]:
    return [
        {"update": 5 * index, "difference": difference, "standard_error": error}
        for index, (difference, error) in enumerate(points)
    ]


def test_children_are_back_where_the_mean_over_seeds_is_not_below_by_more_than_its_error() -> None:
    first, second = (
        curve((-0.2, 0.02), (-0.05, 0.02), (0.03, 0.02)),
        curve((-0.1, 0.02), (0.01, 0.02), (0, 0.02)),
    )
    assert returned([first, second]) == 10
    assert returned([second]) == 5
    assert returned([second, curve((-0.1, 0.02), (-0.03, 0.02), (-0.1, 0.02))]) == 5  # -0.01 ± 0.014
    assert returned([first[:2], second[:2]]) is None


@pytest.fixture(scope="module")
def result() -> Iterator[dict]:
    plan = Plan(
        parent_updates=1, child_updates=2, problems=2, attempts=2, every=1, held_out=4, held_out_attempts=2
    )
    with open_sandbox("auto", Limits(), workers=2) as sandbox:
        arena = Arena(REPOSITORY / "base_model" / "tiny", "compact", sandbox)
        yield retention(arena, 0, plan, UpdateRules(), lambda text: None)


@pytest.mark.sandbox
@pytest.mark.slow
def test_every_operator_and_control_is_measured_beside_its_better_parent(result: dict) -> None:
    curves = {child["operator"]: child["curve"] for child in result["children"]}
    assert curves.keys() == {FOUNDER, *MUTATIONS, *CROSSOVERS}
    assert [point["update"] for point in curves["svd_mix"]] == [0, 1, 2]
    assert (curves["copy_parent"][0]["difference"], curves["copy_parent"][0]["standard_error"]) == (0.0, 0.0)
    assert curves[FOUNDER][0]["rate"] == result["base_rate"]
    for points in curves.values():
        for point in points:
            assert point["difference"] == pytest.approx(point["rate"] - result["parent_rates"][0])
    rows = table([result]).splitlines()
    assert len(rows) == 2 + len(curves)


def test_every_operator_of_the_default_set_returned() -> None:
    results = read(OUTPUT)
    assert len(results) >= 3
    for operator in EvolveSection().mutations + EvolveSection().crossovers:
        curves = [c["curve"] for r in results for c in r["children"] if c["operator"] == operator]
        assert len(curves) == len(results)
        assert returned(curves) is not None, f"{operator} does not return and must leave the default set"
