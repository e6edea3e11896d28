"""Rewards are exactly as tabled in the design (section 8)."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from made_runs.filled import filled
from populora_core.config.sections import GradeSection
from populora_core.problems.rewards import (
    TEACHER_REWARDS,
    GradedProblem,
    ProblemReward,
    fitness_sharing,
    look_at_problems,
    luck,
    student_reward,
    teacher_reward,
)
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.support.errors import PopulationError
from populora_core.support.trust import remember

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


@pytest.mark.parametrize("name", TEACHER_REWARDS)
def test_a_registered_reward_pays_by_its_formula(name: str) -> None:
    formula = {
        "one_minus_p": lambda p: 1 - p,
        "learnability": lambda p: 4 * p * (1 - p),
        "zone": lambda p: min(p, 1 - p),
        "azr": lambda p: 1 - p,
    }[name]
    rules = GradeSection(teacher_reward=name, teacher_unsolved=0.25, teacher_always_solved=-0.25)
    ends = (-0.5, -0.5) if name == "azr" else (0.25, -0.25)
    assert (reward(rules, 0.0), reward(rules, 1.0)) == ends
    for p in (0.125, 0.5, 0.875):
        assert reward(rules, p) == formula(p)


def test_a_function_of_ones_own_pays() -> None:
    remember(["test_problems_rewards:three_of_eight"])
    assert reward(GradeSection(teacher_reward="test_problems_rewards:three_of_eight"), 0.375) == 1.0
    with pytest.raises(PopulationError, match="'generous' is no teacher's reward"):
        reward(GradeSection(teacher_reward="generous"), 0.5)


def three_of_eight(solve_rate: float, rules: GradeSection) -> float:
    return float(solve_rate == 0.375)


def test_subtracting_chance_pays_for_what_guessing_leaves() -> None:
    rules = GradeSection(chance="subtract", teacher_unsolved=-0.25)
    assert reward(rules, 0.625, chance=0.25) == 0.5
    assert reward(rules, 0.25, chance=0.25) == reward(rules, 0.125, chance=0.25) == -0.25, "as never solved"
    assert reward(rules, 1.0, chance=0.25) == 0.0
    assert reward(rules, 1.0, chance=1.0) == -0.25


def test_discounting_chance_takes_its_share_of_what_is_paid_and_of_no_fine() -> None:
    rules = GradeSection(chance="discount", teacher_unsolved=-0.25)
    assert reward(rules, 0.5, chance=0.25) == 0.5 * 0.75**2
    assert reward(rules, 0.0, chance=0.25) == -0.25


def test_successes_that_guesses_reach_one_time_in_five_count_as_none() -> None:
    """At a chance of .05, one of eight attempts is right by luck in .34 of cases, two in .057; one of four in .185."""
    rules = GradeSection(chance="reject", teacher_unsolved=-0.25)
    assert luck(1, 8, 0.05) == pytest.approx(1 - 0.95**8)
    assert luck(2, 8, 0.05) == pytest.approx(1 - 0.95**8 - 8 * 0.05 * 0.95**7)
    assert [reward(rules, p, chance=0.05) for p in (0.125, 0.25, 0.5, 1.0)] == [-0.25, 0.75, 0.5, 0.0]
    assert reward(rules, 0.125, chance=0.0) == 0.875, "what no guess reaches is no luck"
    assert reward(rules, 0.25, chance=0.05, attempts=4) == 0.75
    assert reward(rules, 0.25, chance=0.1, attempts=4) == -0.25


def test_a_new_cell_is_paid_for_only_where_some_attempts_succeed() -> None:
    rules = GradeSection(new_cell_bonus=0.25, teacher_unsolved=-0.5, teacher_always_solved=-0.25)
    paid = [reward(rules, p, new_cell=True) for p in (0.0, 0.125, 0.5, 1.0)]
    assert paid == [-0.5, 0.875 + 0.25, 0.5 + 0.25, -0.25]
    assert reward(rules, 0.5) == 0.5, "the cell was seen"
    assert teacher_reward(ProposalVerdict.DUPLICATE, None, rules, new_cell=True) == -1.0


def test_chance_is_taken_out_of_the_bonus_for_a_new_cell_too() -> None:
    subtracted = GradeSection(chance="subtract", new_cell_bonus=0.25)
    assert reward(subtracted, 0.625, chance=0.25, new_cell=True) == 0.5 + 0.25
    assert reward(subtracted, 0.25, chance=0.25, new_cell=True) == 0.0, "as never solved"
    discounted = GradeSection(chance="discount", new_cell_bonus=0.25)
    assert reward(discounted, 0.5, chance=0.5, new_cell=True) == (0.5 + 0.25) * 0.5**2


def test_chance_that_is_off_changes_no_payment() -> None:
    assert reward(RULES, 0.5, chance=0.9) == 0.5


def test_a_niche_earns_what_its_full_share_of_the_crowd_would() -> None:
    rewards = [0.8, 0.8, 0.8, 0.4, -1.0, 0.0, None, 0.8]
    niches = [3, 3, 3, 4, None, 3, 3, 3]
    crowds = ["t"] * 7 + ["u"]
    paid = fitness_sharing(rewards, niches, crowds, niche=0.25)
    assert paid == pytest.approx([*[0.8 * 0.25 * 7 / 5] * 3, 0.4, -1.0, 0.0, None, 0.8 * 0.25]), (
        "five of seven share; one of seven is below a quarter; no one is fined more"
    )
    assert fitness_sharing(rewards, niches, crowds, niche=1.0) == rewards


def test_what_a_guesser_earns_its_teacher() -> None:
    """Some ways pay less than a fifth for guessing, at every chance up to a half; the paper's rule pays .65."""
    chances = np.linspace(0.0, 0.5, 51)
    safe = {
        (name, way)
        for name in TEACHER_REWARDS
        for way in ("off", "subtract", "discount", "reject")
        if max(guessers_pay(GradeSection(teacher_reward=name, chance=way), c) for c in chances) < 0.2
    }
    assert safe == {
        ("zone", "subtract"),
        ("zone", "discount"),
        *((name, "reject") for name in TEACHER_REWARDS),
    }
    assert all(
        guessers_pay(GradeSection(chance="reject"), c, n) < 0.2 for c in chances for n in (1, 4, 16, 64)
    )
    assert max(guessers_pay(RULES, c) for c in chances) == pytest.approx(0.65, abs=0.005)


def guessers_pay(rules: GradeSection, chance: float, attempts: int = 8) -> float:
    """The expected reward where each of so many attempts is right by chance alone."""
    return sum(
        comb(attempts, right)
        * chance**right
        * (1 - chance) ** (attempts - right)
        * (reward(rules, right / attempts, chance, attempts=attempts) or 0.0)
        for right in range(attempts + 1)
    )


def reward(
    rules: GradeSection, solve_rate: float, chance: float = 0.0, new_cell: bool = False, attempts: int = 8
) -> float | None:
    return teacher_reward(ProposalVerdict.VALID, solve_rate, rules, chance, new_cell, attempts)


def test_teachers_of_different_slots_are_paid_by_different_rewards() -> None:
    rules = GradeSection(teacher_reward=("one_minus_p", "learnability", "zone"))
    paid = [teacher_reward(ProposalVerdict.VALID, 0.125, rules, slot=slot) for slot in range(3)]
    assert paid == [0.875, 0.4375, 0.125] and rules.reward_of(1) == "learnability"


@ProblemReward
def long_and_disputed(solve_rate: float, rules: GradeSection, problem: GradedProblem) -> float:
    answers = {attempt["answer"] for attempt in problem.attempts}
    return solve_rate * problem.row["lines_of_code"] * len(answers)


def judged(*answers: str) -> GradedProblem:
    """A problem of four lines with these answers, of which `1` is right."""
    attempts = [
        filled("attempt_grades", answer=answer, verdict="correct" if answer == "1" else "wrong")
        for answer in answers
    ]
    return GradedProblem(filled("problems", lines_of_code=4), attempts)


def test_a_reward_may_look_at_the_problem_and_its_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TEACHER_REWARDS, "own", long_and_disputed)
    rules, problem = GradeSection(teacher_reward="own"), judged("1", "2", "2", "3")
    assert problem.solve_rate == 0.25
    assert teacher_reward(ProposalVerdict.VALID, 0.25, rules, problem=problem) == 0.25 * 4 * 3
    assert judged().solve_rate is None


def test_the_rate_that_such_a_reward_is_paid_by_has_chance_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TEACHER_REWARDS, "own", ProblemReward(lambda rate, rules, problem: rate))
    rules = GradeSection(teacher_reward="own", chance="subtract")
    assert teacher_reward(ProposalVerdict.VALID, 0.5, rules, chance=0.25, problem=judged("1", "2")) == 1 / 3


def test_such_a_reward_without_a_problem_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TEACHER_REWARDS, "own", long_and_disputed)
    with pytest.raises(PopulationError, match="the teacher's reward own looks at the problem"):
        reward(GradeSection(teacher_reward="own"), 0.5)


def test_only_such_rewards_look_at_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TEACHER_REWARDS, "own", long_and_disputed)
    assert look_at_problems(["zone", "own"]) and not look_at_problems(["zone", "azr"])


@pytest.mark.parametrize("paid", [float("nan"), float("inf"), None, "much"])
def test_a_reward_that_is_no_number_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, paid: object) -> None:
    monkeypatch.setitem(TEACHER_REWARDS, "own", lambda rate, rules: paid)
    with pytest.raises(PopulationError, match="the teacher's reward own pays no number"):
        reward(GradeSection(teacher_reward="own"), 0.5)


@pytest.mark.parametrize("verdict", list(AttemptVerdict))
def test_a_student_earns_by_its_verdict(verdict: AttemptVerdict) -> None:
    special = {
        AttemptVerdict.CORRECT: 1.0,
        AttemptVerdict.FORMAT_ERROR: -1.0,
        AttemptVerdict.INFRASTRUCTURE: None,
    }
    assert student_reward(verdict, RULES) == special.get(verdict, -0.5)
