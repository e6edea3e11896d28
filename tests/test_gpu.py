"""What only a GPU can show: gradients and log-probabilities as on a CPU, and a run that goes on after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import wait_for
from tiny_base import layout_of, random_rows, tiny_model, training_rows

from populora_core.config.sections import UpdateSection
from populora_core.learner import update
from populora_core.learner.rows import TrainingRow, UpdateRules
from populora_core.learner.update import update_members
from populora_core.model.attention import group_queries
from populora_core.model.base import load_base
from populora_core.model.layout import AdapterLayout
from populora_core.model.probe import given_logprobs
from populora_core.model.stacked import StackedAdapters
from populora_core.model.state import MemberState
from populora_core.sampler.requests import Request
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.support.shipped import REPOSITORY, shipped

DEVICE = "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.thorough,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU"),
]
MEMBERS = [f"m{number}" for number in range(8)]
PLAIN = UpdateSection(token_budget=60, pack_tokens=1)


def gradients(device: str, settings: UpdateSection, rows: list[TrainingRow]) -> dict[str, torch.Tensor]:
    """The first moment that one step leaves, a share of the gradient, of each member of the rows."""
    model = tiny_model().to(device)
    if device == DEVICE:
        group_queries(model)
    stacked = StackedAdapters(model, layout_of(tiny_model()))
    own = {row.member_id for row in rows}
    states = {
        m: MemberState.newborn(row) for m, row in random_rows(stacked.layout, *MEMBERS).items() if m in own
    }
    return {
        m: state.exp_avg
        for m, state in update_members(stacked, states, rows, UpdateRules(settings))[0].items()
    }


def alike(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return bool((found - expected).abs().max() < 1e-3 * expected.abs().max())


@pytest.fixture(autouse=True)
def full_precision() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.fixture(scope="module")
def rows() -> list[TrainingRow]:
    return training_rows({member: 1 + number % 3 for number, member in enumerate(MEMBERS)})


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("pack_tokens", [1, 24], ids=["plain", "packed"])
def test_eight_members_together_have_the_gradients_of_each_alone_on_a_cpu(
    rows: list[TrainingRow], pack_tokens: int, checkpointing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "has_room", lambda *asked: False)  # else a tiny base has no layer run again
    settings = PLAIN.model_copy(update={"pack_tokens": pack_tokens, "gradient_checkpointing": checkpointing})
    together = gradients(DEVICE, settings, rows)
    for member in MEMBERS:
        own = [row for row in rows if row.member_id == member]
        (alone,) = gradients("cpu", PLAIN, own).values()
        assert alike(together[member], alone), member


def test_what_the_sampler_draws_has_the_learners_probabilities() -> None:
    """In bfloat16, token by token through the cache against one pass: means of some hundredths of a nat."""
    base = load_base(shipped("base_model", "tiny"), "bfloat16", DEVICE)
    layout = AdapterLayout.of(base.model, 8, 16.0)
    stacked = StackedAdapters(base.model, layout)
    stacked.load(random_rows(layout, *MEMBERS))
    asked = [Request(MEMBERS[seed % 8], (5, 6, 7 + seed % 9), seed=seed, max_tokens=48) for seed in range(64)]
    apart = []
    for request, completion in zip(asked, TorchSampler(stacked, base.stop_ids).generate(asked), strict=True):
        learner = given_logprobs(stacked, request.member_id, request.prompt_ids, completion.token_ids)
        apart += np.abs(np.subtract(learner, completion.logprobs)).tolist()
    print(json.dumps({"mean": np.mean(apart), "p99": np.quantile(apart, 0.99), "largest": max(apart)}))
    assert np.mean(apart) < 0.05


def test_what_is_drawn_does_not_depend_on_who_shares_the_batch() -> None:
    model = tiny_model().to(DEVICE)
    group_queries(model)
    stacked = StackedAdapters(model, layout_of(tiny_model()))
    stacked.load(random_rows(stacked.layout, *MEMBERS))
    asked = [Request(MEMBERS[seed % 8], (3, 4 + seed % 5), seed=seed, max_tokens=12) for seed in range(32)]
    sampler = TorchSampler(stacked, [1])
    together, few = sampler.generate(asked), sampler.generate(asked[:3])
    assert [each.token_ids for each in few] == [each.token_ids for each in together[:3]]
    cold = sampler.generate([replace(each, temperature=0.0) for each in asked])
    assert [each.token_ids for each in cold] != [each.token_ids for each in together]


def test_a_run_on_the_gpu_is_killed_and_resumed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = [f"base.device={DEVICE}", "base.dtype=bfloat16", "compute.shards=1", "run.generations=2"]
    command = [sys.executable, "-m", "populora_core.commands"]
    chosen = ["--config", str(REPOSITORY / "configs" / "quick.toml"), "--run-dir", str(run)]
    chosen += [part for each in settings for part in ("--set", each)]
    process = subprocess.Popen([*command, "run", "--plain", *chosen], cwd=REPOSITORY, start_new_session=True)

    def proposed() -> bool:
        assert process.poll() is None
        return (run / "generations" / "0001" / "propose" / "manifest.json").exists()

    wait_for(proposed)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = subprocess.run([*command, "resume", str(run)], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (run / "generations" / "0002" / "evolve" / "manifest.json").exists()
