"""Policy-gradient steps for every member, all members in one pass over the frozen base.

Rows whose advantage is exactly zero cannot move anything and are not run, unless a KL term moves by every row;
their tokens still count in the token mean of their member, so that skipping them changes no gradient. A member
without any nonzero advantage has nothing to learn from and keeps its state, optimiser moments and step count included.

With a share s of a corpus a member's loss is (1 - s) L / T + s C / U: L the sum over its T sampled tokens, KL included,
C the sum of -log p over the U tokens of the corpus's texts that are in the same step. Where there are none it is L / T.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from populora_core.learner.checkpointing import checkpointed
from populora_core.learner.loss import TokenStats, backward_policy_gradient
from populora_core.learner.optimiser import adamw, clip_by_member
from populora_core.learner.packing import (
    LONG_PACK,
    MicroBatch,
    Pack,
    made_ahead,
    micro_batches,
    pack_beginnings,
    pack_rows,
)
from populora_core.learner.rows import TrainingRow, UpdateRules, UpdateStats, moving
from populora_core.model.attention import attention_window
from populora_core.model.base import hidden_states
from populora_core.model.stacked import StackedAdapters
from populora_core.model.state import MemberState
from populora_core.planning.memory import STEP_NUMBERS, Workload, estimate, shape_of
from populora_core.support.aliases import Progress
from populora_core.support.devices import CUDA, free_memory
from populora_core.support.errors import BaseModelError, PopulationError

if TYPE_CHECKING:
    from populora_core.config.sections import UpdateSection

EPS = 1e-8  # of AdamW
KEEPS = 1.25  # free memory needed to keep all activations, as a multiple of their estimate


def update_members(
    stacked: StackedAdapters,
    states: Mapping[str, MemberState],
    rows: Sequence[TrainingRow],
    rules: UpdateRules,
    progress: Progress | None = None,
) -> tuple[dict[str, MemberState], dict[str, UpdateStats]]:
    """An optimiser step on each minibatch, for every member that has something to learn from there.

    Args:
        stacked: the adapters over the base; the members trained become its residents.
        states: every member that appears in `rows`, and maybe others.
        progress: called with the number of further rows done.

    Returns:
        New states and statistics, both for every member of `states`.

    Raises:
        PopulationError: a gradient is not finite.
    """
    parts: list[list[TrainingRow]] = [[] for _ in range(rules.settings.minibatches)]
    for row in rows:
        parts[row.group % len(parts)].append(row)
    steps: list[dict[str, UpdateStats]] = []
    now = dict(states)
    for part in parts:
        now, stats = _step(stacked, now, part, rules, progress)
        steps.append(stats)
    return now, {member: UpdateStats.over([stats[member] for stats in steps]) for member in states}


def _step(
    stacked: StackedAdapters,
    states: Mapping[str, MemberState],
    rows: Sequence[TrainingRow],
    rules: UpdateRules,
    progress: Progress | None,
) -> tuple[dict[str, MemberState], dict[str, UpdateStats]]:
    """One optimiser step on these rows."""
    settings = rules.settings
    graded = [row for row in rows if row.advantage is not None]
    useful = moving(graded, settings.kl)
    tokens, texts, n_rows = (dict.fromkeys(states, 0) for _ in range(3))
    for row in graded:
        (texts if row.supervised else tokens)[row.member_id] += len(row.completion_ids)
        n_rows[row.member_id] += not row.supervised

    stats = {
        member: UpdateStats(n_rows[member], tokens[member], rules.learning_rate(member, state.steps))
        for member, state in states.items()
    }
    trained = {member_id: states[member_id] for member_id in sorted({row.member_id for row in useful})}
    if not trained:
        return dict(states), stats

    stacked.load({member_id: state.weights for member_id, state in trained.items()})
    grad = stacked.zero_grad()
    totals = _Totals.zero(len(trained))
    token_weights = torch.tensor(
        [_weights(tokens[member], texts[member], settings.corpus_share) for member in stacked.members],
        dtype=torch.float64,
    )
    clips, largest = (
        torch.tensor([rules.of(member, name) for member in stacked.members], dtype=torch.float64)
        for name in ("clip", "grad_clip")
    )
    on_gpu = stacked.device.type == CUDA
    # A mask says who sees whom, and no layer looks back less far under one: what has it keeps within the window.
    window = attention_window(stacked.model.config)
    most = min(settings.token_budget, window or settings.token_budget)
    if stacked.shares_beginnings:
        packs = pack_beginnings(useful, min(max(settings.pack_tokens, LONG_PACK), most))
    else:
        packs = pack_rows(useful, min(settings.pack_tokens, most))
    again = settings.gradient_checkpointing and not (on_gpu and has_room(stacked, packs, settings))
    with checkpointed(stacked.model, again):
        batches = micro_batches(packs, settings.token_budget, on_gpu or window is not None)
        for batch in made_ahead(batches) if on_gpu else batches:
            totals.add(*_accumulate(stacked, batch, token_weights, clips, settings))
            if progress is not None:
                progress(batch.n_rows)
    norms = clip_by_member(grad, largest.to(grad)).tolist()
    _refuse_not_finite(dict(zip(stacked.members, norms, strict=True)))
    for slot, (member_id, norm) in enumerate(zip(stacked.members, norms, strict=True)):
        count, loss, entropy, clipped, kl, mismatch = totals.sums[slot].tolist()
        stats[member_id] = replace(
            stats[member_id],
            steps=1,
            loss=loss / tokens[member_id],
            grad_norm=norm,
            entropy=entropy / count,
            clip_fraction=clipped / count,
            kl=kl / count if settings.kl else None,
            logprob_mismatch=mismatch / count,
            largest_mismatch=float(totals.largest[slot]),
        )
    return {**states, **stepped(stacked, trained, grad, rules)}, stats


def _weights(tokens: int, texts: int, share: float) -> tuple[float, float]:
    """Loss weights of one sampled token and one corpus token of a member, from its counts of both."""
    return ((1.0 - share) / tokens, share / texts) if texts else (1.0 / tokens, 0.0)


def has_room(stacked: StackedAdapters, packs: Sequence[Pack], settings: UpdateSection) -> bool:
    """True if the GPU has memory for all activations of a micro-batch: then backward need run no layer again."""
    tokens = max(settings.token_budget, *(pack.length for pack in packs))
    try:
        shape = shape_of(stacked.model.config.to_dict(), stacked.layout.rank)
    except BaseModelError:  # nothing can be said of this base
        return False
    needed = estimate(shape, Workload(len(stacked.members), stacked.compute_dtype.itemsize, tokens))
    return KEEPS * (needed.learner - needed.resident - needed.gradient) <= free_memory()


@dataclass(frozen=True, slots=True)
class _Totals:
    """Sums over the tokens of each member.

    Attributes:
        sums: [P, 6], tokens and the sums of loss, entropy, clipped, KL and mismatch.
        largest: [P], the largest mismatch.
    """

    sums: Tensor
    largest: Tensor

    @classmethod
    def zero(cls, n_members: int) -> _Totals:
        return cls(
            torch.zeros(n_members, 6, dtype=torch.float64), torch.zeros(n_members, dtype=torch.float64)
        )

    def add(self, slots: Tensor, found: TokenStats) -> None:
        """Add tokens [n] of the members in rows `slots` [n]."""
        ones = torch.ones_like(found.loss)
        columns = torch.stack(
            [ones, found.loss, found.entropy, found.clipped, found.kl, found.mismatch], dim=1
        )
        columns = columns.to("cpu", torch.float64)
        self.sums.index_add_(0, slots, columns)
        self.largest.scatter_reduce_(0, slots, columns[:, -1], "amax")


def _accumulate(
    stacked: StackedAdapters, batch: MicroBatch, token_weights: Tensor, clips: Tensor, settings: UpdateSection
) -> tuple[Tensor, TokenStats]:
    """Add the micro-batch's gradients; return each sampled token's population row [n] and its statistics.

    Args:
        token_weights: of each member's sampled tokens and of its corpus's [P, 2].
        clips: of each member [P].
    """
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
    input_ids = torch.from_numpy(batch.input_ids).to(device)
    supervised, reference = torch.from_numpy(batch.supervised), None
    mixed = bool(supervised.any())
    if settings.kl:
        with torch.no_grad(), stacked.routed([None] * len(slots), batch.input_ids.shape[1]):
            base = hidden_states(model, input_ids=input_ids, use_cache=False, **attention)
            reference = base.flatten(0, 1).index_select(0, where)
    with torch.enable_grad(), stacked.routed(slots, batch.input_ids.shape[1]):
        states = hidden_states(model, input_ids=input_ids, use_cache=False, **attention)
        found = backward_policy_gradient(
            model.get_output_embeddings(),
            states.flatten(0, 1).index_select(0, where),
            targets=torch.from_numpy(batch.targets).to(device),
            old_logprobs=torch.from_numpy(batch.old_logprobs).to(device, real),
            advantages=torch.from_numpy(batch.advantages).to(device, real),
            temperatures=torch.from_numpy(batch.temperatures).to(device, real),
            token_weights=token_weights[token_slots, supervised.long()].to(device, real),
            clips=clips[token_slots].to(device, real),
            importance_cap=settings.importance_cap,
            reference=reference,
            kl_weight=settings.kl,
            supervised=supervised.to(device) if mixed else None,
        )
    return (token_slots[~supervised], found.at(~supervised)) if mixed else (token_slots, found)


def stepped(
    stacked: StackedAdapters, states: Mapping[str, MemberState], grad: Tensor, rules: UpdateRules
) -> dict[str, MemberState]:
    """AdamW on every resident member; `stacked` keeps the weights that the gradient was taken at.

    Members go through in groups of at most `STEP_NUMBERS` numbers: a small population in one, one of 7B shapes
    member by member, so that its moments and temporaries are never on the device together.
    """
    new_states = {}
    size = max(1, STEP_NUMBERS // stacked.layout.dimension)
    for start in range(0, len(stacked.members), size):
        names = stacked.members[start : start + size]
        members = [states[name] for name in names]
        weights, exp_avg, exp_avg_sq = (
            torch.stack([getattr(state, vector) for state in members]).to(grad)
            for vector in ("weights", "exp_avg", "exp_avg_sq")
        )
        lrs = [rules.learning_rate(name, states[name].steps) for name in names]
        adamw(
            weights,
            grad[start : start + size],
            exp_avg,
            exp_avg_sq,
            steps=torch.tensor([state.steps + 1 for state in members]).to(grad.device, torch.float64),
            lr=torch.tensor(lrs, dtype=torch.float64, device=grad.device),
            betas=rules.settings.betas,
            eps=EPS,
            weight_decay=rules.settings.weight_decay,
        )
        for row, name in enumerate(names):
            w, m, v = (matrix[row].to("cpu", copy=True) for matrix in (weights, exp_avg, exp_avg_sq))
            new_states[name] = MemberState(w, m, v, states[name].steps + 1)
    return new_states


def _refuse_not_finite(norms: Mapping[str, float]) -> None:
    if found := [member_id for member_id, norm in norms.items() if not math.isfinite(norm)]:
        raise PopulationError(
            f"the gradient of {', '.join(found)} is not finite",
            got=f"norm {norms[found[0]]}; where several are named, one may have spoilt the others",
            fix="lower update.learning_rate, or pbt.learning_rate where members inherit it; or compute in float32; and "
            "redo the update",
        )
