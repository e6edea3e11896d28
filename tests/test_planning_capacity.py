"""The capacity model: laws that hold on every cluster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import scale_capacity
from populora_core.config.sections import REPOSITORY
from populora_core.planning.capacity import Alone, Cluster, Expected, Load, Speeds, expected, whole
from populora_core.planning.duration import BACKWARD, FORWARD, Rates, step_seconds
from populora_core.planning.memory import read_shape

TINY = read_shape(REPOSITORY / "base_model" / "tiny", rank=8)
SPEEDS = Speeds(
    shape=TINY,
    sampling=Rates(1e9, 1e9),
    learning=Rates(1e9, 1e9),
    programs=100.0,
    rows=16,
    shard=0.05,
    alone={"match": Alone(0.01, 0.001), "grade": Alone(0.1, 0.01)},
)

loads = st.builds(
    Load,
    teachers=st.integers(1, 40),
    students=st.integers(1, 40),
    proposals=st.integers(1, 30),
    valid=st.floats(0.1, 1.0),
    attempts=st.integers(1, 9),
    judged=st.floats(0.1, 1.0),
    proposal_tokens=st.floats(10.0, 500.0),
    answer_tokens=st.floats(10.0, 500.0),
    spread=st.sampled_from([0.0, 0.2, 0.6]),
)
brief = settings(max_examples=50)
clusters = st.builds(Cluster, st.integers(1, 9), st.integers(1, 4), st.integers(1, 4))


def simulate(load: Load, cluster: Cluster, speeds: Speeds = SPEEDS) -> dict[str, Expected]:
    return expected(load, cluster, speeds, np.random.default_rng(3))


@brief
@given(loads, clusters, st.integers(2, 8))
def test_so_many_times_the_nodes_never_make_a_stage_slower(load: Load, cluster: Cluster, times: int) -> None:
    few, many = simulate(load, cluster), simulate(load, replace(cluster, nodes=times * cluster.nodes))
    for stage, found in few.items():
        assert many[stage].seconds <= found.seconds * (1 + 1e-12), stage


@brief
@given(loads, clusters)
def test_nodes_never_gain_more_than_their_number(load: Load, cluster: Cluster) -> None:
    """On equal members: a narrower batch is never quicker for each of its tokens."""
    one, many = simulate(load, replace(cluster, nodes=1)), simulate(load, cluster)
    for stage, found in one.items():
        assert found.workers <= cluster.nodes * many[stage].workers * (1 + 1e-12) + SPEEDS.shard, stage
        assert found.alone == pytest.approx(many[stage].alone)


@brief
@given(loads)
def test_no_cluster_is_faster_than_the_longest_completion_the_heaviest_member_and_the_driver(
    load: Load,
) -> None:
    found = simulate(load, Cluster(10_000, workers=8, cores=64))
    exact = simulate(replace(load, spread=0.0), Cluster(10_000, workers=8, cores=64))
    step = step_seconds(TINY, 1, SPEEDS.weight_bytes, SPEEDS.sampling)
    assert exact["propose"].workers >= SPEEDS.shard + step * load.proposal_tokens
    assert exact["solve"].workers >= SPEEDS.shard + step * load.answer_tokens
    assert found["verify"].workers >= 1 / SPEEDS.programs
    for stage, driver in SPEEDS.alone.items():
        assert found[stage].seconds >= driver.fixed + driver.member * load.members


@brief
@given(loads)
def test_more_workers_than_members_change_nothing(load: Load) -> None:
    enough, more = (simulate(load, Cluster(nodes)) for nodes in (load.members, 10 * load.members))
    for stage in ("propose", "solve", "update"):
        assert more[stage] == enough[stage]


@brief
@given(loads, clusters)
def test_twice_the_members_never_take_less(load: Load, cluster: Cluster) -> None:
    load = replace(load, spread=0.0, students=load.teachers)
    twice = replace(load, teachers=2 * load.teachers, students=2 * load.students)
    few, many = simulate(load, cluster), simulate(twice, cluster)
    assert all(few[stage].seconds <= many[stage].seconds * (1 + 1e-12) for stage in few)


def test_joined_states_and_the_store_are_waited_for_by_all() -> None:
    load = scale_capacity.load(1000)
    joined, left = (scale_capacity.speeds({}, joined=joined) for joined in (True, False))
    waiting = {
        name: whole(simulate(load, Cluster(128), each)).alone for name, each in (("j", joined), ("l", left))
    }
    states = 12 * left.shape.adapter * load.members  # float32 weights and two moments
    assert waiting["j"] - waiting["l"] == pytest.approx(
        2 * 2 * states / scale_capacity.JOINED
    )  # update, evolve
    adapters = 2 * 4 * left.shape.adapter * load.members  # read once by one role's stage, written once
    assert waiting["l"] == pytest.approx(adapters / scale_capacity.STORE_BYTES, rel=0.01)


def test_a_few_members_saturate_few_nodes_and_a_thousand_many() -> None:
    def gain(members: int, nodes: int) -> float:
        one, many = (whole(scale_capacity.simulate(members, n, {}, joined=False)) for n in (1, nodes))
        return one.seconds / many.seconds / nodes

    assert gain(8, 128) < 0.1 < 0.3 < gain(1000, 128) < gain(1000, 8) <= 1.0
    assert not scale_capacity.fits(1000, 1)
    assert scale_capacity.fits(1000, 128)


@pytest.mark.parametrize("members", [2, 5])
def test_a_run_that_keeps_its_rates_is_foreseen_exactly(members: int) -> None:
    """Rates are those of a run of two members of each role."""
    free, sampled, learned = 1e30, 9.0, 5.0  # a rate that is never waited for; seconds of two members
    rows, own, answer = (
        24,
        40.0,
        30.0,
    )  # proposals of a teacher, half of them valid; tokens of each, and of 4 attempts
    tokens = 2 * rows * (own + 2 * answer)
    speeds = Speeds(
        shape=TINY,
        sampling=Rates(FORWARD * TINY.parameters * tokens / sampled, free),
        learning=Rates((FORWARD + BACKWARD) * TINY.parameters * tokens / learned, free),
        programs=free,
        rows=16,
    )
    load = Load(members, members, rows, 0.5, 4, 0.5, own, answer, spread=0.0)
    found = simulate(load, Cluster(1), speeds)
    assert found["propose"].workers + found["solve"].workers == pytest.approx(members / 2 * sampled, rel=1e-6)
    assert found["update"].workers == pytest.approx(members / 2 * learned, rel=1e-6)
