"""Task-relative REINFORCE++, the estimator of Absolute Zero (arXiv 2505.03335)."""

from __future__ import annotations

from collections.abc import Sequence

from populora_core.learner.estimators.whitening import centre, scale


def trr_pp(
    rewards: Sequence[float | None],
    groups: Sequence[str],
    cohorts: Sequence[str],
    *,
    std_floor: float = 0.1,
    clip: float = 5.0,
) -> list[float | None]:
    """Whiten rewards within each problem type and role, with its own mean and standard deviation.

    The paper keeps one baseline for each of six (type, role) batches instead of one a prompt, since it draws
    one completion a prompt; so `groups` do not matter here. Three things differ. Statistics are taken per
    member as well, which for a single agent is the paper's. They are taken over completions, where its code
    takes them over tokens and lets long completions weigh more. And the divisor has a floor and the
    result a bound, where its code divides by whatever spread there is.
    """
    return scale(centre(rewards, cohorts), cohorts, std_floor=std_floor, clip=clip)
