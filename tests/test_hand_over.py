"""One GPU for learner and engine: who gives what back before the other works, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from populora_core.compute.work import Worker
from populora_core.config.machinery import SamplerSection
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.learner.packing import micro_batches, pack_rows
from populora_core.learner.rows import TrainingRow
from populora_core.model.base import base_digest
from populora_core.sampler import engines
from populora_core.sampler.requests import Served
from populora_core.sampler.spec import ModelSpec
from populora_core.support import digest
from populora_core.support.errors import ConfigError

ON_GPU = ModelSpec(BaseSection(device="cuda"), AdapterSection(), "none", SamplerSection(engine="vllm"))


class Engine:
    """A sampler that writes down what it is asked."""

    name = "fake"

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def load(self, adapters: Sequence[Served]) -> None:
        self._said.append("load")

    def rest(self) -> None:
        self._said.append("rest")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("empty cache"))
    return calls


def test_the_learners_cache_is_emptied_before_the_engine_wakes_and_the_engine_rests_before_an_update(
    said: list[str],
) -> None:
    worker = Worker(ON_GPU, threads=1)
    worker.__dict__["sampler"] = Engine(said)
    learner = SimpleNamespace(grad=torch.zeros(4))
    worker.sampling().load([])
    assert said == ["load"], "a shard that never learnt has nothing to give back"
    worker.__dict__["stacked"] = learner
    for _ in range(2):
        worker.learn()
        learner.grad = torch.zeros(4)
        worker.sampling().load([])
        assert learner.grad is None, "the gradients of all members are no one's until the next update"
    assert said == ["load", *["rest", "empty cache", "load"] * 2]


def test_on_a_cpu_nothing_is_given_back(said: list[str]) -> None:
    worker = Worker(replace(ON_GPU, base=BaseSection()), threads=1)
    worker.__dict__["sampler"] = Engine(said)
    worker.__dict__["stacked"] = SimpleNamespace(grad=None)
    worker.sampling()
    assert said == []


def test_micro_batches_go_longest_first_and_hold_the_same_rows() -> None:
    rows = [TrainingRow("a", (1, number), (5,) * number, (-1.0,) * number, 1.0) for number in range(1, 40)]
    packs = pack_rows(rows, 64)

    def sizes(on_gpu: bool) -> list[int]:
        return [batch.input_ids.size for batch in micro_batches(packs, 128, on_gpu)]

    widths = [batch.input_ids.shape[1] for batch in micro_batches(packs, 128, on_gpu=True)]
    assert widths == sorted(widths, reverse=True)
    assert max(sizes(True)) <= 128 >= max(sizes(False))
    for first in (True, False):
        assert sum(batch.n_rows for batch in micro_batches(packs, 128, first)) == len(rows)


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_segments_that_grow_are_refused_where_the_engine_must_sleep(name: str) -> None:
    environment = {name: "max_split_size_mb:128,expandable_segments:True"}
    with pytest.raises(ConfigError, match=f"{name} asks for expandable segments"):
        engines.refuse_segments(ON_GPU, environment)
    engines.refuse_segments(replace(ON_GPU, sleeps=False), environment)
    engines.refuse_segments(ON_GPU, {name: "expandable_segments:False"})
    engines.refuse_segments(ON_GPU, {})


def test_a_checkpoint_is_read_by_one_process_and_known_to_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "_known", {})
    (tmp_path / "model.safetensors").write_bytes(b"weights" * 100)
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(digest, "_SETTLED_NS", -1)
    whole = base_digest(tmp_path)
    known = digest.known_below(tmp_path)
    assert len(known) == 2
    monkeypatch.setattr(digest, "_known", {})
    digest.know(known)
    monkeypatch.setattr(digest, "read_sha256", lambda path: pytest.fail("read again"))
    assert base_digest(tmp_path) == whole
