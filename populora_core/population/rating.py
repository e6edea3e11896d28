"""TrueSkill ratings from matches between one teacher and one student."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import trueskill

from populora_core.support.arrays import Array

if TYPE_CHECKING:
    from populora_core.config.sections import RatingSection


@dataclass(frozen=True, slots=True)
class Rating:
    """A belief about a member's skill: normal with mean mu and standard deviation sigma."""

    mu: float
    sigma: float


class Outcome(StrEnum):
    """The outcome of a match."""

    TEACHER = "teacher"
    """The student solved less than the ratings predicted."""
    STUDENT = "student"
    """The student solved more than predicted, or the teacher wrote no valid problem."""
    DRAW = "draw"
    """The student solved what was predicted."""
    VOID = "void"
    """The match says nothing about skill; it leaves the ratings as they are."""


@dataclass(frozen=True, slots=True)
class Match:
    """A match that was played."""

    teacher_id: str
    student_id: str
    outcome: Outcome


def lower_bound(rating: Rating) -> float:
    """mu - 3 sigma: the skill that the member almost surely has."""
    return rating.mu - 3.0 * rating.sigma


def win_probabilities(students: Sequence[Rating], teachers: Sequence[Rating], rules: RatingSection) -> Array:
    """The probability [teachers, students] that the student performs better than the teacher in one match.

    Phi((mu_s - mu_t) / sqrt(sigma_s^2 + sigma_t^2 + 2 beta^2)), the model of Herbrich, Minka and Graepel,
    "TrueSkill: A Bayesian Skill Rating System" (2006), without a draw margin.
    """

    def columns(ratings: Sequence[Rating]) -> tuple[Array, Array]:
        return np.array([each.mu for each in ratings]), np.array([each.sigma**2 for each in ratings])

    (student_mu, student_variance), (teacher_mu, teacher_variance) = columns(students), columns(teachers)
    spread = np.sqrt(student_variance[None, :] + teacher_variance[:, None] + 2.0 * rules.beta**2)
    ahead = (teacher_mu[:, None] - student_mu[None, :]) / (spread * math.sqrt(2.0))
    # NumPy has no erfc, and another library's would give other digits.
    return 0.5 * np.array([math.erfc(value) for value in ahead.ravel().tolist()]).reshape(ahead.shape)


def match_outcome(
    solve_rate: float | None,
    *,
    n_valid: int,
    n_lost: int,
    p_student_win: float,
    draw_band: float = 0.02,
) -> Outcome:
    """Decide a match by the student's solve rate against what the ratings predicted.

    Problems that no one solved are left out of the solve rate, so that a teacher cannot win by writing
    impossible ones.

    Args:
        solve_rate: share of correct attempts over the match's problems that were solved at least once;
            None when there is no such problem.
        n_valid: valid problems of the match.
        n_lost: proposals of the match that the verifier failed for: one of them might have been valid.
        p_student_win: the predicted rate.
        draw_band: largest difference that still is a draw.
    """
    if n_valid == 0:
        return Outcome.VOID if n_lost else Outcome.STUDENT
    if solve_rate is None:
        return Outcome.VOID
    surprise = solve_rate - p_student_win
    if abs(surprise) <= draw_band:
        return Outcome.DRAW
    return Outcome.STUDENT if surprise > 0.0 else Outcome.TEACHER


def rate(matches: Iterable[Match], ratings: Mapping[str, Rating], rules: RatingSection) -> dict[str, Rating]:
    """The ratings after the matches, folded in their order: another order gives other ratings.

    Args:
        ratings: member_id -> rating before, of everyone who played; members without a match keep theirs.
    """
    rated = dict(ratings)
    # The backend is fixed: another one, installed by chance, would give other digits.
    env = trueskill.TrueSkill(
        rules.mu, rules.sigma, rules.beta, rules.tau, rules.draw_probability, backend=None
    )
    for match in matches:
        if match.outcome is Outcome.VOID:
            continue
        student_won = match.outcome is Outcome.STUDENT
        pair = (match.student_id, match.teacher_id) if student_won else (match.teacher_id, match.student_id)
        before = [env.create_rating(rated[member].mu, rated[member].sigma) for member in pair]
        after = trueskill.rate_1vs1(*before, drawn=match.outcome is Outcome.DRAW, env=env)
        for member_id, new in zip(pair, after, strict=True):
            rated[member_id] = Rating(float(new.mu), float(new.sigma))
    return rated


def newborn_rating(parents: Sequence[Rating], rules: RatingSection) -> Rating:
    """A child's first rating: its parents' mean mu, so that it is neither favoured nor culled first, and the
    full sigma, since nothing is known of it yet."""
    return Rating(sum(parent.mu for parent in parents) / len(parents), rules.sigma)
