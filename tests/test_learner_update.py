from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_base import VOCABULARY, layout_of, random_rows, tiny_model, training_rows

from populora_core.config.sections import UpdateSection
from populora_core.learner import update as update_module
from populora_core.learner.packing import micro_batches
from populora_core.learner.rows import MemberRules, TrainingRow, UpdateRules, UpdateStats
from populora_core.learner.update import update_members
from populora_core.model.attention import attention_window
from populora_core.model.stacked import StackedAdapters
from populora_core.model.state import MemberState
from populora_core.support.devices import cpu_has_bfloat16
from populora_core.support.errors import PopulationError

MEMBERS = ("a", "b", "c")
RULES = UpdateRules(
    UpdateSection(
        learning_rate=1e-2,
        grad_clip=0.3,
        betas=(0.9, 0.95),
        weight_decay=0.1,
        token_budget=60,
        pack_tokens=24,
    ),
    members={"b": MemberRules(learning_rate=3e-3)},
)


def changed(**settings: float) -> UpdateRules:
    """The rules with other settings for all."""
    return UpdateRules(RULES.settings.model_copy(update=settings), RULES.members)


BFLOAT16 = 0.03  # of the gradient's norm: 2^-9 of each number, through two layers and back


def some_rows() -> list[TrainingRow]:
    return training_rows({"a": 1, "b": 3, "c": 2})


def newborns(stacked: StackedAdapters, *members: str) -> dict[str, MemberState]:
    rows = random_rows(stacked.layout, *members)
    return {member: MemberState.newborn(row) for member, row in rows.items()}


def stack() -> StackedAdapters:
    model = tiny_model()
    return StackedAdapters(model, layout_of(model))


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
        assert 0.0 < stats[member].clip_fraction < 1.0


GPT_NEO = {
    "attention_types": [[["global", "local"], 1]],
    "window_size": 6,
    "num_layers": 2,
    "num_heads": 4,
    "attn_implementation": "eager",
}


@pytest.mark.parametrize(
    ("architecture", "settings"), [("mistral", {"sliding_window": 6}), ("gpt_neo", GPT_NEO)]
)
def test_layers_that_look_back_a_little_learn_the_same_from_packs(
    architecture: str, settings: dict[str, object]
):
    model = tiny_model(architecture=architecture, **settings)
    assert attention_window(model.config) == 6
    stacked = StackedAdapters(model, layout_of(model))
    before, rows = newborns(stacked, *MEMBERS), training_rows({"a": 1, "b": 3, "c": 2}, longest=14)
    packed, apart = (update_members(stacked, before, rows, changed(pack_tokens=each))[1] for each in (60, 1))
    for member in MEMBERS:
        figures = [
            (each.entropy, each.grad_norm, each.clip_fraction) for each in (packed[member], apart[member])
        ]
        assert figures[0] == pytest.approx(figures[1], rel=1e-4)


def test_a_long_row_beside_short_packs_looks_back_no_further_than_its_layers():
    """The mask of a pack puts all in its micro-batch under it, and says nothing of windows."""
    model = tiny_model(architecture="mistral")
    model.config.sliding_window = 12
    stacked = StackedAdapters(model, layout_of(model))
    long = TrainingRow("a", (2, 3), tuple(2 + n % 20 for n in range(30)), (-2.0,) * 30, 1.0)
    short = [TrainingRow("a", (2, 3, 4), (5 + n, 6, 7), (-2.0,) * 3, -1.0) for n in range(3)]
    rules, before = changed(token_budget=500, pack_tokens=500), newborns(stacked, "a")
    together = update_members(stacked, before, [long, *short], rules)[1]["a"]
    apart = update_members(stacked, before, [long, *short], changed(token_budget=1))[1]["a"]
    assert together.entropy == pytest.approx(apart.entropy, rel=1e-5)


def test_packs_are_no_longer_than_a_micro_batch_may_be(monkeypatch: pytest.MonkeyPatch):
    lengths = []

    def seen(packs, *rest):
        lengths.extend(pack.length for pack in packs if pack.shared)
        return micro_batches(packs, *rest)

    monkeypatch.setattr(update_module, "micro_batches", seen)
    stacked = stack()
    update_members(
        stacked, newborns(stacked, *MEMBERS), some_rows(), changed(pack_tokens=500, token_budget=20)
    )
    assert lengths and max(lengths) <= 20


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


def test_texts_of_a_corpus_are_learnt_beside_what_was_sampled_and_are_in_no_figure():
    stacked, rows = stack(), some_rows()
    texts = [
        TrainingRow(member, (3, 4), (5, 6, 7, 8), (), 1.0, group=group, supervised=True)
        for member in MEMBERS
        for group in range(2)
    ]
    before = newborns(stacked, *MEMBERS)
    _, alone = update_members(stacked, before, rows, RULES)
    after, beside = update_members(stacked, before, [*rows, *texts], changed(corpus_share=0.5))
    for member in MEMBERS:
        figures = [name for name in UpdateStats.__slots__ if name not in ("grad_norm", "kl")]
        told, expected = ([getattr(each[member], name) for name in figures] for each in (beside, alone))
        assert told == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert after[member].steps == 1
        assert beside[member].grad_norm != pytest.approx(alone[member].grad_norm, rel=1e-2)


def test_nobody_learns_a_corpus_alone():
    stacked = stack()
    rows = [replace(row, advantage=0.0) for row in some_rows()]
    text = TrainingRow("a", (3, 4), (5, 6), (), 1.0, supervised=True)
    before = newborns(stacked, *MEMBERS)
    after, _ = update_members(stacked, before, [*rows, text], changed(corpus_share=0.5, kl=0.1))
    assert after["a"] is before["a"]


def test_an_update_without_rows_changes_nothing():
    stacked = stack()
    before = newborns(stacked, "a")
    after, stats = update_members(stacked, before, [], RULES)
    assert after == before
    assert stats["a"].tokens == 0


def test_minibatches_are_steps_one_after_the_other_on_groups_that_stay_whole():
    stacked = stack()
    rows = [replace(row, group=number // 4) for number, row in enumerate(some_rows())]
    states = newborns(stacked, *MEMBERS)
    found, stats = update_members(stacked, states, rows, changed(minibatches=2))
    one_by_one, steps = dict(states), []
    for part in range(2):
        own = [row for row in rows if row.group % 2 == part]
        one_by_one, of_step = update_members(stacked, one_by_one, own, RULES)
        steps.append(of_step)
    for member in MEMBERS:
        assert torch.equal(found[member].weights, one_by_one[member].weights)
        assert found[member].steps == stats[member].steps == sum(step[member].steps for step in steps)
        assert stats[member].tokens == sum(step[member].tokens for step in steps)
        assert stats[member].largest_mismatch == next(
            step[member].largest_mismatch for step in steps if step[member].steps
        )
    assert max(stats[member].steps for member in MEMBERS) == 2


def test_a_member_at_the_base_has_no_divergence_and_a_weight_keeps_it_nearer():
    stacked = stack()
    rows, far = some_rows(), {}
    for kl in (1e-9, 3.0):
        states = {m: MemberState.newborn(stacked.layout.init_row(np.random.default_rng(0))) for m in MEMBERS}
        states, first = update_members(stacked, states, rows, changed(kl=kl, learning_rate=1e-2))
        assert all(first[member].kl == pytest.approx(0.0, abs=1e-6) for member in MEMBERS)
        for _ in range(5):
            states, stats = update_members(stacked, states, rows, changed(kl=kl, learning_rate=1e-2))
        far[kl] = sum(stats[member].kl for member in MEMBERS)
    assert far[3.0] < 0.5 * far[1e-9]


def test_the_learning_rate_of_a_newborn_warms_up():
    rules = UpdateRules(UpdateSection(learning_rate=8e-3, warmup_steps=4))
    assert [rules.learning_rate("m", steps) for steps in range(6)] == [2e-3, 4e-3, 6e-3, 8e-3, 8e-3, 8e-3]


def test_the_learning_rate_of_a_member_falls_with_its_own_steps():
    rules = UpdateRules(UpdateSection(learning_rate=8e-3, decay_steps=10))
    assert [rules.learning_rate("m", steps) for steps in (0, 10, 30)] == pytest.approx([8e-3, 4e-3, 2e-3])
    both = UpdateRules(UpdateSection(learning_rate=8e-3, warmup_steps=4, decay_steps=10))
    assert both.learning_rate("m", 1) == pytest.approx(8e-3 * 0.5 * 10 / 11)


def test_a_gradient_that_is_not_finite_is_refused():
    stacked = stack()
    row = TrainingRow("a", (3, 4), (5, 6), (float("-inf"), -1.0), -1.0)
    with pytest.raises(PopulationError, match="not finite"):
        update_members(stacked, newborns(stacked, "a"), [row], RULES)


def test_the_mismatch_is_how_far_the_samplers_log_probabilities_are_from_the_learners():
    stacked = stack()
    states = newborns(stacked, *MEMBERS)
    shifts = {"a": 0.0, "b": 0.25, "c": -0.5}
    stacked.load({member: state.weights for member, state in states.items()})
    rows = []
    for row in some_rows():
        ids = torch.tensor([row.prompt_ids + row.completion_ids])
        with torch.no_grad(), stacked.routed([stacked.slot(row.member_id)]):
            logits = stacked.model(input_ids=ids, use_cache=False).logits[0, len(row.prompt_ids) - 1 : -1]
        own = torch.log_softmax(logits / row.temperature, -1)[
            range(len(row.completion_ids)), row.completion_ids
        ]
        shifted = (own + shifts[row.member_id]).tolist()
        rows.append(replace(row, old_logprobs=(*shifted[:-1], shifted[-1] + 1.0)))
    _, stats = update_members(stacked, states, rows, RULES)
    for member, shift in shifts.items():
        used = [row for row in rows if row.member_id == member and row.advantage]
        tokens = sum(len(row.completion_ids) for row in used)
        last = abs(shift + 1.0)
        mean = ((tokens - len(used)) * abs(shift) + len(used) * last) / tokens
        assert stats[member].logprob_mismatch == pytest.approx(mean, abs=1e-5)
        assert stats[member].largest_mismatch == pytest.approx(max(last, abs(shift)), abs=1e-5)


def test_an_importance_cap_replaces_the_clip():
    stacked, rows = stack(), some_rows()
    states = newborns(stacked, *MEMBERS)
    _, plain = update_members(stacked, states, rows, RULES)
    _, capped = update_members(stacked, states, rows, changed(importance_cap=1e-3))
    for member in MEMBERS:
        assert capped[member].clip_fraction == 0.0
        assert capped[member].grad_norm < 0.1 * plain[member].grad_norm
        assert capped[member].logprob_mismatch == plain[member].logprob_mismatch


def test_gradient_checkpointing_runs_every_layer_again_and_leaves_the_model_as_it_was():
    stacked, calls = stack(), []
    layer = stacked.model.model.layers[1]
    layer.mlp.register_forward_pre_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    row = TrainingRow("a", (3, 4), (5, 6, 1), (-3.0, -3.0, -3.0), 1.0)
    states = newborns(stacked, "a")
    update_members(stacked, states, [row], UpdateRules(UpdateSection(gradient_checkpointing=True)))
    assert len(calls) == 2
    update_members(stacked, states, [row], UpdateRules(UpdateSection()))
    assert len(calls) == 3
    assert "forward" not in vars(layer)


def test_on_a_gpu_shared_prompts_go_apart_and_layers_run_again_only_where_memory_is_short(
    monkeypatch: pytest.MonkeyPatch,
):
    """The same step, but for rounding."""
    stacked, rows, calls = stack(), some_rows(), []
    stacked.model.model.layers[1].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    states, rules = newborns(stacked, *MEMBERS), changed(gradient_checkpointing=True)
    usual, _ = update_members(stacked, states, rows, rules)
    monkeypatch.setattr(update_module, "CUDA", "cpu")
    counts = {}
    for free in (0.0, 1e12):
        calls.clear()
        monkeypatch.setattr(update_module, "free_memory", lambda free=free: free)
        found, _ = update_members(stacked, states, rows, rules)
        counts[free] = len(calls)
        for member in MEMBERS:
            before, after = usual[member].exp_avg, found[member].exp_avg  # a share of the gradient
            assert (after - before).abs().max() < 1e-5 * before.abs().max()
    assert counts[0.0] == 2 * counts[1e12] > 0


def test_members_stepped_in_groups_take_the_same_step(monkeypatch: pytest.MonkeyPatch):
    stacked, rows = stack(), some_rows()
    states = newborns(stacked, *MEMBERS)
    together, _ = update_members(stacked, states, rows, RULES)
    monkeypatch.setattr(update_module, "STEP_NUMBERS", 2 * stacked.layout.dimension)
    in_groups, _ = update_members(stacked, states, rows, RULES)
    for member in MEMBERS:
        for vector in ("weights", "exp_avg", "exp_avg_sq"):
            assert torch.equal(getattr(together[member], vector), getattr(in_groups[member], vector))


def test_progress_counts_the_rows_that_were_trained():
    stacked, rows, done = stack(), some_rows(), []
    update_members(stacked, newborns(stacked, *MEMBERS), rows, RULES, done.append)
    assert sum(done) == sum(1 for row in rows if row.advantage)


@pytest.mark.skipif(not cpu_has_bfloat16(), reason="this CPU does not multiply in bfloat16")
def test_the_gradient_in_bfloat16_is_that_of_float32_but_for_rounding(monkeypatch: pytest.MonkeyPatch):
    """Exp_avg after one step is a tenth of the gradient. Weights are rounded first, so that only arithmetic differs."""
    rows, found = some_rows(), {}
    for dtype in (torch.float32, torch.bfloat16):
        model = tiny_model(torch.bfloat16).to(dtype)
        stacked = StackedAdapters(model, layout_of(model))
        born = newborns(stacked, *MEMBERS)
        rounded = {
            name: replace(state, weights=state.weights.bfloat16().float()) for name, state in born.items()
        }
        states, _ = update_members(stacked, rounded, rows, changed(grad_clip=1e9))
        found[dtype] = torch.cat([states[member].exp_avg for member in MEMBERS])
        assert found[dtype].dtype == torch.float32 and stacked.grad is not None
        assert stacked.grad.dtype == torch.float32
    exact, came = found[torch.float32], found[torch.bfloat16]
    assert (came - exact).norm() < BFLOAT16 * exact.norm()


@pytest.mark.parametrize("pack_tokens", [1, 192])
def test_texts_packed_by_their_beginnings_give_the_gradient_of_texts_alone(
    pack_tokens: int, monkeypatch: pytest.MonkeyPatch
):
    stacked, rows = stack(), some_rows()
    alike = [replace(row, prompt_ids=(*range(2, 20), *row.prompt_ids)) for row in rows]
    states = newborns(stacked, *MEMBERS)
    apart, _ = update_members(stacked, states, alike, changed(pack_tokens=1))
    stacked.shares_beginnings = True
    monkeypatch.setattr(update_module, "LONG_PACK", pack_tokens)
    together, _ = update_members(stacked, states, alike, changed(pack_tokens=1))
    for member in MEMBERS:
        torch.testing.assert_close(together[member].exp_avg, apart[member].exp_avg, rtol=1e-4, atol=1e-7)


def test_steps_of_which_none_was_taken_come_to_their_rows_and_the_last_rate():
    skipped = [UpdateStats(n_rows=2, tokens=5, learning_rate=rate) for rate in (0.1, 0.2, 0.3)]
    assert UpdateStats.over(skipped) == UpdateStats(n_rows=6, tokens=15, learning_rate=0.3)
    assert UpdateStats.over(skipped[:1]) == skipped[0]
