"""One policy-gradient step for every member, in one pass over the frozen base.

Rows whose advantage is exactly zero cannot move anything and are not run; their tokens still count in the
token mean of their member, so that skipping them changes no gradient. A member without any nonzero advantage
has nothing to learn from and keeps its state, optimiser moments and step count included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from populora_core.base_model import hidden_states, output_layer
from populora_core.errors import PopulationError
from populora_core.learner.loss import backward_policy_gradient
from populora_core.learner.optimiser import adamw, clip_by_member
from populora_core.learner.packing import MicroBatch, micro_batches, pack_rows
from populora_core.learner.rows import TrainingRow, UpdateRules, UpdateStats
from populora_core.learner.stacked import StackedAdapters
from populora_core.learner.state import MemberState

Progress = Callable[[int], None]


def update_members(
    stacked: StackedAdapters,
    states: Mapping[str, MemberState],
    rows: Sequence[TrainingRow],
    rules: UpdateRules,
    progress: Progress | None = None,
) -> tuple[dict[str, MemberState], dict[str, UpdateStats]]:
    """One optimiser step for every member that has something to learn from.

    Args:
        stacked: the adapters over the base; the members trained become its residents.
        states: every member that may appear in `rows`.
        progress: called with the number of further rows done.

    Returns:
        New states and statistics, both for every member of `states`.

    Raises:
        PopulationError: a row of an unknown member, or a gradient that is not finite.
    """
    _refuse_unknown(rows, states)
    graded = [row for row in rows if row.advantage is not None]
    useful = [row for row in graded if row.advantage != 0.0]
    tokens, n_rows = dict.fromkeys(states, 0), dict.fromkeys(states, 0)
    for row in graded:
        tokens[row.member_id] += len(row.completion_ids)
        n_rows[row.member_id] += 1

    new_states = dict(states)
    stats = {
        member_id: UpdateStats(
            tokens=tokens[member_id],
            loss=0.0,
            grad_norm=0.0,
            entropy=None,
            clip_fraction=None,
            learning_rate=rules.learning_rate(member_id, state.steps),
            n_rows=n_rows[member_id],
        )
        for member_id, state in states.items()
    }
    trained = {row.member_id: states[row.member_id] for row in useful}
    if not trained:
        return new_states, stats

    stacked.load({member_id: state.weights for member_id, state in trained.items()})
    grad = stacked.zero_grad()
    denominators = torch.tensor([tokens[member_id] for member_id in stacked.members], dtype=torch.float64)
    sums = torch.zeros(len(trained), 4, dtype=torch.float64)
    for batch in micro_batches(pack_rows(useful, rules.pack_tokens), rules.token_budget):
        sums += _accumulate(stacked, batch, denominators, rules.clip)
        if progress is not None:
            progress(batch.n_rows)
    norms = clip_by_member(grad, rules.grad_clip).tolist()
    for member_id, norm, (count, loss, entropy, clipped) in zip(
        stacked.members, norms, sums.tolist(), strict=True
    ):
        _refuse_not_finite(member_id, norm)
        stats[member_id] = replace(
            stats[member_id],
            loss=loss / tokens[member_id],
            grad_norm=norm,
            entropy=entropy / count,
            clip_fraction=clipped / count,
        )
    return new_states | _step(stacked, trained, grad, rules), stats


def _accumulate(stacked: StackedAdapters, batch: MicroBatch, denominators: Tensor, clip: float) -> Tensor:
    """Add the micro-batch's gradients; returns tokens, sums of loss, entropy and clipped [P, 4]."""
    model, device = stacked.model, stacked.device
    real = torch.promote_types(stacked.compute_dtype, torch.float32)
    slots = [stacked.slot(member_id) for member_id in batch.member_ids]
    token_slots = torch.tensor(slots)[torch.from_numpy(batch.sequence)]
    where = torch.from_numpy(batch.sequence * batch.input_ids.shape[1] + batch.position).to(device)
    attention: dict[str, Tensor] = {}
    if batch.visible is not None and batch.position_ids is not None:
        unseen = torch.from_numpy(~batch.visible[:, None]).to(device)
        mask = torch.zeros(unseen.shape, dtype=stacked.compute_dtype, device=device)
        attention["attention_mask"] = mask.masked_fill_(unseen, torch.finfo(mask.dtype).min)
        attention["position_ids"] = torch.from_numpy(batch.position_ids).to(device)
    with torch.enable_grad(), stacked.routed(slots):
        input_ids = torch.from_numpy(batch.input_ids).to(device)
        states = hidden_states(model, input_ids=input_ids, use_cache=False, **attention)
        found = backward_policy_gradient(
            output_layer(model),
            states.flatten(0, 1).index_select(0, where),
            targets=torch.from_numpy(batch.targets).to(device),
            old_logprobs=torch.from_numpy(batch.old_logprobs).to(device, real),
            advantages=torch.from_numpy(batch.advantages).to(device, real),
            temperatures=torch.from_numpy(batch.temperatures).to(device, real),
            token_weights=(1.0 / denominators[token_slots]).to(device, real),
            clip=clip,
        )
    columns = torch.stack([torch.ones_like(found.loss), found.loss, found.entropy, found.clipped], dim=1)
    sums = torch.zeros(len(denominators), 4, dtype=torch.float64)
    return sums.index_add_(0, token_slots, columns.to("cpu", torch.float64))


def _step(
    stacked: StackedAdapters, states: Mapping[str, MemberState], grad: Tensor, rules: UpdateRules
) -> dict[str, MemberState]:
    """AdamW on every resident member; `stacked` keeps the weights that the gradient was taken at."""
    members = [states[member_id] for member_id in stacked.members]

    def matrix(name: str) -> Tensor:
        return torch.stack([getattr(state, name) for state in members]).to(grad)

    weights, exp_avg, exp_avg_sq = matrix("weights"), matrix("exp_avg"), matrix("exp_avg_sq")
    lrs = [rules.learning_rate(name, states[name].steps) for name in stacked.members]
    adamw(
        weights,
        grad,
        exp_avg,
        exp_avg_sq,
        steps=torch.tensor([state.steps + 1 for state in members], dtype=torch.float64, device=grad.device),
        lr=torch.tensor(lrs, dtype=torch.float64, device=grad.device),
        betas=rules.betas,
        eps=rules.eps,
        weight_decay=rules.weight_decay,
    )

    def vector(values: Tensor) -> Tensor:
        return values.to("cpu", copy=True)

    return {
        member_id: MemberState(
            vector(weights[row]), vector(exp_avg[row]), vector(exp_avg_sq[row]), states[member_id].steps + 1
        )
        for row, member_id in enumerate(stacked.members)
    }


def _refuse_unknown(rows: Sequence[TrainingRow], states: Mapping[str, MemberState]) -> None:
    unknown = sorted({row.member_id for row in rows} - set(states))
    if unknown:
        raise PopulationError(
            f"there are training rows of {unknown[0]}, which has no state",
            expected="rows of " + ", ".join(sorted(states)),
            remedy="pass the state of every member that the rows name",
        )


def _refuse_not_finite(member_id: str, norm: float) -> None:
    if not math.isfinite(norm):
        raise PopulationError(
            f"the gradient of {member_id} is not finite",
            came=f"norm {norm}",
            remedy="lower update.learning_rate, or compute in float32, and redo the update",
        )
