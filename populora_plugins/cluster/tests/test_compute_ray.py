"""A run on a Ray cluster ends as one on this machine does, whatever dies under it, and leaves nothing behind."""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import GENERATIONS, PATIENCE, alive, contents, small_config, start, wait_for
from two_nodes import TwoNodes

from populora_core.compute.members import Found
from populora_core.compute.shards import Shards
from populora_core.compute.work import Generate, Prompt, Shard
from populora_core.config.machinery import ComputeSection
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.lifecycle.loop import train
from populora_core.model.base import base_digest
from populora_core.runs.session import Session
from populora_core.sampler.spec import ModelSpec
from populora_core.sandbox.jobs import Job, Limits
from populora_core.sandbox.status import Status
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.support.errors import (
    AdapterError,
    BaseModelError,
    ClusterUnavailable,
    ConfigError,
    PopuloraError,
    StoreUnavailable,
    WorkerLost,
)
from populora_core.support.trust import remember

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed: pip install -e '.[ray]'", allow_module_level=True)

from ray_faults import SHARED, Faults  # these need Ray

from populora_plugins.cluster import actor_pool
from populora_plugins.cluster.actor_pool import Actor, ActorPool, Call, Site

pytestmark = [pytest.mark.ray, pytest.mark.foreign, pytest.mark.thorough]

ROOT = Path(__file__).resolve().parents[3]
TINY = ROOT / "base_model" / "tiny"
SPEC = ModelSpec(BaseSection(), AdapterSection(rank=2, alpha=4.0), base_digest(TINY))


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    token = tmp_path_factory.mktemp("ray") / "token"
    token.write_text(secrets.token_hex(32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")
        two = TwoNodes()
        yield two
        two.cluster.shutdown()


@pytest.fixture(scope="module")
def disturbed(nodes: TwoNodes, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Faults]:
    """The small run on two nodes: a quiet generation, one in which workers die, one in which machines do."""
    directory = tmp_path_factory.mktemp("runs") / "disturbed"
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(nodes, patch)
        config = small_config(compute={"backend": "ray", "address": nodes.address})
        with Session(start(directory, config), faults) as session:
            faults.session = session
            train(session, GENERATIONS)
    return directory, faults


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_run_on_two_nodes_is_the_run_of_one_machine_though_workers_and_nodes_are_lost(
    disturbed: tuple[Path, Faults], finished: Path
) -> None:
    directory, faults = disturbed
    assert faults.struck == {(generation, stage) for generation in (2, 3) for stage in SHARED}
    assert contents(directory) == contents(finished)
    assert not list(directory.rglob(".shards-*"))


@pytest.mark.loop
@pytest.mark.sandbox
@pytest.mark.parametrize("generation", [1, 2, 3])
@pytest.mark.parametrize("stage", SHARED)
def test_only_the_lost_shard_is_done_again(
    disturbed: tuple[Path, Faults], generation: int, stage: str
) -> None:
    manifest = read_manifest(stage_dir(disturbed[0], generation, stage))
    assert manifest is not None
    records = manifest.extra["shards"]
    again = [record for record in records if record["attempts"] > 1]
    assert len(records) >= 2
    assert [record["attempts"] for record in again] == ([] if generation == 1 else [2])


@pytest.mark.loop
@pytest.mark.sandbox
def test_progress_is_reported_from_within_shards(disturbed: tuple[Path, Faults]) -> None:
    assert disturbed[1].partial > 0


@pytest.fixture(scope="module")
def session(nodes: TwoNodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session of a run on the two nodes, which starts no stage; whatever a test starts in it, it ends."""
    config = small_config(compute={"backend": "ray", "address": nodes.address})
    with Session(start(tmp_path_factory.mktemp("session") / "run", config)) as session:
        yield session


def founding(*seeds: int) -> list[Found]:
    return [Found({f"founder-{seed}": seed}, {}) for seed in seeds]


def ray_compute(session: Session, spec: ModelSpec = SPEC, **plan: Any) -> Any:
    from populora_plugins.cluster.ray_compute import RayCompute

    return RayCompute(session.backend.cluster, ComputeSection(backend="ray", **plan), spec)


def test_a_worker_that_hangs_is_ended_after_its_deadline(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock jumps when the second shard is handed out: past the deadline of the first, whose worker hangs."""
    compute = ray_compute(session, shard_seconds=PATIENCE)
    Shards(compute, "warm", tmp_path / "warm").map(founding(1, 2))
    submit, frozen, jump = ActorPool.submit, [], 0.0

    def freezing(actor: Actor, call: Call) -> Any:
        nonlocal jump
        if not frozen:
            frozen.append(actor.site.pid)
            os.kill(actor.site.pid, signal.SIGSTOP)
        else:
            jump = 2 * PATIENCE
        return submit(actor, call)

    monkeypatch.setattr(ActorPool, "submit", staticmethod(freezing))
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + jump, sleep=time.sleep)
    monkeypatch.setattr(actor_pool, "time", clock)
    shards = Shards(compute, "hangs", tmp_path / "hangs")
    shards.map(founding(3, 4))
    assert sorted(record["attempts"] for record in shards.records) == [1, 2]
    assert {record["pid"] for record in shards.records}.isdisjoint(frozen)
    wait_for(lambda: not alive(frozen[0]))
    compute.close()


def pool_of(actor: type, accept: Callable[[Site], None] = lambda site: None) -> ActorPool:
    """Two actors of the class, on whichever machine there is room."""
    import ray

    remote = ray.remote(actor).options(num_cpus=0.5, max_concurrency=2)
    return ActorPool("an actor of a test", lambda: range(2), lambda place: remote.remote(), accept)


def toy(perform: Callable[[str], Any], ready: Callable[[], None] = lambda: None) -> type:
    """A class of actors, which travels by value."""

    class Toy:
        def ready(self) -> Site:
            ready()
            return Site.here({})

        def perform(self, text: str) -> Any:
            return perform(text)

        def items(self) -> int:
            return 0

        def close(self) -> None: ...

    return Toy


def ignored(done: int) -> None: ...


def test_a_call_that_no_actor_survives_is_given_up_after_four_attempts(session: Session) -> None:
    def die(text: str) -> None:
        os._exit(1)

    assert session.backend.cluster
    pool, call = pool_of(toy(die)), Call(("a",))
    with pytest.raises(WorkerLost, match="could not do its part") as lost:
        pool.run([call], PATIENCE, ignored)
    assert lost.value.got.startswith("4 attempts were lost")
    assert call.attempts == 4
    pool.close()


def test_actors_that_never_start_are_given_up(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    assert session.backend.cluster
    monkeypatch.setattr(actor_pool, "PAUSE_SECONDS", 0.01)
    pool = pool_of(toy(str, ready=lambda: os._exit(1)))
    with pytest.raises(WorkerLost) as lost:
        pool.ready()
    assert lost.value.got.startswith("8 did not start")
    pool.close()


def test_a_defect_is_told_as_one_and_not_tried_again(session: Session) -> None:
    assert session.backend.cluster
    pool, call = pool_of(toy(lambda text: int(text))), Call(("a",))
    with pytest.raises(PopuloraError, match="a defect in an actor of a test, please report it") as defect:
        pool.run([call], PATIENCE, ignored)
    assert "invalid literal for int" in defect.value.problem
    assert "\x1b" not in defect.value.problem
    assert call.attempts == 1
    pool.close()


def test_an_actor_that_cannot_be_made_is_a_defect(session: Session) -> None:
    class Unmade:
        def __init__(self) -> None:
            raise ImportError("no module named populora_core here")

        def ready(self) -> None: ...

    assert session.backend.cluster
    pool = pool_of(Unmade)
    with pytest.raises(PopuloraError, match="a defect in an actor of a test") as defect:
        pool.ready()
    assert "no module named populora_core here" in defect.value.problem
    pool.close()


def test_an_actor_that_was_lost_while_idle_costs_no_attempt(session: Session) -> None:
    assert session.backend.cluster
    sites: list[Site] = []
    pool = pool_of(toy(lambda text: SimpleNamespace(text=text, items=1)), sites.append)
    pool.ready()
    for site in sites:
        os.kill(site.pid, signal.SIGKILL)
        wait_for(lambda pid=site.pid: not alive(pid))
    calls = [Call((text,)) for text in "abc"]
    counted: list[int] = []
    pool.run(calls, PATIENCE, counted.append)
    assert [(call.result.text, call.attempts) for call in calls] == [("a", 1), ("b", 1), ("c", 1)]
    assert sum(counted) == 3
    pool.close()


def test_an_address_where_nobody_listens_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    from populora_plugins.cluster.ray_cluster import RayCluster

    monkeypatch.setattr("ray.is_initialized", lambda: False)  # the session of the other tests stays
    monkeypatch.setattr("ray.shutdown", lambda: None)
    monkeypatch.setattr("ray.init", lambda **options: pytest.fail("Ray itself tries for minutes"))
    with pytest.raises(ClusterUnavailable, match=r"at 127.0.0.1:1 cannot be joined"):
        RayCluster("127.0.0.1:1")
    with pytest.raises(ClusterUnavailable, match="the Ray cluster at auto cannot be joined"):
        RayCluster("auto")


def test_errors_of_ours_come_through_as_they_are_and_are_not_tried_again(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, handed = ActorPool.submit, list[Call]()

    def noting(actor: Actor, call: Call) -> Any:
        handed.append(call)
        return submit(actor, call)

    monkeypatch.setattr(ActorPool, "submit", staticmethod(noting))
    compute = ray_compute(session)
    (tmp_path / "broken").mkdir()
    with pytest.raises(AdapterError):
        Shards(compute, "key", tmp_path / "shards").map([Found({"a": 1}, {"b": tmp_path / "broken"})])
    assert [call.attempts for call in handed] == [1]
    compute.close()


def test_a_node_without_the_base_model_is_named(session: Session, tmp_path: Path) -> None:
    compute = ray_compute(session, replace(SPEC, base=BaseSection(path=str(tmp_path / "nowhere"))))
    with pytest.raises(BaseModelError, match="has no base model in"):
        Shards(compute, "key", tmp_path / "shards").map(founding(1))
    compute.close()


def test_a_worker_imports_what_its_run_may_and_nothing_else(session: Session, tmp_path: Path) -> None:
    place = "populora_core.problems.dialects.compact:CompactDialect"
    asked = [Generate((), (Prompt(None, "1+1", 0, 1.0, 1.0, 4),))]
    spec = replace(SPEC, base=BaseSection(dialect=place))
    for allowed in (False, True):
        if allowed:
            remember([place])
        compute = ray_compute(session, spec)
        with nullcontext() if allowed else pytest.raises(ConfigError, match="not named yourself"):
            assert len(Shards(compute, "key", tmp_path / "shards").map(asked)[0]) == 1
        compute.close()


def test_a_node_that_does_not_share_the_folder_of_shards_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from populora_plugins.cluster.ray_compute import ShardWorker

    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # which the worker sets
        monkeypatch.setenv(variable, "1")
    shard = Shard(founding(1)[0], 0, "0" * 64, (tmp_path / "elsewhere").as_uri())
    with pytest.raises(StoreUnavailable, match="does not see") as refusal:
        ShardWorker(SPEC, 1, 0, ()).perform(shard)
    assert "store.url" in refusal.value.fix


def test_what_no_node_can_hold_is_refused_at_once(session: Session) -> None:
    with pytest.raises(ClusterUnavailable, match="no machine of the Ray cluster can hold a shard") as refusal:
        ray_compute(session, shard_cpus=64)
    assert "64 CPUs" in refusal.value.expected
    assert "1 CPUs" in refusal.value.got


def test_nodes_whose_versions_differ_are_refused(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from populora_plugins.cluster import ray_compute as module

    compute = ray_compute(session)
    monkeypatch.setattr(module, "versions", lambda: {"torch": "1.0"})  # of this process alone
    with pytest.raises(ClusterUnavailable, match="has other versions than this machine"):
        Shards(compute, "key", tmp_path / "shards").map(founding(1))
    compute.close()


def test_nodes_whose_code_differs_are_refused(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from populora_plugins.cluster import ray_compute as module

    compute = ray_compute(session)
    monkeypatch.setattr(module, "code_digest", lambda: "other")  # of this process alone
    with pytest.raises(ClusterUnavailable, match="has other versions") as refused:
        Shards(compute, "key", tmp_path / "shards").map(founding(1))
    assert refused.value.expected == "code of populora other"
    compute.close()


@pytest.mark.sandbox
def test_sandboxes_of_nodes_whose_code_differs_are_refused(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    from populora_plugins.cluster import ray_sandbox as module

    monkeypatch.setattr(module, "code_digest", lambda: "other")  # of this process alone
    with pytest.raises(ClusterUnavailable, match="has other versions"):
        session.open_sandbox(Limits(), hash_seed=0)


@pytest.mark.sandbox
def test_nodes_whose_sandboxes_differ_are_refused(session: Session) -> None:
    with session.open_sandbox(Limits(), hash_seed=0) as sandbox:
        sandbox.identity = "docker-2-python3.11.7"  # as if another machine had come first
        results = sandbox.run([Job("1", "def f(x):\n    return x", ("(1,)",))])
        assert {result.status for result in results} == {Status.INFRASTRUCTURE}
        assert sandbox.outage is not None
        assert "is not that of the other machines" in sandbox.outage.problem


@pytest.mark.sandbox
def test_a_sandbox_that_is_lost_everywhere_is_an_outage_and_no_verdict(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = ActorPool.submit
    jobs = [Job(str(n), f"def f(x):\n    return x + {n}", ("(1,)",)) for n in range(20)]
    with session.open_sandbox(Limits(), hash_seed=0) as sandbox:
        done: list[int] = []
        assert [result.outputs for result in sandbox.run(jobs, done.append)] == [
            (str(1 + n),) for n in range(20)
        ]
        assert done[-1] == 20

        def killing(actor: Actor, call: Call) -> Any:
            answer = submit(actor, call)
            os.kill(actor.site.pid, signal.SIGKILL)
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(ActorPool, "submit", staticmethod(killing))
            results = sandbox.run(jobs)
        assert {result.status for result in results} == {Status.INFRASTRUCTURE}
        assert sandbox.outage is not None
        assert [result.status for result in sandbox.run(jobs)] == [Status.OK] * 20
        assert sandbox.outage is None
