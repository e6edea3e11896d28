"""Simulated populations of known skill, which play as the loop plays: what ratings are held against.

Five teachers and five students play 120 generations; the first 30 are left out where it is asked how well
predictions track. Everything follows from the seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from populora_core.config.sections import MatchSection, RatingSection
from populora_core.population.matchmaking import draw_matches
from populora_core.population.rating import (
    Match,
    Outcome,
    Rating,
    match_outcome,
    rate,
    win_probabilities,
)
from populora_core.support import ids

RULES = RatingSection()
SKILLS = np.array([17.0, 20.5, 24.0, 27.5, 31.0])
"""Of five teachers and of five students, on the scale of mu; shuffled apart from the slots."""
GENERATIONS, SETTLED = 120, 30
PROBLEMS, ATTEMPTS = 24, 8
UNEVEN = 4.0  # how far the problems of one teacher differ in difficulty
BINS = 10
GOAL = 0.08


@dataclass(frozen=True)
class History:
    """What was played.

    Attributes:
        matches: with their generations.
        played: [n, 4] of generation, predicted probability that the student wins, solve rate, and whether the
            student won (1), lost (0) or drew (0.5); matches without a solved problem have no row.
        ratings: after each generation.
    """

    matches: list[tuple[int, Match]]
    played: np.ndarray
    ratings: list[dict[str, Rating]]
    skills: dict[str, float]

    @property
    def settled(self) -> np.ndarray:
        """The rows of `played` after the first generations."""
        return self.played[self.played[:, 0] > SETTLED]

    def order_recovered(self, role: str) -> bool:
        """Whether the last ratings put the members of a role in the order of their skill."""
        names, last = [name for name in self.skills if name.startswith(role)], self.ratings[-1]
        return sorted(names, key=lambda n: last[n].mu) == sorted(names, key=lambda n: self.skills[n])


def play(seed: int = 0, scheme: str = "pfsp") -> History:
    """Matches as the loop plays them, between members whose skill is known and does not change."""
    rng = np.random.default_rng(seed)
    teachers = [ids.member_id("teacher", slot, 0) for slot in range(len(SKILLS))]
    students = [ids.member_id("student", slot, 0) for slot in range(len(SKILLS))]
    skills = dict(zip(teachers, rng.permutation(SKILLS).tolist(), strict=True))
    skills |= dict(zip(students, rng.permutation(SKILLS).tolist(), strict=True))
    ratings = dict.fromkeys(skills, Rating(RULES.mu, RULES.sigma))
    matches, rows, after = [], [], []
    for generation in range(1, GENERATIONS + 1):
        p = win_probabilities([ratings[s] for s in students], [ratings[t] for t in teachers], RULES)
        played = []
        pairs = draw_matches(p, MatchSection(scheme=scheme), generation, rng)
        for pair in sorted(pairs, key=lambda pair: pair.teacher):
            teacher, student = teachers[pair.teacher], students[pair.student]
            predicted = p[pair.teacher, pair.student]
            solved = solve_rate(skills[student] - skills[teacher], rng)
            outcome = match_outcome(solved, n_valid=PROBLEMS, n_lost=0, p_student_win=predicted)
            played.append(Match(teacher, student, outcome))
            if solved is not None:
                rows.append((generation, predicted, solved, _score(outcome)))
        ratings = rate(played, ratings, RULES)
        matches += [(generation, match) for match in played]
        after.append(ratings)
    return History(matches, np.array(rows), after, skills)


def solve_rate(advantage: float, rng: np.random.Generator) -> float | None:
    """Share of correct attempts over the problems solved at least once, for problems of uneven difficulty."""
    spread = np.sqrt(2.0) * RULES.beta
    # The uneven part counts towards the same spread, so that the mean chance stays Phi(advantage / spread).
    own = rng.normal(0.0, UNEVEN, PROBLEMS)[:, None]
    draws = rng.normal(0.0, np.sqrt(spread**2 - UNEVEN**2), (PROBLEMS, ATTEMPTS))
    correct = (advantage + own + draws > 0.0).mean(axis=1)
    return float(correct[correct > 0.0].mean()) if (correct > 0.0).any() else None


def _score(outcome: Outcome) -> float:
    return {Outcome.STUDENT: 1.0, Outcome.TEACHER: 0.0}.get(outcome, 0.5)


def reliability(played: np.ndarray) -> list[dict[str, float]]:
    """Matches [n, 4] (see `History`) in bins of equal width of the prediction: how many, and the means."""
    place = np.minimum((played[:, 1] * BINS).astype(int), BINS - 1)
    rows = []
    for each in np.unique(place):
        _, predicted, solved, won = played[place == each].mean(axis=0).tolist()
        rows.append(
            {"matches": int((place == each).sum()), "predicted": predicted, "solved": solved, "won": won}
        )
    return rows


def reliability_error(bins: Iterable[dict[str, float]]) -> float:
    """Mean over matches of |mean prediction - mean solve rate| in their bins."""
    bins = list(bins)
    gaps = sum(row["matches"] * abs(row["predicted"] - row["solved"]) for row in bins)
    return gaps / sum(row["matches"] for row in bins)
