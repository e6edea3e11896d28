"""Claims of the second study: that a population pushes the frontier, and which part of it does so.

The paper's claims are restated for its world, programs of straight lines over two variables, as a family of their own.
Depth of the tree, cyclomatic complexity, number of variables and coverage hardly vary there and are left out. Margins
are frozen as those of `claims.py` are, by bench/results/study-2/study.md.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from populora_plugins.study.budget import Basis, Window
from populora_plugins.study.claims import CLAIMS, held_out, level, trend
from populora_plugins.study.judgement import Claim, ClaimArm, Family, Rule, score_difference
from populora_plugins.study.summary import HELD_OUT

SOLVED, EDGE = f"{HELD_OUT}.levels_2_5", f"{HELD_OUT}.edge"
STUDENTS = held_out(fmean, SOLVED)


def lift(run: Window) -> float | None:
    """The students' mean score at the base's edge minus the base's."""
    base, students = run.run.series(EDGE, "base"), held_out(fmean, EDGE)(run)
    return None if students is None or not base else students - base[min(base)]


FRONTIER = Family(
    "claims",
    "What was claimed, and what was measured",
    "Scores are greedy, of the students, on held-out problems, with 95 % intervals over seeds, exact if the arms "
    "differ by a shift. “Supported” is corrected for the number of claims and needs an effect of at least the margin; "
    "“no difference” says that the 90 % interval lies within the margin either way, “refuted” that the opposite is so. "
    "All of it holds for these problems.",
    (
        score_difference(
            "lift",
            "Lift",
            "Self-play raises what students solve at the base's edge, not only how surely they solve it.",
            "students' mean score at levels 4 and 5 minus the base's",
            lift,
            0.05,
        ),
        score_difference(
            "curriculum",
            "Teachers that learn lift more than frozen ones",
            "Problems that follow the students' skill teach more than those of the base.",
            "students' mean score at levels 2 to 5, population minus frozen teachers",
            STUDENTS,
            0.03,
            against=ClaimArm.FROZEN,
        ),
        score_difference(
            "many_over_one",
            "Many lift more than one",
            "A student of many gains more than a student with one teacher, at equal updates.",
            "students' mean score at levels 2 to 5, population minus pair",
            STUDENTS,
            0.03,
            against=ClaimArm.PAIR,
        ),
        Claim(
            "population_over_solo",
            "The population beats the single agent",
            "Students of a population solve more than an agent that plays both roles, however the budget is matched.",
            "students' mean score at levels 2 to 5, population minus solo",
            "score",
            STUDENTS,
            0.03,
            rule=Rule.DIFFERENCE,
        ),
        Claim(
            "luck",
            "Chance stays",
            "Teachers that learn do not learn to be guessed: the chance of their problems stays the frozen teachers'.",
            "mean chance of new problems in the late window, population minus frozen teachers",
            "chance",
            level("chance"),
            0.03,
            against=ClaimArm.FROZEN,
            bases=(Basis.UPDATES,),
            rule=Rule.EQUIVALENCE,
        ),
    ),
)

_OF_PAPER = {claim.key: claim for claim in CLAIMS}
RESTATED = Family(
    "paper",
    "What the paper says, restated for this world",
    "Corrected on its own, as in the first study. The row shows the basis on which a verdict holds most narrowly, or "
    "all three where they leave it open. The oscillation is withdrawn: its test finds any slow curve that is no "
    "parabola, in the pair, the single agent and shuffled rewards as well.",
    (
        trend("level", "Level", "statements", 0.25),
        *(_OF_PAPER[key] for key in ("oscillation", "solo_solves_all", "reward", "entropy", "length")),
        replace(_OF_PAPER["held_out_mean"], statistic=STUDENTS),
        replace(_OF_PAPER["held_out_weakest"], statistic=held_out(min, SOLVED)),
    ),
)
