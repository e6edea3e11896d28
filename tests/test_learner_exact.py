"""Training many members in one pass equals training each of them alone under PEFT."""

from __future__ import annotations

import importlib
from functools import cache

import pytest
import torch
from peft_alone import Step, train_alone
from tiny_base import layout_of, random_rows, tiny_model, training_rows
from torch import Tensor

from populora_core.config.sections import UpdateSection
from populora_core.learner.rows import MemberRules, TrainingRow, UpdateRules
from populora_core.learner.update import update_members
from populora_core.model.stacked import StackedAdapters
from populora_core.model.state import MemberState

PROBLEMS = {"a": 1, "b": 3, "c": 2, "d": 4}  # unequal shares of the batch
RULES = UpdateRules(
    UpdateSection(
        learning_rate=3e-3,
        clip=0.2,
        grad_clip=0.3,
        betas=(0.9, 0.95),
        weight_decay=0.1,
        token_budget=60,
        pack_tokens=24,
    ),
    members={
        "b": MemberRules(learning_rate=1e-3, clip=0.1),
        "c": MemberRules(learning_rate=1e-2, grad_clip=0.05),
        "d": MemberRules(clip=0.4, grad_clip=5.0),
    },
)


@pytest.fixture
def norms_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers computes its norms in float32 whatever the model's dtype."""

    def forward(self: torch.nn.Module, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)

    for name in ("Qwen2", "Qwen3", "Llama"):
        module = importlib.import_module(f"transformers.models.{name.lower()}.modeling_{name.lower()}")
        monkeypatch.setattr(getattr(module, f"{name}RMSNorm"), "forward", forward)


def train_together(
    stacked: StackedAdapters,
    weights: dict[str, Tensor],
    rows: list[TrainingRow],
    rules: UpdateRules,
    steps: int,
) -> list[dict[str, Step]]:
    """Steps of all members in one pass."""
    states = {member: MemberState.newborn(row) for member, row in weights.items()}
    found = []
    for _ in range(steps):
        states, stats = update_members(stacked, states, rows, rules)
        assert all(stats[member].grad_norm > 0.0 for member in weights)
        found.append(
            {
                member: Step(stacked.grad[row].clone(), states[member].weights)
                for row, member in enumerate(stacked.members)
            }
        )
    return found


@cache
def each_alone(kl: float, share: float) -> dict[str, list[Step]]:
    """Five steps of every member by itself under PEFT, which knows nothing of packing and checkpointing."""
    layout, rows = layout_of(tiny_model(torch.float64)), training_rows(PROBLEMS, texts=3 if share else 0)
    settings = RULES.settings.model_copy(update={"kl": kl, "corpus_share": share})
    rules, found = UpdateRules(settings, RULES.members), {}
    for member, weights in random_rows(layout, *PROBLEMS).items():
        own = [row for row in rows if row.member_id == member]
        model, own_settings = tiny_model(torch.float64), settings_of(rules, member)
        found[member] = list(train_alone(model, layout, weights.double(), own, own_settings, steps=5))
    return found


def apart(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest expected number."""
    return float((found - expected).abs().max() / expected.abs().max())


def settings_of(rules: UpdateRules, member: str) -> UpdateSection:
    """All settings that one member has."""
    own = {name: rules.of(member, name) for name in ("learning_rate", "clip", "grad_clip")}
    return rules.settings.model_copy(update=own)


@pytest.mark.parametrize(
    ("pack_tokens", "checkpointing", "kl", "share"),
    [
        (1, False, 0.0, 0.0),
        (24, False, 0.0, 0.0),
        (24, True, 0.0, 0.0),
        (200, False, 0.0, 0.0),
        (24, True, 0.3, 0.4),
    ],
)
def test_five_steps_of_four_members_equal_each_ones_own_run_in_float64(
    norms_in_float64: None, pack_tokens: int, checkpointing: bool, kl: float, share: float
):
    model = tiny_model(torch.float64)
    layout = layout_of(model)
    weights = {member: row.double() for member, row in random_rows(layout, *PROBLEMS).items()}
    packed = {"pack_tokens": pack_tokens, "gradient_checkpointing": checkpointing}
    packed |= {"kl": kl, "corpus_share": share}
    rules = UpdateRules(RULES.settings.model_copy(update=packed), RULES.members)
    rows = training_rows(PROBLEMS, texts=3 if share else 0)
    stacked = StackedAdapters(model, layout, torch.float64)
    together = train_together(stacked, weights, rows, rules, steps=5)
    for member, alone in each_alone(kl, share).items():
        before = weights[member]
        for ours, theirs in zip((step[member] for step in together), alone, strict=True):
            assert apart(ours.gradient, theirs.gradient) < 1e-10
            assert apart(ours.weights, theirs.weights) < 1e-10
            # The step is much smaller than the weights; it too is the same.
            assert apart(ours.weights - before, theirs.weights - before) < 1e-9
            before = theirs.weights


def test_every_member_of_that_batch_has_its_own_settings_and_feels_them():
    """Otherwise the test above would pass for a learner that shares one setting among all."""
    model = tiny_model()
    stacked, rows = StackedAdapters(model, layout_of(model)), training_rows(PROBLEMS)
    states = {m: MemberState.newborn(row) for m, row in random_rows(stacked.layout, *PROBLEMS).items()}
    _, stats = update_members(stacked, states, rows, RULES)
    norms = torch.linalg.vector_norm(stacked.grad, dim=1).tolist()
    for member, norm in zip(stacked.members, norms, strict=True):
        assert norm == pytest.approx(min(stats[member].grad_norm, RULES.of(member, "grad_clip")), rel=1e-4)
        assert stats[member].clip_fraction > 0.0
    assert len({stats[member].learning_rate for member in PROBLEMS}) == 3
    assert stats["c"].grad_norm > RULES.of("c", "grad_clip")
    assert stats["d"].grad_norm < RULES.of("d", "grad_clip")


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "llama"])
def test_every_architecture_takes_the_same_step_as_under_peft(
    norms_in_float64: None, architecture: str, tied: bool
):
    def model() -> torch.nn.Module:
        return tiny_model(torch.float64, architecture=architecture, tied=tied)

    ours = model()
    layout = layout_of(ours)
    weights = {member: row.double() for member, row in random_rows(layout, *PROBLEMS).items()}
    rows = training_rows(PROBLEMS)
    (together,) = train_together(StackedAdapters(ours, layout, torch.float64), weights, rows, RULES, steps=1)
    for member in PROBLEMS:
        own = [row for row in rows if row.member_id == member]
        (alone,) = train_alone(model(), layout, weights[member], own, settings_of(RULES, member), steps=1)
        assert apart(together[member].gradient, alone.gradient) < 1e-10
        assert apart(together[member].weights, alone.weights) < 1e-10


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "llama"])
def test_in_low_precision_we_are_as_near_to_the_float64_run_as_peft_is(architecture: str, dtype: torch.dtype):
    """The tolerance comes from two single-adapter runs, in this precision and in float64."""

    def model() -> torch.nn.Module:
        return tiny_model(dtype, architecture=architecture)

    ours = model()
    layout = layout_of(ours)
    weights = {member: row.to(dtype).float() for member, row in random_rows(layout, *PROBLEMS).items()}
    rows = training_rows(PROBLEMS)
    (together,) = train_together(StackedAdapters(ours, layout), weights, rows, RULES, steps=1)
    for member in PROBLEMS:
        own, rules = [row for row in rows if row.member_id == member], settings_of(RULES, member)
        (alone,) = train_alone(model(), layout, weights[member].to(dtype), own, rules, steps=1)
        (exact,) = train_alone(model().double(), layout, weights[member].double(), own, rules, steps=1)
        error, tolerance = (
            float((step.gradient - exact.gradient).norm() / exact.gradient.norm())
            for step in (together[member], alone)
        )
        assert error < 3.0 * tolerance
