"""Group-relative policy optimisation (arXiv 2402.03300, section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence

from populora_core.learner.estimators.whitening import centre, scale


def grpo(
    rewards: Sequence[float | None],
    groups: Sequence[str],
    cohorts: Sequence[str],
    *,
    std_floor: float = 0.1,
    clip: float = 5.0,
) -> list[float | None]:
    """Whiten rewards within each group; `cohorts` do not matter.

    The advantage is the paper's for outcome rewards, but for the floor of the divisor and the bound: a group
    with one success in many has a small spread and, divided by it, outweighs all others. A teacher's
    proposals of one type are one group, although their prompts show different references. What follows the
    advantage is this learner's and not the paper's: a mean over a member's tokens, where the paper takes
    a mean over each completion first, and no KL term.
    """
    return scale(centre(rewards, groups), groups, std_floor=std_floor, clip=clip)
