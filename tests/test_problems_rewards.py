"""Rewards are exactly as tabled in the design (section 8)."""

from __future__ import annotations

import pytest

from populora_core.config.sections import GradeSection
from populora_core.problems.rewards import student_reward, teacher_reward
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict

RULES = GradeSection()
AZR = GradeSection(teacher_unsolved=-0.5, teacher_always_solved=-0.5)


@pytest.mark.parametrize(
    ("verdict", "solve_rate", "reward"),
    [
        (ProposalVerdict.VALID, 0.0, 0.0),
        (ProposalVerdict.VALID, 0.125, 0.875),
        (ProposalVerdict.VALID, 0.5, 0.5),
        (ProposalVerdict.VALID, 1.0, 0.0),
        (ProposalVerdict.VALID, None, None),
        (ProposalVerdict.INFRASTRUCTURE, None, None),
    ],
)
def test_a_teacher_earns_one_minus_p_as_long_as_somebody_solved_it(
    verdict: ProposalVerdict, solve_rate: float | None, reward: float | None
) -> None:
    assert teacher_reward(verdict, solve_rate, RULES) == reward


@pytest.mark.parametrize(
    "verdict",
    [v for v in ProposalVerdict if v not in (ProposalVerdict.VALID, ProposalVerdict.INFRASTRUCTURE)],
)
def test_every_invalid_proposal_costs_one(verdict: ProposalVerdict) -> None:
    assert teacher_reward(verdict, None, RULES) == -1.0


def test_the_azr_variant_fines_problems_that_teach_nothing() -> None:
    assert teacher_reward(ProposalVerdict.VALID, 0.0, AZR) == -0.5
    assert teacher_reward(ProposalVerdict.VALID, 1.0, AZR) == -0.5
    assert teacher_reward(ProposalVerdict.VALID, 0.75, AZR) == 0.25


@pytest.mark.parametrize("verdict", list(AttemptVerdict))
def test_a_student_earns_by_its_verdict(verdict: AttemptVerdict) -> None:
    special = {
        AttemptVerdict.CORRECT: 1.0,
        AttemptVerdict.FORMAT_ERROR: -1.0,
        AttemptVerdict.INFRASTRUCTURE: None,
    }
    assert student_reward(verdict, RULES) == special.get(verdict, -0.5)
