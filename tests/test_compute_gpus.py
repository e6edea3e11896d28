"""Several GPUs in one machine: each shard has its own, and what is dealt to them comes to about the same."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from conftest import small_config, start, wait_for

from populora_core.compute.backends import Here
from populora_core.compute.members import Found, Lesson, Update, export
from populora_core.compute.shards import LocalCompute, Shards
from populora_core.compute.work import Worker
from populora_core.config.machinery import SamplerSection
from populora_core.config.sections import AdapterSection, BaseSection, UpdateSection
from populora_core.learner.rows import UpdateRules
from populora_core.model.base import base_digest, load_base
from populora_core.model.stacked import StackedAdapters
from populora_core.model.state import MemberState
from populora_core.runs.session import Session
from populora_core.sampler.requests import Completion, Request
from populora_core.sampler.spec import ModelSpec
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.stages.context import StageContext
from populora_core.stages.engine import run_stage
from populora_core.stages.sampling import deal
from populora_core.stages.table import Stage
from populora_core.support import devices, ids, trust
from populora_core.support.aliases import Progress
from populora_core.support.devices import product_rate
from populora_core.support.errors import ConfigError
from populora_core.support.shipped import shipped

TINY = shipped("base_model", "tiny")
SPEC = ModelSpec(BaseSection(), AdapterSection(rank=2, alpha=4.0), base_digest(TINY))
ON_GPUS = replace(SPEC, base=BaseSection(device="cuda"))


@dataclass(frozen=True, slots=True)
class Look:
    """Work that tells which GPUs its process sees."""

    number: int

    def run(self, worker: Worker, folder: Path, progress: Progress) -> Any:
        return os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"]


@pytest.fixture(autouse=True)
def three_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "LOCKS", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-7,1")


class Elsewhere(Here):
    """The machines of another package."""


@pytest.mark.parametrize(
    ("backend", "watched"),
    [("inline", "5"), ("local", "5,GPU-7"), (f"{__name__}:Elsewhere", "")],
    ids=["inline", "local", "elsewhere"],
)
def test_a_stage_watches_the_gpus_that_its_run_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, watched: str
) -> None:
    asked, tool = tmp_path / "asked", tmp_path / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\necho "$*" > {asked}.part\nmv {asked}.part {asked}\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(devices, "POLL_SECONDS", 0.0)
    trust.remember([f"{__name__}:Elsewhere"])

    def look(ctx: StageContext) -> None:
        if watched:
            wait_for(asked.exists)
        ctx.extra["threads"] = [thread.name for thread in threading.enumerate()]

    config = small_config(base={"device": "cuda"}, compute={"backend": backend, "shards": 2})
    stage = Stage("look-on", 1, needs={}, gives=(), config=(), own={"of": "on"}, code=look)
    with Session(start(tmp_path / "run", config)) as session:
        session.__dict__["compute"] = SimpleNamespace(pids=())
        told = run_stage(session, 0, stage).manifest.extra["threads"]
    assert any("(watch)" in name for name in told) is bool(watched)
    if watched:
        assert f"--id={watched} " in asked.read_text()


@pytest.mark.thorough
def test_each_worker_sees_one_gpu_of_those_that_the_run_sees(tmp_path: Path) -> None:
    backend = LocalCompute(3, 1, ON_GPUS)
    try:
        seen = Shards(backend, "key", tmp_path / "shards").map([Look(0), Look(1), Look(2)])
    finally:
        backend.close()
    assert [tuple(each) for each in seen] == [(name, "PCI_BUS_ID") for name in ("5", "GPU-7", "1")]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "5,GPU-7,1"
    held = {path.name for path in tmp_path.glob("populora-*.lock")}
    assert held == {f"populora-{name}.lock" for name in ("5", "GPU-7", "1")}


def test_more_shards_than_gpus_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"(?s)more shards than GPUs.*at most 3.*Got: 4"):
        LocalCompute(4, 1, ON_GPUS)


ANSWERS = 1536  # of a generation of 4 + 4, at most; it has 192 proposals
SPREAD = 0.7  # of lengths, in the logarithm


def lengths_of(logs: np.ndarray) -> np.ndarray:
    return np.exp(np.log(800) + SPREAD * logs).clip(max=4096)


def fullest(lengths: np.ndarray, expected: Sequence[float]) -> float:
    """Largest over mean load of eight GPUs."""
    loads = np.bincount(deal(expected, 8), lengths, 8)
    return float(loads.max() / loads.mean())


def test_requests_of_lognormal_length_load_gpus_alike_where_it_is_foreseen() -> None:
    draws = [lengths_of(np.random.default_rng(seed).standard_normal(ANSWERS)) for seed in range(40)]
    assert max(fullest(lengths, lengths.tolist()) for lengths in draws) < 1.001
    assert max(fullest(lengths[:192], lengths[:192].tolist()) for lengths in draws) < 1.05


def test_lengths_that_no_one_foresees_bound_every_dealing() -> None:
    """Without a word on lengths all requests are alike, so that even counts are the best there is.

    For 1.1 times the mean in 99 draws of 100 it takes estimates that correlate with the logarithm of length.
    """
    assert set(np.bincount(deal([1.0] * ANSWERS, 8))) == {ANSWERS // 8}
    rng = np.random.default_rng(0)

    def beyond(correlation: float) -> float:
        many = 0
        for _ in range(200):
            told, rest = rng.standard_normal((2, ANSWERS))
            logs = correlation * told + np.sqrt(1 - correlation**2) * rest
            many += fullest(lengths_of(logs), lengths_of(correlation * told).tolist()) > 1.1
        return many / 200

    assert beyond(0.85) <= 0.01


def test_the_attempts_at_one_problem_are_dealt_to_all_gpus() -> None:
    """They are as long as each other more often than not, and of equal expectation, so that they go round."""
    rng = np.random.default_rng(1)
    expected = np.repeat(rng.integers(1100, 1500, ANSWERS // 8), 8)
    dealt = np.array(deal(expected.tolist(), 8)).reshape(-1, 8)
    assert {len(set(own)) for own in dealt.tolist()} == {8}
    found = []
    for _ in range(200):
        problems, answers = rng.standard_normal(ANSWERS // 8), rng.standard_normal(ANSWERS)
        logs = np.sqrt(0.7) * np.repeat(problems, 8) + np.sqrt(0.3) * answers
        loads = np.bincount(dealt.ravel(), lengths_of(logs), 8)
        found.append(loads.max() / loads.mean())
    assert np.mean(np.array(found) > 1.1) <= 0.01


def test_updates_of_unlike_members_load_gpus_alike_and_every_gpu_works() -> None:
    teachers, students = [60_000.0] * 8, [130_000.0] * 8
    loads = np.bincount(deal([*teachers, *students], 8), [*teachers, *students], 8)
    assert loads.max() / loads.mean() < 1.001
    assert sorted(deal([5.0, 4.0, 3.0], 4)) == [0, 1, 2]


def test_what_the_torch_sampler_writes_does_not_depend_on_the_dealing() -> None:
    worker = Worker(SPEC, threads=1)
    members = [f"m{number}" for number in range(4)]
    rows = {name: worker.layout.init_row(ids.generator(3, name)) for name in members}
    for number, row in enumerate(rows.values()):
        for _, b in worker.layout.views(row).values():
            b.fill_(0.002 * (number + 1))
    worker.stacked.load({name: MemberState.newborn(row).weights for name, row in rows.items()})
    sampler = TorchSampler(worker.stacked, worker.vocabulary.stop_ids)
    requests = [
        Request(members[number % 4], tuple(range(20, 24 + number % 5)), seed=number, max_tokens=12)
        for number in range(24)
    ]

    def written(dealt: list[int]) -> list[Completion]:
        found: dict[int, Completion] = {}
        for part in set(dealt):
            own = [number for number, place in enumerate(dealt) if place == part]
            found |= dict(zip(own, sampler.generate([requests[number] for number in own]), strict=True))
        return [found[number] for number in range(len(requests))]

    whole = written([0] * 24)
    for dealt in (
        deal([float(request.max_tokens) for request in requests], 3),
        [number % 4 for number in range(24)],
    ):
        parts = written(dealt)
        assert [each.token_ids for each in parts] == [each.token_ids for each in whole]
        for one, other in zip(parts, whole, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def taught(worker: Worker, tmp_path: Path) -> Update:
    """Two answers to one prompt of 5 tokens, of 3 and 4 tokens; a third one has nothing to teach."""
    export(worker, {"a": MemberState.newborn(worker.layout.init_row(ids.generator(3, "a")))}, tmp_path)
    drawn = [[20, 21, 22], [20, 21, 22, 23], [20]]
    sampled = {
        "prompt_ids": [list(range(20, 25))] * 3,
        "completion_ids": drawn,
        "logprobs": [[-1.0] * len(each) for each in drawn],
    }
    pq.write_table(pa.table(sampled), tmp_path / "attempts.parquet")
    lessons = [Lesson("student", row, "a", advantage, 0) for row, advantage in enumerate((1.0, -1.0, 0.0))]
    return Update(
        {"a": tmp_path / "a"},
        {"student": tmp_path / "attempts.parquet"},
        {"student": 1.0},
        [(lessons, UpdateRules(UpdateSection()))],
    )


def test_the_time_of_an_update_has_none_of_what_is_read_and_proved_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    class Loading(Worker):
        """A worker whose base takes an hour to come."""

        def learn(self) -> StackedAdapters:
            nonlocal now
            now += 3600.0
            return super().learn()

    def step(done: int) -> None:
        nonlocal now
        now += done

    worker = Loading(SPEC, threads=1)
    update = taught(worker, tmp_path)
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    assert update.run(worker, tmp_path / "learnt", step)["seconds"] == 2.0, (
        "a second for each answer that teaches"
    )


def test_an_update_tells_what_share_of_the_gpus_peak_it_reached(tmp_path: Path) -> None:
    worker = Worker(SPEC, threads=1)
    update = taught(worker, tmp_path)

    def learnt(place: str) -> dict[str, Any]:
        return update.run(worker, tmp_path / place, lambda done: None)

    assert learnt("on a CPU")["mfu"] is None
    worker.__dict__["peak"] = 1e9
    told, slots = learnt("on a GPU"), worker.layout.modules
    linear = sum(slot.in_features * slot.out_features for slot in slots)
    config = worker.base.model.config
    layers = 5 + 3 + 4  # tokens, of which 7 are predicted
    needed = (
        layers * (4 * linear + 6 * worker.layout.dimension) + 7 * 4 * config.vocab_size * config.hidden_size
    )
    assert told["mfu"] == pytest.approx(needed / told["seconds"] / 1e9)


def test_founders_leave_the_gpu_before_an_engine_with_a_base_of_its_own_wakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    residents = list[Sequence[str]]()
    worker = Worker(replace(ON_GPUS, sampler=SamplerSection(engine="vllm")), threads=1)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: residents.append(worker.stacked.members))
    worker.__dict__ |= {"base": load_base(TINY), "sampler": SimpleNamespace(rest=lambda: None)}
    Found({"a": 1, "b": 2}, {}).run(worker, tmp_path, lambda done: None)
    assert worker.stacked.members == ("a", "b")
    worker.sampling()
    assert residents == [()], "the cache is emptied of them, too"
    assert worker.stacked.weights.numel() == 0


def test_a_devices_peak_is_what_one_large_product_reaches() -> None:
    assert product_rate(torch.device("cpu"), torch.bfloat16, side=32, times=2) > 0.0
