"""Claims of the third study: that a population pays for itself, and by which of its parts.

Margins are frozen as those of `claims.py` are, by bench/results/study-3/study.md.
"""

from __future__ import annotations

from statistics import fmean

from populora_plugins.study.budget import Basis, Window
from populora_plugins.study.frontier import SOLVED, STUDENTS
from populora_plugins.study.judgement import ClaimArm, Family, score_difference
from populora_plugins.study.summary import ALL, AVERAGE, COPIES, FRESH, INHERITS

_TOTAL = (Basis.TOTAL,)


def average(run: Window) -> float | None:
    """Score of the average of all who solve, over levels 2 to 5, at the end of the budget; of one alone its own."""
    if len(run.run.solvers(SOLVED)) == 1:
        return STUDENTS(run)
    return run.held_out(ALL, f"{AVERAGE}.levels_2_5")


def gain(run: Window) -> float | None:
    """Score of the average minus the mean member's."""
    mixed, members = average(run), STUDENTS(run)
    return None if mixed is None or members is None else mixed - members


def inheritance(run: Window) -> float | None:
    """Score of copies that inherit minus that of copies that start afresh, forked from one state of the run."""

    scores = [list(run.run.series(COPIES, rule).values()) for rule in (INHERITS, FRESH)]
    return fmean(scores[0]) - fmean(scores[1]) if all(scores) else None


PAYS = Family(
    "claims",
    "What was claimed, and what was measured",
    "Scores are greedy, on held-out problems of levels 2 to 5, with 95 % intervals over seeds, exact if the arms "
    "differ by a shift. “Supported” is corrected for the number of claims and needs an effect of at least the margin; "
    "“no difference” says that the 90 % interval lies within the margin either way, “refuted” that the opposite is so. "
    "All of it holds for these problems.",
    (
        score_difference(
            "inherits",
            "Children inherit an optimiser",
            "A copy that takes its original's moments and step count solves more than one that starts afresh.",
            "mean score of copies two generations after their birth, forked from one state, with moments minus without",
            inheritance,
            0.02,
        ),
        score_difference(
            "average",
            "The average beats its members",
            "The exact average of a population's students solves more than their mean.",
            "score of the average of four students minus their mean score",
            gain,
            0.01,
        ),
        score_difference(
            "meeting",
            "Meeting is worth something",
            "Students that share teachers average to more than students of pairs that never meet.",
            "score of the average of four students, population minus islands",
            average,
            0.01,
            against=ClaimArm.ISLANDS,
        ),
        score_difference(
            "merging",
            "Averaging as they train lifts members",
            "Members that become their average every ten generations end higher than members that never do.",
            "students' mean score, averaged every ten generations minus never",
            STUDENTS,
            0.015,
            first=ClaimArm.AVERAGED,
            against=ClaimArm.POPULATION,
        ),
        score_difference(
            "teachers",
            "Many teachers lift one student further",
            "A student with four teachers gains more than a student with one, for the same tokens.",
            "the student's score, four teachers minus one, at equal tokens of all adapters",
            STUDENTS,
            0.02,
            first=ClaimArm.TEACHERS,
            against=ClaimArm.PAIR,
            bases=_TOTAL,
        ),
        score_difference(
            "pays",
            "The population pays for itself",
            "The average of four students solves more than the student of a pair that spent as many tokens.",
            "score of the average of four students minus the pair's student, at equal tokens of all adapters",
            average,
            0.01,
            against=ClaimArm.PAIR,
            bases=_TOTAL,
        ),
    ),
)
