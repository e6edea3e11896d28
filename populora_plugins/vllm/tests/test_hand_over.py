"""One GPU for learner and engine: who gives what back before the other works, in which order."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fake_engine import FakeEngine
from tiny_base import layout_of, random_rows, tiny_model, training_rows

from populora_core.compute.work import Worker
from populora_core.config.machinery import SamplerSection
from populora_core.config.sections import AdapterSection, BaseSection, UpdateSection
from populora_core.learner.packing import micro_batches, pack_rows
from populora_core.learner.rows import TrainingRow, UpdateRules
from populora_core.learner.update import update_members
from populora_core.model.base import base_digest
from populora_core.model.stacked import StackedAdapters
from populora_core.model.state import MemberState
from populora_core.sampler.requests import Request, Served
from populora_core.sampler.spec import ModelSpec
from populora_core.support import digest
from populora_core.support.processes import descendants
from populora_plugins.vllm import sampler as vllm_sampler
from populora_plugins.vllm.process import EngineProcess

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
    model = tiny_model()
    learner = StackedAdapters(model, layout_of(model))
    worker.sampling().load([])
    assert said == ["load"], "a shard that never learnt has nothing to give back"
    worker.__dict__["stacked"] = learner
    for _ in range(2):
        worker.learn().load(random_rows(learner.layout, "a"))
        learner.zero_grad()
        worker.sampling().load([])
        assert learner.grad is None, "the gradients of all members are no one's until the next update"
        assert learner.members == (), "and so are members, which the engine has from their files"
    assert said == ["load", *["rest", "empty cache", "load"] * 2]


def test_on_a_cpu_nothing_is_given_back(said: list[str]) -> None:
    worker = Worker(replace(ON_GPU, base=BaseSection()), threads=1)
    worker.__dict__["sampler"] = Engine(said)
    worker.__dict__["stacked"] = SimpleNamespace(grad=None)
    worker.sampling()
    assert said == []


class Vllm:
    """In place of vLLM's own engine: writes down when it sleeps and wakes."""

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def sleep(self, level: int) -> None:
        self._said.append(f"sleep {level}")

    def wake_up(self) -> None:
        self._said.append("wake")


@pytest.mark.parametrize(
    ("device", "sleeps", "expected"),
    [
        ("cuda", True, ["start", "sleep 1", "wake", "sleep 1"]),
        ("cuda", False, ["start"]),
        ("cpu", True, ["start"]),
    ],
    ids=["taking turns", "both fit", "on a CPU"],
)
def test_vllm_sleeps_once_and_wakes_once_a_turn_and_never_where_both_fit(
    monkeypatch: pytest.MonkeyPatch, device: str, sleeps: bool, expected: list[str]
) -> None:
    said: list[str] = []

    def start(*asked: object) -> Vllm:
        said.append("start")
        return Vllm(said)

    monkeypatch.setattr(vllm_sampler, "import_vllm", lambda device: None)
    monkeypatch.setattr(vllm_sampler, "start_engine", start)
    sampler = vllm_sampler.VllmSampler(replace(ON_GPU, base=BaseSection(device=device), sleeps=sleeps), [1])
    sampler.rest()  # one that was never started has nothing to give back
    for _ in range(2):
        sampler.load([])
        sampler.load([])
        sampler.rest()
        sampler.rest()
    assert said == expected


def tensors() -> int:
    """Bytes of all tensors that there are."""
    gc.collect()
    kept = {
        each.untyped_storage().data_ptr(): each.untyped_storage().nbytes()
        for each in gc.get_objects()
        if type(each) is torch.Tensor
    }
    return sum(kept.values())


def test_two_hundred_generations_of_it_leave_nothing_behind(said: list[str], tmp_path: Path) -> None:
    """A learner that steps, and an engine's process that is replaced: every 50 generations, and once it is killed."""
    model = tiny_model()
    stacked = StackedAdapters(model, layout_of(model))
    members = [f"m{number}" for number in range(4)]
    states = {m: MemberState.newborn(row) for m, row in random_rows(stacked.layout, *members).items()}
    rows, rules = training_rows(dict.fromkeys(members, 1)), UpdateRules(UpdateSection(token_budget=256))
    asked = [Request(members[number % 4], (1, 2), seed=number) for number in range(8)]
    engine = EngineProcess("fake", partial(FakeEngine, tmp_path), recycle_after=200, room=4)
    worker = Worker(ON_GPU, torch.get_num_threads())
    worker.__dict__ |= {"sampler": engine, "stacked": stacked}
    pids, sizes = list[int | None](), list[tuple[int, int]]()
    gc.collect()  # what earlier tests left open
    for number in range(200):
        served = [
            Served(member, Path("none"), f"{1000 * number + index:064x}")
            for index, member in enumerate(members)
        ]
        alone = FakeEngine()
        alone.load(served)
        sampler = worker.sampling()
        assert stacked.grad is None
        sampler.load(served)
        pids.append(engine.pid)
        if number == 120:
            (tmp_path / "ends one process").touch()
        assert sampler.generate(asked) == alone.generate(asked)
        states, _ = update_members(worker.learn(), states, rows, rules)
        sizes.append((tensors() if number in (9, 199) else 0, len(os.listdir("/proc/self/fd"))))
    below = [Path(f"/proc/{pid}/cmdline").read_text() for pid in descendants(os.getpid(), 1)]
    assert sum("vllm.process" in command for command in below) == 1
    worker.close()
    assert said == ["empty cache"] * 200
    assert sizes[199] == sizes[9]
    assert max(opened for _, opened in sizes) == sizes[0][1]
    assert len(set(pids)) == 200 * 4 // 200 + 1
    assert all(state.steps == 200 for state in states.values())


def test_micro_batches_go_longest_first_and_hold_the_same_rows() -> None:
    rows = [TrainingRow("a", (1, number), (5,) * number, (-1.0,) * number, 1.0) for number in range(1, 40)]
    packs = pack_rows(rows, 64)

    def sizes(on_gpu: bool) -> list[int]:
        return [batch.input_ids.size for batch in micro_batches(packs, 128, on_gpu)]

    widths = [batch.input_ids.shape[1] for batch in micro_batches(packs, 128, apart=True)]
    assert widths == sorted(widths, reverse=True)
    assert max(sizes(True)) <= 128 >= max(sizes(False))
    for first in (True, False):
        assert sum(batch.n_rows for batch in micro_batches(packs, 128, first)) == len(rows)


def test_a_checkpoint_is_read_by_one_process_and_known_to_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "known", {})
    (tmp_path / "model.safetensors").write_bytes(b"weights" * 100)
    (tmp_path / "config.json").write_text("{}")
    for file in tmp_path.iterdir():
        os.utime(file, (1_700_000_000, 1_700_000_000))  # a file that was just written is not remembered
    whole = base_digest(tmp_path)
    known = digest.known_below(tmp_path)
    assert len(known) == 2
    monkeypatch.setattr(digest, "known", {})
    digest.know(known)
    monkeypatch.setattr(digest, "read_sha256", lambda path: pytest.fail("read again"))
    assert base_digest(tmp_path) == whole
