"""Estimators: how rewards become advantages.

An estimator is a function (rewards, groups, cohorts, *, std_floor, clip) -> advantages over the rows of one
role:

- rewards: one per row; None where infrastructure failed. Such a row stays None and counts nowhere.
- groups: what was sampled under one condition: the problem of an attempt, member and type of a proposal.
- cohorts: member and problem type. Members never share statistics.
- std_floor: smallest divisor. clip: largest absolute advantage.

Rows that cannot be told apart (equal rewards, a single row) get exactly 0: they are not trained on. Put one
into `ESTIMATORS`, or name its place as "package.module:function", and `update.estimator` can choose it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from populora_core.support.arrays import Array
from populora_core.support.errors import PopulationError
from populora_core.support.registry import Registry

Rewards = Sequence[float | None]
Keys = Sequence[str]
Advantages = list[float | None]
Estimator = Callable[..., Advantages]

SPREAD_FLOOR = 1e-8  # below it rewards count as equal, whatever rounding left


def reinforce_pp(
    rewards: Rewards, groups: Keys, cohorts: Keys, *, std_floor: float = 0.1, clip: float = 5.0
) -> Advantages:
    """REINFORCE++ with baseline (arXiv 2501.03262): centre rewards within groups, then scale them within cohorts.

    The paper subtracts the mean reward of the completions of one prompt and whitens over the global batch.
    Three things differ here. The scale is taken per cohort, so that members never share statistics. There is
    no second mean: centred rewards already sum to zero over a cohort, and a shift would hand an advantage to
    groups whose rewards are all equal. And the divisor has a floor, so that a cohort with hardly any spread
    is not blown up to unit variance. There is no KL term.
    """
    return scale(centre(rewards, groups), cohorts, std_floor=std_floor, clip=clip)


def trr_pp(
    rewards: Rewards, groups: Keys, cohorts: Keys, *, std_floor: float = 0.1, clip: float = 5.0
) -> Advantages:
    """Task-relative REINFORCE++, the estimator of Absolute Zero (arXiv 2505.03335): whiten within cohorts.

    Each problem type and role has its own mean and standard deviation. The paper keeps one baseline for each of
    six (type, role) batches instead of one per prompt, since it draws one completion per prompt; so `groups` do not
    matter here. Three things differ. Statistics are taken per member as well, which for a single agent is the
    paper's. They are taken over completions, where its code takes them over tokens and lets long completions
    weigh more. And the divisor has a floor and the result a bound, where its code divides by whatever spread
    there is.
    """
    return scale(centre(rewards, cohorts), cohorts, std_floor=std_floor, clip=clip)


def grpo(
    rewards: Rewards, groups: Keys, cohorts: Keys, *, std_floor: float = 0.1, clip: float = 5.0
) -> Advantages:
    """Group-relative policy optimisation (arXiv 2402.03300, section 4.1): whiten within groups.

    `cohorts` do not matter. The advantage is the paper's for outcome rewards, but for the floor of the divisor
    and the bound: a group with one success in many has a small spread and, divided by it, outweighs all others.
    A teacher's proposals of one type are one group, although their prompts show different references. What
    follows the advantage is this learner's and not the paper's: a mean over a member's tokens, where the paper
    takes a mean over each completion first, and no KL term.
    """
    return scale(centre(rewards, groups), groups, std_floor=std_floor, clip=clip)


def success_only(
    rewards: Rewards, groups: Keys, cohorts: Keys, *, std_floor: float = 0.1, clip: float = 5.0
) -> Advantages:
    """Learn from what did better than its group, and from nothing else (cf. RAFT, arXiv 2304.06767).

    The positive part of `reinforce_pp`. A completion becomes less likely only because others become more likely.
    """
    whitened = reinforce_pp(rewards, groups, cohorts, std_floor=std_floor, clip=clip)
    return [None if value is None else max(value, 0.0) for value in whitened]


def maxrl(
    rewards: Rewards, groups: Keys, cohorts: Keys, *, std_floor: float = 0.1, clip: float = 5.0
) -> Advantages:
    """Centre rewards within groups, and divide by the group's success rate (maximum-likelihood RL, arXiv 2602.02710).

    The gradient of log p in place of that of p: a problem that is solved once in eight attempts weighs eight times
    one that is nearly always solved, if `clip` is above 1.5 times the attempts. Success is a positive reward; a group
    without any gives what centring gives. `std_floor` and cohorts do not matter.
    """

    def by_success(values: Array) -> Array:
        p = (values > 0.0).mean()
        return np.clip((values - values.mean()) / (p or 1.0), -clip, clip)

    return _by_key(rewards, groups, np.ptp, by_success)


ESTIMATORS = Registry(
    {
        "reinforce_pp": reinforce_pp,
        "trr_pp": trr_pp,
        "grpo": grpo,
        "success_only": success_only,
        "maxrl": maxrl,
    },
    group="populora.estimators",
    what="estimator",
    setting="update.estimator",
)


def advantages(
    estimator: str, rewards: Rewards, groups: Keys, cohorts: Keys, *, std_floor: float, clip: float
) -> Advantages:
    """The advantages that the estimator of this name gives.

    Raises:
        PopulationError: no such estimator, or one that does not keep to the contract above.
    """
    estimate: Estimator = ESTIMATORS.find(estimator)
    found = list(estimate(rewards, groups, cohorts, std_floor=std_floor, clip=clip))
    given = [reward is not None for reward in rewards]
    if [value is not None and math.isfinite(value) for value in found] != given:
        raise PopulationError(
            f"the estimator {estimator} did not give one advantage per reward",
            expected=f"{len(given)} values, None where the reward is None and finite elsewhere",
            got=f"{len(found)} values, {sum(value is None for value in found)} of them None",
            fix="fix the function that update.estimator names",
        )
    return found


def alike_by_type(values: Rewards, tokens: Sequence[int], members: Keys, cohorts: Keys) -> Advantages:
    """Scale advantages so that a member's token mean becomes the mean over its problem types of their token means.

    The factor is T / (n T_k), with T tokens of the member, n types, T_k tokens of the row's own type: without it a type
    of long completions outweighs the others. The clipped loss is linear in a positive factor, so the learner need not
    know of it.

    Args:
        tokens: of each row's completion; rows without an advantage count nowhere.
    """
    of_member, of_cohort = defaultdict[str, int](int), defaultdict[str, int](int)
    for value, length, member, cohort in zip(values, tokens, members, cohorts, strict=True):
        if value is not None:
            of_member[member] += length
            of_cohort[cohort] += length
    owner = dict(zip(cohorts, members, strict=True))
    types = Counter(owner[cohort] for cohort in of_cohort)
    return [
        None if value is None else value * of_member[member] / (types[member] * of_cohort[cohort])
        for value, member, cohort in zip(values, members, cohorts, strict=True)
    ]


def centre(rewards: Rewards, keys: Keys) -> Advantages:
    """Subtract the mean of the rows of each key; equal rewards, or a single row, give exactly 0."""
    return _by_key(rewards, keys, np.ptp, lambda values: values - values.mean())


def scale(centred: Rewards, keys: Keys, *, std_floor: float, clip: float) -> Advantages:
    """Divide by max(std, std_floor) of the rows of each key, then clip; rows without spread give exactly 0."""
    return _by_key(
        centred, keys, np.std, lambda values: np.clip(values / max(values.std(), std_floor), -clip, clip)
    )


def _by_key(
    given: Rewards, keys: Keys, spread: Callable[[Array], Any], change: Callable[[Array], Array]
) -> Advantages:
    """The values changed together with those of the same key; to 0 where these do not differ."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, (value, key) in enumerate(zip(given, keys, strict=True)):
        if value is not None:
            rows[key].append(row)
    result = list(given)
    for alike in rows.values():
        values = np.array([given[row] for row in alike], dtype=np.float64)
        changed = np.zeros_like(values) if spread(values) < SPREAD_FLOOR else change(values)
        for at, row in enumerate(alike):
            result[row] = float(changed[at])
    return result
