from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populora_core.learner.advantages import advantages, centre, normalise

rewards_in_groups = st.lists(
    st.tuples(st.one_of(st.none(), st.sampled_from([-1.0, -0.5, 0.0, 0.3, 1.0])), st.sampled_from("pqr")),
    max_size=30,
)


def test_attempts_are_centred_on_their_own_problem():
    assert centre([1.0, -0.5, 1.0, 1.0], ["p", "p", "q", "q"]) == [0.75, -0.75, 0.0, 0.0]


def test_centred_rewards_are_divided_by_the_standard_deviation_of_the_cohort():
    # centred: .75 -.75 0 0, std sqrt(2 * .5625 / 4)
    spread = 0.5303300858899106
    found = advantages([1.0, -0.5, 1.0, 1.0], ["p", "p", "q", "q"], ["s code_o"] * 4)
    assert found == pytest.approx([0.75 / spread, -0.75 / spread, 0.0, 0.0])


def test_proposals_are_centred_and_scaled_in_one_cohort():
    # mean .25, deviations -1.25 .25 .25 .75, std sqrt((1.5625 + .0625 + .0625 + .5625) / 4) = .75
    found = advantages([-1.0, 0.5, 0.5, 1.0], ["t"] * 4, ["t"] * 4)
    assert found == pytest.approx([-1.25 / 0.75, 0.25 / 0.75, 0.25 / 0.75, 1.0])


def test_the_divisor_has_a_floor():
    assert advantages([0.51, 0.49], ["p", "p"], ["s", "s"]) == pytest.approx([0.1, -0.1])


def test_equal_rewards_give_exactly_zero_in_spite_of_rounding():
    assert advantages([0.1] * 3, ["p"] * 3, ["s"] * 3) == [0.0, 0.0, 0.0]


def test_a_single_row_gives_zero():
    assert advantages([1.0], ["p"], ["s"]) == [0.0]
    assert normalise([0.7], ["s"]) == [0.0]


def test_null_rewards_stay_null_and_count_nowhere():
    found = advantages([1.0, None, -1.0, None], ["p", "p", "p", "q"], ["s"] * 4)
    assert found == pytest.approx([1.0, None, -1.0, None])


def test_outliers_are_clipped():
    rewards = [0.0] * 99 + [1.0]
    assert advantages(rewards, ["p"] * 100, ["s"] * 100)[-1] == 5.0


def test_members_do_not_share_a_scale():
    calm, wild = [0.6, 0.4], [30.0, -30.0]
    both = advantages([*calm, *wild], ["p", "p", "q", "q"], ["a", "a", "b", "b"])
    assert both[:2] == advantages(calm, ["p", "p"], ["a", "a"])


@settings(deadline=None)
@given(rewards_in_groups)
def test_each_group_keeps_zero_mean(rows: list[tuple[float | None, str]]):
    rewards, groups = [reward for reward, _ in rows], [group for _, group in rows]
    found = advantages(rewards, groups, ["s"] * len(rows), clip=1e9)
    for name in set(groups):
        values = [a for a, group in zip(found, groups, strict=True) if group == name and a is not None]
        assert not values or abs(np.mean(values)) < 1e-9


@settings(deadline=None)
@given(rewards_in_groups)
def test_null_exactly_where_the_reward_is_null(rows: list[tuple[float | None, str]]):
    rewards = [reward for reward, _ in rows]
    found = advantages(rewards, [group for _, group in rows], ["s"] * len(rows))
    assert [value is None for value in found] == [reward is None for reward in rewards]
