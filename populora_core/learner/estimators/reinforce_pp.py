"""REINFORCE++ with baseline (arXiv 2501.03262), a baseline a group and a scale a cohort."""

from __future__ import annotations

from collections.abc import Sequence

from populora_core.learner.estimators.whitening import centre, scale


def reinforce_pp(
    rewards: Sequence[float | None],
    groups: Sequence[str],
    cohorts: Sequence[str],
    *,
    std_floor: float = 0.1,
    clip: float = 5.0,
) -> list[float | None]:
    """Centre rewards within groups, then scale them within cohorts.

    The paper subtracts the mean reward of the completions of one prompt and whitens over the global batch.
    Three things differ here. The scale is taken per cohort, so that members never share statistics. There is
    no second mean: centred rewards already sum to zero over a cohort, and a shift would hand an advantage to
    groups whose rewards are all equal. And the divisor has a floor, so that a cohort with hardly any spread
    is not blown up to unit variance. There is no KL term.
    """
    return scale(centre(rewards, groups), cohorts, std_floor=std_floor, clip=clip)
