from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_base import VOCABULARY, layout_of, random_rows, tiny_model
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

from populora_core.errors import PopulationError
from populora_core.learner.layout import PEFT_PREFIX
from populora_core.learner.rows import TrainingRow, UpdateRules
from populora_core.learner.stacked import StackedAdapters
from populora_core.learner.state import MemberState
from populora_core.learner.update import update_members

MEMBERS = ("a", "b", "c")
RULES = UpdateRules(
    lr=1e-2,
    grad_clip=0.3,
    betas=(0.9, 0.95),
    weight_decay=0.1,
    token_budget=60,
    pack_tokens=24,
    member_lr={"b": 3e-3},
)


@pytest.fixture
def norms_in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """transformers computes its norms in float32 whatever the model's dtype."""

    def forward(self: Qwen2RMSNorm, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)

    monkeypatch.setattr(Qwen2RMSNorm, "forward", forward)
    yield


def some_rows(seed: int = 0) -> list[TrainingRow]:
    """Unequal shares, shared prompts, zero and null advantages, two temperatures."""
    rng = np.random.default_rng(seed)

    def ids(length: int) -> tuple[int, ...]:
        return tuple(int(token) for token in rng.integers(2, VOCABULARY, length))

    rows = []
    for member, problems in zip(MEMBERS, (1, 3, 2), strict=True):
        for _ in range(problems):
            prompt = ids(int(rng.integers(1, 9)))
            for attempt in range(4):
                completion = ids(int(rng.integers(1, 9)))
                rows.append(
                    TrainingRow(
                        member,
                        prompt,
                        completion,
                        tuple(float(value) for value in rng.normal(-3.0, 0.3, len(completion))),
                        [0.0, None, *rng.normal(size=2)][attempt],
                        [1.0, 0.7][attempt % 2],
                    )
                )
    return rows


def newborns(stacked: StackedAdapters, *members: str) -> dict[str, MemberState]:
    rows = random_rows(stacked.layout, *members)
    return {member: MemberState.newborn(row.to(stacked.weights.dtype)) for member, row in rows.items()}


def stack(dtype: torch.dtype = torch.float32) -> StackedAdapters:
    model = tiny_model(dtype)
    return StackedAdapters(model, layout_of(model), dtype)


def train_alone(state: MemberState, rows: list[TrainingRow], lr: float, steps: int) -> torch.Tensor:
    """The same steps by PEFT, torch.optim.AdamW and a loss written out row by row."""
    model = tiny_model(torch.float64)
    layout = layout_of(model)
    config = LoraConfig(
        r=layout.rank,
        lora_alpha=int(layout.alpha),
        target_modules=[slot.name for slot in layout.modules],
    )
    peft_model = get_peft_model(model, config, autocast_adapter_dtype=False)
    parameters = {}
    for name, parameter in peft_model.named_parameters():
        if "lora_" in name:
            parameters[name.replace(".default", "")] = parameter.requires_grad_()
    with torch.no_grad():
        for name, values in layout.to_peft(state.weights).items():
            parameters[name].copy_(values)
    optimiser = torch.optim.AdamW(
        parameters.values(), lr=lr, betas=RULES.betas, eps=RULES.eps, weight_decay=RULES.weight_decay
    )
    rows = [row for row in rows if row.advantage is not None]
    total = sum(len(row.completion_ids) for row in rows)
    for _ in range(steps):
        optimiser.zero_grad()
        for row in rows:
            ids = torch.tensor([row.prompt_ids + row.completion_ids])
            logits = peft_model(input_ids=ids, use_cache=False).logits[0, len(row.prompt_ids) - 1 : -1]
            logprobs = torch.log_softmax(logits / row.temperature, -1)
            taken = logprobs[range(len(row.completion_ids)), row.completion_ids]
            ratio = torch.exp(taken - torch.tensor(row.old_logprobs, dtype=torch.float64))
            clipped = ratio.clamp(1 - RULES.clip, 1 + RULES.clip)
            (-torch.minimum(ratio * row.advantage, clipped * row.advantage).sum() / total).backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), RULES.grad_clip)
        optimiser.step()
    result = torch.zeros_like(state.weights)
    for name, target in layout.to_peft(result).items():
        assert name.startswith(PEFT_PREFIX)
        target.copy_(parameters[name].detach())
    return result


@pytest.mark.parametrize("pack_tokens", [1, 24, 200])
def test_a_mixed_update_equals_training_each_member_alone_under_peft(
    norms_in_float64: None, pack_tokens: int
):
    stacked, rows = stack(torch.float64), some_rows()
    rules = replace(RULES, pack_tokens=pack_tokens)
    states = first = newborns(stacked, *MEMBERS)
    for _ in range(3):
        states, stats = update_members(stacked, states, rows, rules)
    for member in MEMBERS:
        own = [row for row in rows if row.member_id == member]
        expected = train_alone(first[member], own, rules.learning_rate(member, 0), steps=3)
        moved = (expected - first[member].weights).abs().max()
        assert (states[member].weights - expected).abs().max() < 1e-9 * moved
        assert states[member].steps == 3
        assert 0.0 < stats[member].clip_fraction < 1.0


def test_statistics_count_every_row_with_an_advantage():
    stacked, rows = stack(), some_rows()
    _, stats = update_members(stacked, newborns(stacked, *MEMBERS), rows, RULES)
    for member in MEMBERS:
        graded = [row for row in rows if row.member_id == member and row.advantage is not None]
        assert stats[member].n_rows == len(graded)
        assert stats[member].tokens == sum(len(row.completion_ids) for row in graded)
        assert stats[member].learning_rate == (3e-3 if member == "b" else 1e-2)
        assert stats[member].grad_norm > 0.0
        assert 0.0 < stats[member].entropy < np.log(VOCABULARY)


def test_a_member_without_a_nonzero_advantage_keeps_its_state():
    stacked = stack()
    rows = [replace(row, advantage=0.0) if row.member_id == "b" else row for row in some_rows()]
    before = newborns(stacked, *MEMBERS, "idle")
    after, stats = update_members(stacked, before, rows, RULES)
    assert after["b"] is before["b"]
    assert after["idle"] is before["idle"]
    assert (stats["b"].grad_norm, stats["b"].entropy, stats["b"].n_rows) == (0.0, None, 12)
    assert (stats["idle"].tokens, stats["idle"].n_rows) == (0, 0)
    assert after["a"].steps == 1


def test_an_update_without_rows_changes_nothing():
    stacked = stack()
    before = newborns(stacked, "a")
    after, stats = update_members(stacked, before, [], RULES)
    assert after == before
    assert stats["a"].tokens == 0


def test_states_that_went_in_are_not_changed():
    stacked = stack()
    states = newborns(stacked, *MEMBERS)
    copies = {member: state.weights.clone() for member, state in states.items()}
    update_members(stacked, states, some_rows(), RULES)
    assert all(torch.equal(states[member].weights, copies[member]) for member in MEMBERS)


def test_the_same_update_twice_gives_the_same_bits():
    results = []
    for _ in range(2):
        stacked = stack()
        results.append(update_members(stacked, newborns(stacked, *MEMBERS), some_rows(), RULES))
    (first, first_stats), (second, second_stats) = results
    assert first_stats == second_stats
    assert all(torch.equal(first[member].weights, second[member].weights) for member in MEMBERS)


def test_what_others_do_changes_a_member_by_rounding_only():
    stacked = stack()
    states, rows = newborns(stacked, *MEMBERS), some_rows()
    together, _ = update_members(stacked, states, rows, RULES)
    alone, _ = update_members(stacked, states, [row for row in rows if row.member_id == "b"], RULES)
    torch.testing.assert_close(together["b"].exp_avg, alone["b"].exp_avg, rtol=1e-4, atol=1e-6)


def test_the_learning_rate_of_a_newborn_warms_up():
    rules = UpdateRules(lr=8e-3, warmup_steps=4)
    assert [rules.learning_rate("m", steps) for steps in range(6)] == [2e-3, 4e-3, 6e-3, 8e-3, 8e-3, 8e-3]


def test_rewarding_a_completion_makes_it_more_probable():
    stacked = stack()
    states = newborns(stacked, "a")
    row = TrainingRow("a", (3, 4), (5, 6, 1), (-3.0, -3.0, -3.0), 1.0)

    def logprob() -> float:
        stacked.load({"a": states["a"].weights})
        with torch.no_grad(), stacked.routed([0]):
            logits = stacked.model(input_ids=torch.tensor([[3, 4, 5, 6]]), use_cache=False).logits[0, 1:]
        return float(torch.log_softmax(logits, -1)[range(3), row.completion_ids].sum())

    before = logprob()
    states, _ = update_members(stacked, states, [row], UpdateRules(lr=1e-3))
    assert logprob() > before


def test_rows_of_an_unknown_member_are_refused():
    stacked = stack()
    with pytest.raises(PopulationError, match="which has no state"):
        update_members(stacked, newborns(stacked, "a"), some_rows(), RULES)


def test_a_gradient_that_is_not_finite_is_refused():
    stacked = stack()
    row = TrainingRow("a", (3, 4), (5, 6), (float("-inf"), -1.0), -1.0)
    with pytest.raises(PopulationError, match="not finite"):
        update_members(stacked, newborns(stacked, "a"), [row], RULES)


def test_progress_counts_the_rows_that_were_trained():
    stacked, rows, done = stack(), some_rows(), []
    update_members(stacked, newborns(stacked, *MEMBERS), rows, RULES, done.append)
    assert sum(done) == sum(1 for row in rows if row.advantage)


def test_training_in_bfloat16_follows_float32():
    rows, moves = some_rows(), []
    for dtype in (torch.float32, torch.bfloat16):
        model = tiny_model(dtype)
        stacked = StackedAdapters(model, layout_of(model))
        states, _ = update_members(stacked, newborns(stacked, *MEMBERS), rows, RULES)
        moves.append(states["b"].exp_avg)
    assert torch.nn.functional.cosine_similarity(*moves, dim=0) > 0.98
