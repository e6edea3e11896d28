from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora_core.config.load import Config, apply_overrides
from populora_core.learner.estimators import (
    ESTIMATORS,
    advantages,
    alike_by_type,
    grpo,
    maxrl,
    reinforce_pp,
    scale,
    success_only,
    trr_pp,
)
from populora_core.runs.preflight import check_names
from populora_core.support.errors import ConfigError, PopulationError
from populora_core.support.trust import remember

HERE = "test_learner_estimators"

rewards_in_groups = st.lists(
    st.tuples(st.one_of(st.none(), st.sampled_from([-1.0, -0.5, 0.0, 0.3, 1.0])), st.sampled_from("pqr")),
    max_size=30,
)
every_estimator = pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
whitening = pytest.mark.parametrize("estimator", ["grpo", "reinforce_pp", "trr_pp"])
centring = pytest.mark.parametrize("estimator", ["grpo", "maxrl", "reinforce_pp", "trr_pp"])


def estimate(estimator: str, *columns: list, clip: float = 5.0) -> list[float | None]:
    return advantages(estimator, *columns, std_floor=0.1, clip=clip)


class TestReinforcePP:
    def test_attempts_are_centred_on_their_own_problem_and_scaled_by_the_cohort(self):
        # centred: .75 -.75 0 0, std sqrt(2 * .5625 / 4)
        spread = 0.5303300858899106
        found = reinforce_pp([1.0, -0.5, 1.0, 1.0], ["p", "p", "q", "q"], ["s code_o"] * 4)
        assert found == pytest.approx([0.75 / spread, -0.75 / spread, 0.0, 0.0])

    def test_proposals_are_centred_and_scaled_in_one_cohort(self):
        # mean .25, deviations -1.25 .25 .25 .75, std sqrt((1.5625 + .0625 + .0625 + .5625) / 4) = .75
        found = reinforce_pp([-1.0, 0.5, 0.5, 1.0], ["t"] * 4, ["t"] * 4)
        assert found == pytest.approx([-1.25 / 0.75, 0.25 / 0.75, 0.25 / 0.75, 1.0])


class TestTRRPP:
    def test_each_type_and_role_has_its_own_mean_and_deviation_whatever_the_problem(self):
        rewards = [1.0, -0.5, 1.0, 1.0, 30.0, 10.0]
        found = trr_pp(rewards, list("ppqqrs"), ["code_o"] * 4 + ["code_i"] * 2)
        # code_o: mean .625, deviations .375 -1.125 .375 .375, std .6495; code_i: mean 20, std 10
        spread = math.sqrt((3 * 0.375**2 + 1.125**2) / 4)
        assert found == pytest.approx([0.375 / spread, -1.125 / spread, *[0.375 / spread] * 2, 1.0, -1.0])


class TestGRPO:
    def test_each_problem_has_its_own_mean_and_deviation_whatever_the_type(self):
        found = grpo([1.0, -0.5, 1.0, 1.0, 1.0, -1.0], list("ppqqqq"), ["code_o"] * 6)
        # p: mean .25, std .75; q: mean .5, deviations .5 .5 .5 -1.5, std .8660
        spread = math.sqrt(0.75)
        assert found == pytest.approx([1.0, -1.0, *[0.5 / spread] * 3, -1.5 / spread])


class TestSuccessOnly:
    def test_only_what_did_better_than_its_group_counts(self):
        rewards, groups = [1.0, -0.5, 1.0, 1.0], list("ppqq")
        whitened = reinforce_pp(rewards, groups, ["s"] * 4)
        assert success_only(rewards, groups, ["s"] * 4) == [whitened[0], 0.0, 0.0, 0.0]


class TestMaxRL:
    def test_a_problem_weighs_by_the_inverse_of_its_success_rate(self):
        found = maxrl([1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0], list("ppppqqqq"), ["s"] * 8)
        # p: rate 1/4, (1 - 1/4) * 4 = 3; q: rate 1/2, (1 - 1/2) * 2 = 1
        assert found == pytest.approx([3.0, -1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0])

    def test_without_a_success_rewards_are_only_centred(self):
        assert maxrl([-0.5, -1.0], ["p", "p"], ["s", "s"]) == pytest.approx([0.25, -0.25])


@whitening
def test_the_divisor_has_a_floor(estimator: str):
    found = estimate(estimator, [0.51, 0.49], ["p", "p"], ["s", "s"])
    assert found == pytest.approx([0.1, -0.1])


@every_estimator
def test_equal_rewards_give_exactly_zero_in_spite_of_rounding(estimator: str):
    assert estimate(estimator, [0.1] * 3, ["p"] * 3, ["s"] * 3) == [0.0, 0.0, 0.0]


@every_estimator
def test_a_row_without_a_group_is_refused(estimator: str):
    with pytest.raises(ValueError, match="shorter"):
        estimate(estimator, [1.0, 0.0], ["p"], ["s"])


@every_estimator
def test_a_single_row_gives_zero_and_no_rows_give_none(estimator: str):
    assert estimate(estimator, [1.0], ["p"], ["s"]) == [0.0]
    assert estimate(estimator, [], [], []) == []


def test_a_single_centred_row_has_no_spread():
    assert scale([0.7], ["s"], std_floor=0.1, clip=5.0) == [0.0]


@whitening
def test_infrastructure_rows_stay_null_and_count_nowhere(estimator: str):
    found = estimate(estimator, [1.0, None, -1.0, None], ["p", "p", "p", "q"], ["s", "s", "s", "t"])
    assert found == pytest.approx([1.0, None, -1.0, None])


@every_estimator
def test_outliers_are_clipped(estimator: str):
    assert estimate(estimator, [0.0] * 99 + [1.0], ["p"] * 100, ["s"] * 100)[-1] == 5.0


@every_estimator
def test_members_do_not_share_statistics(estimator: str):
    calm, wild = [0.6, 0.4, 0.5], [30.0, -30.0]
    both = estimate(estimator, [*calm, *wild], list("pppqq"), list("aaabb"))
    assert both[:3] == estimate(estimator, calm, ["p"] * 3, ["a"] * 3)


@centring
@given(rows=rewards_in_groups)
def test_what_is_centred_together_keeps_zero_mean(estimator: str, rows: list[tuple[float | None, str]]):
    rewards, groups = [reward for reward, _ in rows], [group for _, group in rows]
    found = estimate(estimator, rewards, groups, ["s"] * len(rows), clip=1e9)
    keys = ["s"] * len(rows) if estimator == "trr_pp" else groups
    for name in set(keys):
        values = [a for a, key in zip(found, keys, strict=True) if key == name and a is not None]
        assert not values or abs(np.mean(values)) < 1e-9


@every_estimator
@given(rows=rewards_in_groups)
def test_null_exactly_where_the_reward_is_null(estimator: str, rows: list[tuple[float | None, str]]):
    rewards = [reward for reward, _ in rows]
    found = estimate(estimator, rewards, [group for _, group in rows], ["s"] * len(rows))
    assert [value is None for value in found] == [reward is None for reward in rewards]


def reward_itself(rewards, groups, cohorts, *, std_floor, clip):
    """An estimator of a user's own: plain REINFORCE."""
    return list(rewards)


def forgetful(rewards, groups, cohorts, *, std_floor, clip):
    return [0.0 if reward is None else reward for reward in rewards]


def without_settings(rewards, groups, cohorts):
    return list(rewards)


def test_a_group_with_further_attempts_is_centred_on_all_of_them():
    """One right in 2, and one right in 6 since 3 more were made; both of one cohort."""
    rewards = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    groups = ["at once"] * 2 + ["later"] * 6
    found = reinforce_pp(rewards, groups, ["s code_o"] * 8)
    centred = np.array([1 / 2, -1 / 2] + [-1 / 6] * 5 + [5 / 6])
    assert found == pytest.approx(centred / centred.std())
    assert maxrl(rewards, groups, groups) == pytest.approx([1.0, -1.0] + [-1.0] * 5 + [5.0])


def test_types_alike_make_a_members_token_mean_the_mean_of_its_types_token_means():
    values, tokens = [1.0, -1.0, 0.5, None, 2.0], [10, 30, 5, 99, 7]
    members, cohorts = list("aaaab"), ["a o", "a o", "a f", "a f", "b o"]
    found = alike_by_type(values, tokens, members, cohorts)
    assert found[3] is None and found[4] == 2.0, "one type alone stays as it is"
    mean = sum(value * n for value, n in zip(found[:3], tokens, strict=False)) / 45
    assert mean == pytest.approx(((10 - 30) / 40 + 0.5) / 2)


@pytest.fixture
def mine():
    """The user's own configuration has named the estimators of this file."""
    remember([f"{HERE}:{function.__name__}" for function in (reward_itself, forgetful, without_settings)])


@pytest.mark.usefixtures("mine")
def test_an_estimator_of_a_users_own_is_named_by_its_place():
    check_names(apply_overrides(Config(), [f"update.estimator={HERE}:reward_itself"]), HERE)
    assert estimate(f"{HERE}:reward_itself", [0.3, None], ["p", "p"], ["s", "s"]) == [0.3, None]


@pytest.mark.usefixtures("mine")
def test_an_estimator_that_pays_for_infrastructure_is_refused():
    with pytest.raises(PopulationError, match="one advantage per reward"):
        estimate(f"{HERE}:forgetful", [0.3, None], ["p", "p"], ["s", "s"])


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("grop", ["update.estimator", "Did you mean grpo?"]),
        ("no.such:estimator", ["update.estimator", "No module named 'no'"]),
        (f"{HERE}:without_settings", ["update.estimator", "no parameter 'clip'"]),
    ],
)
def test_an_estimator_that_cannot_run_is_refused_by_name(name: str, parts: list[str]):
    with pytest.raises(ConfigError) as caught:
        check_names(apply_overrides(Config(), [f"update.estimator={name}"]), HERE)
    for part in parts:
        assert part in str(caught.value)
