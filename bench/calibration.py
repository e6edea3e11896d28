"""Do ratings predict? Simulated populations of known skill, the predicted win probability against the solve rate.

    python -m bench.calibration

Five teachers and five students play 120 generations as the loop plays them, for every matchmaking scheme and
three seeds; the first 30 generations are left out. Writes bench/results/calibration.json and its plot,
calibration.svg. Everything follows from the seeds: another run gives the same files.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from populora_core.config.sections import REPOSITORY
from populora_core.population.matchmaking import SCHEMES, draw_matches
from populora_core.population.rating import (
    Match,
    Outcome,
    Rating,
    RatingRules,
    match_outcome,
    rate,
    win_probability,
)
from populora_core.support import ids

RULES = RatingRules()
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
        p = np.array([[win_probability(ratings[s], ratings[t], RULES) for s in students] for t in teachers])
        played = []
        pairs = draw_matches(p, scheme=scheme, floor=0.1, generation=generation, rng=rng)
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


def figures(schemes: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    """Every run's figures, and the reliability of all runs' matches together."""
    runs, pooled = [], []
    for scheme in schemes:
        for seed in seeds:
            history = play(seed, scheme)
            bins = reliability(history.settled)
            pooled.append(history.settled)
            runs.append(
                {
                    "scheme": scheme,
                    "seed": seed,
                    "matches": len(history.settled),
                    "reliability_error": reliability_error(bins),
                    "student_wins": float((history.settled[:, 3] == 1.0).mean()),
                    "teacher_wins": float((history.settled[:, 3] == 0.0).mean()),
                    "teacher_order_recovered": history.order_recovered("teacher"),
                    "student_order_recovered": history.order_recovered("student"),
                }
            )
    return {"goal": f"<= {GOAL}", "runs": runs, "bins": reliability(np.concatenate(pooled))}


SIDE, LEFT, TOP = 320, 62, 26  # of the plotting square, in pixels


def plot(found: dict[str, Any]) -> str:
    """The reliability diagram as SVG: solve rates along the diagonal, wins beside them."""

    def spot(x: float, y: float) -> tuple[float, float]:
        return round(LEFT + SIDE * x, 1), round(TOP + SIDE * (1.0 - y), 1)

    (x0, y0), (x1, y1) = spot(0, 0), spot(1, 1)
    parts = [
        f'<rect x="{x0}" y="{y1}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#999"/>',
        f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" stroke="#999" stroke-dasharray="4 4"/>',
    ]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = spot(tick, tick)
        parts.append(f'<text x="{x}" y="{y0 + 18}" text-anchor="middle">{tick:g}</text>')
        parts.append(f'<text x="{x0 - 8}" y="{y + 4}" text-anchor="end">{tick:g}</text>')
    most = max(row["matches"] for row in found["bins"])
    for row in found["bins"]:
        radius = round(2.0 + 7.0 * float(np.sqrt(row["matches"] / most)), 1)
        x, y = spot(row["predicted"], row["solved"])
        title = f"<title>{row['matches']} matches, solve rate {row['solved']:.3f}</title>"
        parts.append(f'<circle cx="{x}" cy="{y}" r="{radius}" fill="#0072b2">{title}</circle>')
        x, y = spot(row["predicted"], row["won"])
        parts.append(_square(x, y))
    middle, foot = LEFT + SIDE / 2, TOP + SIDE + 40
    parts += [
        f'<text x="{middle}" y="{foot}" text-anchor="middle">predicted probability that the student wins</text>',
        f'<text transform="translate(18 {TOP + SIDE / 2}) rotate(-90)" text-anchor="middle">observed share</text>',
        f'<circle cx="{LEFT + 124}" cy="{TOP + SIDE - 36}" r="5" fill="#0072b2"/>',
        f'<text x="{LEFT + 136}" y="{TOP + SIDE - 32}">solve rate (area: matches)</text>',
        _square(LEFT + 124, TOP + SIDE - 18),
        f'<text x="{LEFT + 136}" y="{TOP + SIDE - 14}">matches won by the student</text>',
    ]
    width, height = LEFT + SIDE + 24, TOP + SIDE + 56
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        [
            f'{head} font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _square(x: float, y: float) -> str:
    place = f'x="{x - 4:.1f}" y="{y - 4:.1f}"'
    return f'<rect {place} width="8" height="8" fill="none" stroke="#d55e00" stroke-width="2"/>'


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=REPOSITORY / "bench" / "results")
    options = parser.parse_args()
    found = figures(sorted(SCHEMES), seeds=(0, 1, 2))
    (options.output / "calibration.json").write_text(json.dumps(found, indent=1) + "\n")
    (options.output / "calibration.svg").write_text(plot(found))
    for run in found["runs"]:
        print(
            f"{run['scheme']:<12} seed {run['seed']}  reliability error {run['reliability_error']:.3f}  "
            f"students won {run['student_wins']:.0%}, teachers {run['teacher_wins']:.0%}  "
            f"order recovered {run['teacher_order_recovered'] and run['student_order_recovered']}"
        )


if __name__ == "__main__":
    main()
