"""Claims of the study on a pretrained base: that self-play teaches what a pair without its rewards does not.

Margins are frozen as those of `claims.py` are, by bench/results/study-real/study.md.
"""

from __future__ import annotations

from statistics import fmean

from populora_core.config.sections import GradeSection
from populora_plugins.study.claims import held_out
from populora_plugins.study.judgement import ClaimArm, Family, score_difference


def format_only(solve_rate: float, rules: GradeSection) -> float:
    """The reward of a control: every valid problem pays alike, however many attempts solve it."""
    return 1.0


REAL = Family(
    "claims",
    "What was claimed, and what was measured",
    "Scores are greedy, of the student, on outputs of CRUXEval's functions, with 95 % intervals over seeds, exact if "
    "the arms differ by a shift. “Supported” is corrected for the number of claims and needs an effect of at least the "
    "margin; “no difference” says that the 90 % interval lies within the margin either way, “refuted” that the "
    "opposite is so. All of it holds for these problems and this base.",
    (
        score_difference(
            "over_format",
            "What teachers are paid for matters",
            "A student gains more from a teacher that is paid for problems solved now and then than from one that is "
            "paid for any valid problem.",
            "the student's score, self-play minus a teacher paid for format only",
            held_out(fmean),
            0.03,
            against=ClaimArm.FORMAT,
        ),
        score_difference(
            "over_pool",
            "A teacher beats a pool",
            "A student gains more from a teacher that learns than from the base's own problems, drawn by p(1 - p).",
            "the student's score, self-play minus the pool",
            held_out(fmean),
            0.03,
            against=ClaimArm.POOL,
        ),
    ),
)
