"""What teachers and students are paid (PopuLoRA, section on rewards; the constants are AZR's)."""

from __future__ import annotations

from populora_core.config.sections import GradeSection
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict


def teacher_reward(verdict: ProposalVerdict, solve_rate: float | None, rules: GradeSection) -> float | None:
    """The reward of one proposal, or None where infrastructure failed.

    Args:
        solve_rate: the matched student's share of correct attempts, None when no attempt was judged.
    """
    if verdict is ProposalVerdict.INFRASTRUCTURE:
        return None
    if verdict is not ProposalVerdict.VALID:
        return rules.teacher_invalid
    if solve_rate is None:
        return None
    if solve_rate == 0.0:
        return rules.teacher_unsolved
    if solve_rate == 1.0:
        return rules.teacher_always_solved
    return 1.0 - solve_rate


def student_reward(verdict: AttemptVerdict, rules: GradeSection) -> float | None:
    """The reward of one attempt, or None where infrastructure failed."""
    match verdict:
        case AttemptVerdict.INFRASTRUCTURE:
            return None
        case AttemptVerdict.CORRECT:
            return rules.student_correct
        case AttemptVerdict.FORMAT_ERROR:
            return rules.student_format
        case _:
            return rules.student_wrong
