"""Matchmaking: prioritised fictitious self-play (PFSP) and its controls.

PFSP weights as in Vinyals et al., "Grandmaster level in StarCraft II using multi-agent reinforcement
learning" (2019): p (1 - p) prefers even pairs, (1 - p)^k prefers pairs that are hard for one side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from populora_core.support.arrays import Array
from populora_core.support.errors import PopulationError
from populora_core.support.registry import Registry, Strength

if TYPE_CHECKING:
    from populora_core.config.sections import MatchSection

Scheme = Callable[..., Array]
"""(probability that the student wins [teachers, students], generation, *, settings) -> weights >= 0 of the
same shape."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One teacher and one student, by index; weight is the probability with which the opponent was drawn."""

    teacher: int
    student: int
    weight: float


def _pfsp(p: Array, generation: int) -> Array:
    """p (1 - p): largest where the match is even."""
    return p * (1.0 - p)


def _pfsp_hard(p: Array, generation: int, *, hardness: Strength = 2.0) -> Array:
    """(1 - p)^hardness: teachers meet the students that are likely to lose to them."""
    return (1.0 - p) ** hardness


def _uniform(p: Array, generation: int) -> Array:
    return np.ones_like(p)


def _round_robin(p: Array, generation: int) -> Array:
    """Each teacher's partner moves on by one with every generation.

    All pairs meet in turn where there are as many students as teachers or more, and `match.uniform_floor` is 0.
    """
    n_teachers, n_students = p.shape
    weights = np.zeros_like(p)
    teachers = np.arange(n_teachers)
    weights[teachers, (teachers + generation) % n_students] = 1.0
    return weights


SCHEMES = Registry(
    {
        "pfsp": _pfsp,
        "pfsp_hard": _pfsp_hard,
        "uniform": _uniform,
        "round_robin": _round_robin,
    },
    group="populora.matchmaking_schemes",
    what="matchmaking scheme",
    setting="match.scheme",
)
"""Put a function here, or name its place as "package.module:function", and `match.scheme` can choose it."""


def draw_matches(
    p_student_win: Array, rules: MatchSection, generation: int, rng: np.random.Generator
) -> list[Pair]:
    """One match for every teacher, in the order of drawing.

    Teachers draw in random order, students without replacement; when students run out the pool refills.
    A teacher draws among the students left with probability (1 - floor) * weight share + floor / left: by the
    uniform floor no pair starves.

    Args:
        p_student_win: predicted probability that the student wins [teachers, students], at least one each.

    Raises:
        PopulationError: an unknown scheme, or weights that are negative or not finite.
    """
    weights = _weights(p_student_win, rules, generation)
    pairs = []
    pool: list[int] = []
    for teacher in rng.permutation(len(weights)):
        pool = pool or list(range(weights.shape[1]))
        student, share = _drawn(pool, weights[teacher, pool], rules, rng)
        pairs.append(Pair(int(teacher), student, share))
    return pairs


def with_hall_of_fame(
    pairs: Sequence[Pair],
    p_student_win: Array,
    living: tuple[int, int],
    rules: MatchSection,
    generation: int,
    rng: np.random.Generator,
) -> list[Pair]:
    """The matches, in a share of which a past member plays in place of the teacher or of the student.

    This is the fictitious part of fictitious self-play: opponents come from the past as well. A coin says who makes
    room, where both roles have a past. Past members are drawn as students are, by the scheme's weights against the
    side that stays; each plays once at most.

    Args:
        pairs: of living members.
        p_student_win: [teachers, students], of either the living first and then the past.
        living: how many teachers and students live.
    """
    past = [list(range(count, size)) for count, size in zip(living, p_student_win.shape, strict=True)]
    drawn = []
    for pair in pairs:
        sides = [side for side in past if side]
        if sides and rng.random() < rules.hall_of_fame:
            called = sides[int(rng.integers(len(sides)))]
            if called is past[0]:
                weights = _weights(p_student_win[called, pair.student][:, None], rules, generation)
                teacher, share = _drawn(called, weights[:, 0], rules, rng)
                pair = Pair(teacher, pair.student, share)
            else:
                weights = _weights(p_student_win[pair.teacher, called][None, :], rules, generation)
                student, share = _drawn(called, weights[0], rules, rng)
                pair = Pair(pair.teacher, student, share)
        drawn.append(pair)
    return drawn


def _weights(p_student_win: Array, rules: MatchSection, generation: int) -> Array:
    """The scheme's, of the shape of the probabilities."""
    scheme: Scheme = SCHEMES.bound(rules.scheme, rules.parameters)
    weights = np.asarray(scheme(p_student_win, generation), dtype=np.float64)
    if weights.shape != p_student_win.shape or not np.all(np.isfinite(weights) & (weights >= 0.0)):
        raise PopulationError(
            f"the scheme {rules.scheme} gave unusable weights",
            expected=f"finite weights >= 0 of shape {p_student_win.shape}",
            got=f"shape {weights.shape}, smallest {np.min(weights, initial=np.inf)}",
            fix="fix the scheme, and check that every win probability lies in [0, 1]",
        )
    return weights


def _drawn(
    pool: list[int], weights: Array, rules: MatchSection, rng: np.random.Generator
) -> tuple[int, float]:
    """Draw one from the pool and remove it; return it and the probability with which it was drawn."""
    shares = _shares(weights, rules.uniform_floor)
    place = int(rng.choice(len(pool), p=shares))
    return pool.pop(place), float(shares[place])


def _shares(weights: Array, floor: float) -> Array:
    uniform = np.full(len(weights), 1.0 / len(weights))
    total = weights.sum()
    return (1.0 - floor) * (weights / total) + floor * uniform if total > 0.0 else uniform
