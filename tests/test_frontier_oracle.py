"""What the oracle does with a student, and what is reckoned from its results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from base_model.steps.grammar import sample
from base_model.steps.measure import weights_sha256
from experiments.gains import RESULTS, gain, gates, tables
from experiments.lines import read_lines
from experiments.oracle import STUDENT, Oracle, Rules, base_result, frontiers, train
from populora_core.compute.arena import Arena
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.support.shipped import REPOSITORY

torch.set_num_threads(1)

FRONTIER = REPOSITORY / "base_model" / "frontier"
LEVELS = range(2, 9)
SMALL = Rules(updates=2, problems=8, attempts=2, score_every=10)


def result(arm: str, seed: int, edge: str, beyond: str) -> dict[str, Any]:
    """A result with these right answers at each level of the edge, and of beyond."""
    right = {2: "1111", 3: "1111", 4: edge, 5: edge, 6: beyond, 7: beyond, 8: beyond}
    greedy = {str(level): {"right": digits, "whole": digits} for level, digits in right.items()}
    eights = {
        level: {name: digits.replace("1", "8") for name, digits in of.items()} for level, of in greedy.items()
    }
    return {
        "arm": arm,
        "seed": seed,
        "after": {"greedy": greedy, "sampled": eights},
        "curve": [{"frontier": 4}],
        "base_sha256": "d",
    }


BASE = result("base", 0, "1000", "0000")


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    with open_sandbox("auto", Limits(), workers=1) as sandbox:
        yield Arena(FRONTIER, "compact", sandbox)


@pytest.fixture(scope="module")
def held_out() -> list:
    rng = np.random.default_rng(0)
    return [sample(rng, level) for _ in range(8) for level in LEVELS]


# Gains


def test_a_gain_is_paired_by_problem_and_counts_levels_alike() -> None:
    after = result("following", 0, "1110", "0000")["after"]
    mean, half = gain(BASE["after"], after, (4, 5))
    assert mean == pytest.approx(0.5)
    assert half == pytest.approx(1.96 * np.sqrt(2 * np.var([0, 1, 1, 0], ddof=1) / 4) / 2)
    assert gain(BASE["after"], after, (4, 5, 6, 7, 8))[0] == pytest.approx(0.2)
    assert gain(BASE["after"], after, (4, 5), "temperature 1")[0] == pytest.approx(0.5)


def test_the_gates_ask_for_a_lift_at_the_edge_beyond_it_and_over_the_fixed_level() -> None:
    lifted, fixed = result("following", 3, "1111", "1111"), result("fixed", 3, "1111", "0000")
    assert all(gates([BASE, lifted, fixed]).values())
    assert list(gates([BASE, fixed | {"arm": "following"}, fixed]).values()) == [True, False, False]


def test_the_tables_name_every_arm_seed_and_gate() -> None:
    text = tables([BASE, result("fixed", 1, "1111", "0000"), result("following", 0, "1111", "1111")])
    assert text.index("| following | 0 | 1 | 4 | +0.75") < text.index("| fixed | 1 |")
    assert "met: seed 0: greedy at levels 6 to 8 +0.08" in text


# The oracle


def test_the_frontier_moves_up_once_it_and_the_level_below_are_solved() -> None:
    rules = Rules()
    assert rules.next_frontier(4, solved=0.5, below=0.7) == 5
    assert rules.next_frontier(4, solved=0.49, below=1.0) == rules.next_frontier(4, 1.0, 0.6) == 4
    assert rules.next_frontier(rules.deepest, 1.0, 1.0) == rules.deepest


@pytest.mark.sandbox
def test_half_of_a_batch_is_at_the_frontier(arena: Arena, held_out: list) -> None:
    levels = [one.level for one in Oracle(arena, held_out, Rules(), 0).batch(6)]
    assert levels.count(6) == 16 and levels.count(5) == 8
    assert set(levels) <= set(range(1, 7))


@pytest.mark.sandbox
def test_imitation_makes_the_rules_answers_likelier(arena: Arena, held_out: list) -> None:
    oracle = Oracle(arena, held_out, SMALL, 0)
    texts = [oracle.rule_text(one) for one in oracle.batch(4)]

    def likelihood() -> float:
        arena.load({STUDENT: oracle.state})
        return float(np.mean([np.mean(scores) for scores in arena.worker.sampler.score(texts)]))

    before = likelihood()
    for _ in range(3):
        oracle.source = np.random.default_rng(0)
        oracle.imitate(4)
    assert likelihood() > before


@pytest.mark.thorough
@pytest.mark.sandbox
def test_a_result_holds_what_its_tables_need(arena: Arena, held_out: list, tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    base = base_result(file, arena, held_out)
    assert base_result(file, arena, held_out) == base == read_lines(file)[0]
    followed = train(Oracle(arena, held_out, SMALL, 1), "following", None)
    visited = frontiers([base, followed], 1)
    taught = train(Oracle(arena, held_out, SMALL, 1), "supervised", visited)
    assert [point["frontier"] for point in taught["curve"]] == visited == [4, 4]
    assert {len(level["right"]) for level in followed["after"]["greedy"].values()} == {8}
    assert "| supervised | 1 | 2 | 4 |" in tables([base, followed, taught])


def test_the_kept_results_are_of_the_bundled_base_and_pass_their_gates() -> None:
    results = read_lines(RESULTS)
    assert {one["base_sha256"] for one in results} == {weights_sha256(FRONTIER)}
    assert len(gates(results)) >= 2
    assert all(gates(results).values())
