"""Gains of students over their base: paired by problem, over all seeds, on each half and on both."""

from __future__ import annotations

from experiments.heldout import GREEDY, over_shuffled, table
from populora_core.benchmarks.scores import BASE


def row(
    player: str, part: str, seed: int, right: dict[str, float], shuffled: bool = False
) -> dict[str, object]:
    settings = {"dialect": "assert", "learning_rate": 1e-4, "shuffled": shuffled, "updates": 40, "seed": seed}
    return {"player": player, "part": part, "measure": GREEDY, "settings": settings, "right": right}


def test_a_gain_is_paired_by_problem_over_all_seeds() -> None:
    rows = [
        row(BASE, "test", 0, {"a": 0.0, "b": 1.0}),
        row("student", "test", 0, {"a": 1.0, "b": 1.0}),
        row(BASE, "test", 1, {"a": 0.0, "b": 1.0}),
        row("student", "test", 1, {"a": 0.0, "b": 1.0}),
        row(BASE, "validation", 0, {"c": 1.0}),
        row("student", "validation", 0, {"c": 0.0}),
        row(BASE, "validation", 1, {"c": 1.0}),
        row("student", "validation", 1, {"c": 0.0}),
    ]
    lines = [*table(rows)]
    assert len(lines) == 3
    (reported,) = (line for line in lines if "'test'" in line)
    (both,) = (line for line in lines if "'both'" in line)
    assert "2 problems, 2 seeds, base 0.500, students 0.750, gain +0.250" in reported
    assert "3 problems, 2 seeds" in both and "gain -0.167" in both


def test_both_halves_are_told_only_where_every_seed_has_them() -> None:
    rows = [
        row(player, part, seed, {f"{part} problem": 1.0})
        for player in (BASE, "student")
        for part, seed in (("validation", 0), ("test", 0), ("validation", 1))
    ]
    assert [line for line in table(rows) if "'both'" in line] == []
    only_chosen = [each for each in rows if each["part"] == "validation"]
    (line,) = table(only_chosen)
    assert "'validation'" in line and "1 problems, 2 seeds" in line
    first = [each for each in rows if each["settings"]["seed"] == 0]
    assert [line for line in table(first) if "'both'" in line and "2 problems, 1 seeds" in line]


def test_true_rewards_are_paired_with_shuffled_ones_of_the_same_setting() -> None:
    rows = [
        row(BASE, "test", 0, {"a": 1.0, "b": 1.0}),
        row("student", "test", 0, {"a": 1.0, "b": 1.0}),
        row("student", "test", 1, {"a": 0.0, "b": 1.0}),
        row("student", "test", 0, {"a": 0.0, "b": 0.0}, shuffled=True),
    ]
    (line,) = over_shuffled(rows)
    assert "2 problems, +0.750" in line
    assert list(over_shuffled(rows[:3])) == []
