"""A 7B's widths on a device of shapes alone: placement, precision, and how many bytes live there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
import transformers.masking_utils
from shapes_alone import ShapesAlone, attention_kernels
from test_planning_memory import QWEN2_5_7B
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from populora_core.compute.work import Worker
from populora_core.config.machinery import SamplerSection
from populora_core.config.sections import AdapterSection, BaseSection, UpdateSection
from populora_core.learner.rows import TrainingRow, UpdateRules
from populora_core.learner.update import update_members
from populora_core.model import routes
from populora_core.model.attention import group_queries
from populora_core.model.layout import AdapterLayout
from populora_core.model.stacked import StackedAdapters
from populora_core.model.state import MemberState
from populora_core.planning.memory import Estimate, Workload, estimate, shape_of
from populora_core.sampler import torch_sampler
from populora_core.sampler.batch import BatchLimits
from populora_core.sampler.requests import Request
from populora_core.sampler.spec import ModelSpec
from populora_core.sampler.torch_sampler import TorchSampler

CONFIG = {**QWEN2_5_7B, "num_hidden_layers": 3}
MEMBERS = 4
WITHIN = 0.1
BESIDE = 0.12
"""Of what comes and goes alone, which over three layers is half of all and over 28 much more."""


class Enough(Exception):
    pass


@dataclass
class Gpu:
    """The learner's adapters on the device, and what is counted there."""

    stacked: StackedAdapters
    count: ShapesAlone

    def needed(self, **work: int | bool) -> Estimate:
        return estimate(shape_of(CONFIG, 32), Workload(MEMBERS, 2, **{"update_tokens": 0, **work}))

    def update(self, settings: UpdateSection, attempts: int, prompt: int, completion: int) -> None:
        """Full micro-batches whose prompts have so many attempts each."""
        size = self.stacked.layout.dimension
        zeros = torch.zeros(()).expand(size)
        states = {f"m{member}": MemberState(zeros, zeros, zeros, 0) for member in range(MEMBERS)}
        packed = prompt + attempts * (completion - 1)
        rows = [
            TrainingRow(
                f"m{number % MEMBERS}", (number,) * prompt, (3,) * completion, (-5.0,) * completion, 1.0
            )
            for number in range(1, 1 + settings.token_budget // packed)
            for _ in range(attempts)
        ]
        update_members(self.stacked, states, rows, UpdateRules(settings))

    def sample(self, requests: int, prompt: int, limit: int) -> None:
        self.load()
        asked = [
            Request(f"m{number % MEMBERS}", (number + 1,) * (prompt - number % 2), number, max_tokens=limit)
            for number in range(requests)
        ]
        draws = iter([torch_sampler.draw])

        def once(*drawn_by: Tensor | None) -> tuple[Tensor, Tensor]:
            for draw in draws:
                return draw(*drawn_by)  # type: ignore[arg-type]
            raise Enough  # after a prefill and a decode step

        sampler = TorchSampler(self.stacked, (), BatchLimits(tokens=requests * (prompt + limit)))
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Enough):
            patch.setattr(torch_sampler, "draw", once)
            sampler.generate(asked)

    def load(self) -> None:
        zeros = torch.zeros(()).expand(self.stacked.layout.dimension)
        self.stacked.load({f"m{member}": zeros for member in range(MEMBERS)})


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention_kernels)
    monkeypatch.setattr(transformers.masking_utils, "find_packed_sequence_indices", lambda positions: None)
    for costs in (torch_sampler.PASS_TOKENS, torch_sampler.PASS_LIMITS, routes.FEW_PRODUCTS):
        monkeypatch.setitem(costs, "meta", costs["cuda"])
    with ShapesAlone() as count:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**CONFIG), dtype=torch.bfloat16)
        model.requires_grad_(False).eval()
        group_queries(model)
        yield Gpu(StackedAdapters(model, AdapterLayout.of(model, 32, 64.0)), count)


@pytest.mark.parametrize("attempts", [1, 4], ids=["plain", "shared"])
@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointed"])
def test_an_update_takes_what_the_dry_run_says(gpu: Gpu, checkpointing: bool, attempts: int) -> None:
    settings = UpdateSection(token_budget=4096, pack_tokens=4096, gradient_checkpointing=checkpointing)
    gpu.update(settings, attempts, prompt=512, completion=513 if attempts == 1 else 129)
    needed = gpu.needed(update_tokens=4096, checkpointing=checkpointing)
    assert needed.learner == pytest.approx(gpu.count.peak, rel=WITHIN)
    stays = needed.resident + needed.gradient
    assert needed.learner - stays == pytest.approx(gpu.count.peak - stays, rel=BESIDE)
    assert gpu.count.products == {torch.bfloat16}
    assert {gpu.stacked.weights.dtype, gpu.stacked.grad.dtype} == {torch.float32}


@pytest.mark.parametrize(
    ("requests", "prompt", "limit"), [(256, 192, 64), (128, 256, 3840)], ids=["many prompts", "long answers"]
)
def test_sampling_takes_what_the_dry_run_says(gpu: Gpu, requests: int, prompt: int, limit: int) -> None:
    gpu.sample(requests, prompt, limit)
    needed = gpu.needed(
        sampler_rows=requests, sampler_tokens=requests * (prompt + limit), sampler_prompts=requests * prompt
    )
    assert needed.sampler == pytest.approx(gpu.count.peak, rel=WITHIN)
    assert needed.sampler - needed.resident == pytest.approx(gpu.count.peak - needed.resident, rel=BESIDE)
    assert gpu.count.products == {torch.bfloat16}


def test_between_learner_and_sampler_nothing_stays_but_base_and_adapters(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    spec = ModelSpec(BaseSection(device="cuda"), AdapterSection(), "none", SamplerSection(engine="torch"))
    worker = Worker(spec, torch.get_num_threads())
    worker.__dict__ |= {"stacked": gpu.stacked, "sampler": TorchSampler(gpu.stacked, ())}
    for _ in range(2):
        assert worker.learn() is gpu.stacked
        gpu.update(UpdateSection(token_budget=1024), 1, prompt=64, completion=65)
        assert gpu.count.live == pytest.approx(gpu.needed().resident + gpu.needed().gradient, rel=0.001)
        worker.sampling()
        assert gpu.count.live == pytest.approx(gpu.needed().resident, rel=0.001)
        gpu.sample(4, prompt=32, limit=8)
        assert gpu.count.live == pytest.approx(gpu.needed().resident, rel=0.001)
