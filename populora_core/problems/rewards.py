"""Rewards of teachers and students (PopuLoRA, section on rewards; the constants are AZR's).

A teacher's payment is a function (solve rate, rules) -> reward over solve rates from 0 to 1; as a `ProblemReward` it
is given the problem too. `grade.teacher_reward` names it, for all teachers or for each slot: one of `TEACHER_REWARDS`,
of another package's entry points, or a place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import comb, isfinite
from numbers import Real
from typing import TYPE_CHECKING

from populora_core.config.sections import GradeSection
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.support.errors import PopulationError
from populora_core.support.registry import Registry

if TYPE_CHECKING:
    from populora_core.store.rows import AttemptGradeRow, ProblemRow

TeacherReward = Callable[[float, GradeSection], float]
NOTHING_LEARNT = -0.5  # AZR's code, of problems that are always or never solved
LUCK = 0.2  # successes that blind guessing reaches more often than this prove nothing


@dataclass(frozen=True, slots=True)
class GradedProblem:
    """A verified problem with its judged attempts.

    Attributes:
        row: of the table `problems`: program, type, inputs, outputs, measures, chance, slack.
        attempts: rows of `attempt_grades`, with answer and verdict; those that infrastructure lost are left out.
    """

    row: ProblemRow
    attempts: Sequence[AttemptGradeRow]

    @property
    def solve_rate(self) -> float | None:
        """Share of the attempts that are right; None where there are none."""
        right = sum(attempt["verdict"] == AttemptVerdict.CORRECT for attempt in self.attempts)
        return right / len(self.attempts) if self.attempts else None


@dataclass(frozen=True, slots=True)
class ProblemReward:
    """A teacher's reward that looks at more than the solve rate: decorate its function with this.

    Args:
        pay: (solve rate, rules, problem) -> reward. `rules.chance` has been taken out of the first, and not out of the
            problem's own solve rate.
    """

    pay: Callable[[float, GradeSection, GradedProblem], float]

    def __call__(self, solve_rate: float, rules: GradeSection, problem: GradedProblem) -> float:
        return self.pay(solve_rate, rules, problem)


def one_minus_p(solve_rate: float, rules: GradeSection) -> float:
    """PopuLoRA's: the harder the better, as long as it can be solved."""
    return _unless_certain(solve_rate, rules, 1.0 - solve_rate)


def learnability(solve_rate: float, rules: GradeSection) -> float:
    """4 p (1 - p): the variance of one attempt, at most 1 (cf. arXiv 2502.12272)."""
    return _unless_certain(solve_rate, rules, 4.0 * solve_rate * (1.0 - solve_rate))


def zone(solve_rate: float, rules: GradeSection) -> float:
    """min(p, 1 - p): the nearer to one half the better."""
    return _unless_certain(solve_rate, rules, min(solve_rate, 1.0 - solve_rate))


def azr(solve_rate: float, rules: GradeSection) -> float:
    """Absolute Zero's code: as `one_minus_p`, with a fine for problems that are always or never solved."""
    return 1.0 - solve_rate if 0.0 < solve_rate < 1.0 else NOTHING_LEARNT


TEACHER_REWARDS = Registry(
    {"one_minus_p": one_minus_p, "learnability": learnability, "zone": zone, "azr": azr},
    group="populora.teacher_rewards",
    what="teacher's reward",
    setting="grade.teacher_reward",
)


def look_at_problems(names: Iterable[str]) -> bool:
    """True if one of these rewards looks at the problem."""
    return any(isinstance(TEACHER_REWARDS.find(name), ProblemReward) for name in names)


def teacher_reward(
    verdict: ProposalVerdict,
    solve_rate: float | None,
    rules: GradeSection,
    chance: float = 0.0,
    new_cell: bool = False,
    attempts: int = 1,
    slot: int = 0,
    own: str | None = None,
    problem: GradedProblem | None = None,
) -> float | None:
    """The reward of one proposal, or None where infrastructure failed.

    Args:
        solve_rate: the matched student's share of correct attempts, None when no attempt was judged.
        chance: how often a blind guess solves the problem.
        attempts: how many attempts were judged; only the test of luck (`rules.chance = "reject"`) asks.
        new_cell: whether the bonus for a new cell is due, where the solve rate that is paid is neither 0 nor 1.
        slot: the teacher's, where `rules` pay each slot by its own reward.
        own: name of the reward that the teacher inherits, in place of what `rules` say.
        problem: what the proposal became; only a `ProblemReward` asks.

    Raises:
        PopulationError: `rules` name no teacher's reward, one that pays no finite number, or one that asks for a
            problem that is not given.
    """
    if verdict is ProposalVerdict.INFRASTRUCTURE:
        return None
    if verdict is not ProposalVerdict.VALID:
        return rules.teacher_invalid
    if solve_rate is None:
        return None
    name = own or rules.reward_of(slot)
    rate = _without_luck(solve_rate, chance, attempts, rules)
    paid = _pay(name, rate, rules, problem)
    if not isinstance(paid, Real) or not isfinite(paid):
        raise PopulationError(
            f"the teacher's reward {name} pays no number",
            expected=f"a finite number for the solve rate {rate:g}",
            got=repr(paid),
            fix="correct the function that grade.teacher_reward names, then populora resume",
        )
    if new_cell and 0.0 < rate < 1.0:
        paid += rules.new_cell_bonus
    return paid * (1.0 - chance) ** 2 if rules.chance == "discount" and paid > 0.0 else paid


def fitness_sharing(
    rewards: Sequence[float | None], niches: Sequence[Hashable], crowds: Sequence[Hashable], niche: float
) -> list[float | None]:
    """Reduce rewards in a crowded niche: fitness sharing (Goldberg and Richardson, 1987).

    A positive reward is multiplied by min(1, niche / s), with s the share of its crowd that sits in its niche. So a
    niche earns as a whole what `niche` of the crowd would earn there, and it pays to go where few are.

    Args:
        rewards: None, like a reward of 0 and less, stays as it is, but its row takes a place.
        niches: of each row, within its crowd.
        crowds: whom a row shares with.
        niche: share of a crowd that earns in full; 1: everybody.
    """
    sitting, there = Counter(zip(crowds, niches, strict=True)), Counter(crowds)
    return [
        reward * min(1.0, niche * there[crowd] / sitting[crowd, own]) if reward and reward > 0.0 else reward
        for reward, own, crowd in zip(rewards, niches, crowds, strict=True)
    ]


def beyond_chance(solve_rate: float, chance: float) -> float:
    """The share of what guessing leaves that was solved: max(0, (p - c) / (1 - c)); 0 where guessing leaves nothing."""
    return max(0.0, (solve_rate - chance) / (1.0 - chance)) if chance < 1.0 else 0.0


def luck(right: int, attempts: int, chance: float) -> float:
    """Probability that blind guesses get this many attempts or more right: the binomial's upper tail."""
    return sum(
        comb(attempts, k) * chance**k * (1.0 - chance) ** (attempts - k) for k in range(right, attempts + 1)
    )


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


def _pay(name: str, solve_rate: float, rules: GradeSection, problem: GradedProblem | None) -> float:
    """The payment by the reward of this name."""
    pay: TeacherReward | ProblemReward = TEACHER_REWARDS.find(name)
    if not isinstance(pay, ProblemReward):
        return pay(solve_rate, rules)
    if problem is None:
        raise PopulationError(
            f"the teacher's reward {name} looks at the problem",
            expected="a GradedProblem",
            got="none",
            fix="give teacher_reward the problem",
        )
    return pay(solve_rate, rules, problem)


def _without_luck(solve_rate: float, chance: float, attempts: int, rules: GradeSection) -> float:
    """The solve rate that is paid, once `rules.chance` has taken out of it what guessing explains."""
    match rules.chance:
        case "subtract":
            return beyond_chance(solve_rate, chance)
        case "reject" if luck(round(solve_rate * attempts), attempts, chance) > LUCK:
            return 0.0
        case _:
            return solve_rate


def _unless_certain(solve_rate: float, rules: GradeSection, between: float) -> float:
    """The reward `between` where attempts differ; the rules' own where none or all are right."""
    if solve_rate == 0.0:
        return rules.teacher_unsolved
    return rules.teacher_always_solved if solve_rate == 1.0 else between
