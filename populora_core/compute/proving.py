"""The proof by what was sampled: a member's completions, as its update learns from them, hold some hundred real tokens.

They were drawn step by step, by the kernels and from the batches that sampling uses, and a sampler that drew from other
weights shows by them what a short text at load cannot: see `sampler.proof`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from populora_core.learner.rows import TrainingRow
from populora_core.sampler.engines import scored_in
from populora_core.sampler.probe import BASE, not_served, reason, warn_of
from populora_core.sampler.proof import Logprobs, MemberProof, MismatchLimits, ProofResult, judge

if TYPE_CHECKING:
    from torch import Tensor

    from populora_core.compute.work import Worker
    from populora_core.model.stacked import StackedAdapters
    from populora_core.model.state import MemberState

TOKENS = 512
"""Tokens of a member that are compared: under two engines' noise, enough to catch a policy 0.1 nats per token off."""
OTHERS = 2
"""Other members that a member's completions are held to in one generation."""
EARLIER = "its version before"
SAMPLED_AGAIN = "nothing was learnt from it; populora rerun with --stage propose samples the generation again"


def prove_sampled(
    worker: Worker,
    stacked: StackedAdapters,
    states: Mapping[str, MemberState],
    earlier: Mapping[str, Path],
    rows: Sequence[TrainingRow],
    others: Mapping[str, Mapping[str, Path]] | None = None,
) -> dict[str, dict[str, Any]]:
    """Hold what was sampled to the weights that the learner has.

    Where the sampler scores in float32, the proof at load has left nothing to tell.

    Args:
        states: of the members at the weights that sampled.
        earlier: member_id -> the folder of its version before, where it is kept.
        others: member_id -> the weights of the members whose turn it is (see `in_turn`), by id.

    Returns:
        member_id -> the fields of its `MemberProof`, for members with rows.

    Raises:
        AdapterNotServed: a member's completions come from something else.
    """
    from populora_core.model.adapter_files import read_tensors, read_weights

    @cache  # members take turns together
    def weights(file: Path) -> Tensor:
        return stacked.layout.from_peft(read_tensors(file))

    spec = worker.spec
    if scored_in(spec.sampler.engine, spec.base.dtype) == "float32":
        return {}
    limits = MismatchLimits.of(spec.sampler.warn_mismatch, spec.sampler.refuse_mismatch, spec.base.dtype)
    findings: dict[str, MemberProof] = {}
    for member, state in states.items():
        chosen = first_tokens([row for row in rows if row.member_id == member], TOKENS)
        if not chosen:
            continue
        known = {member: state.weights}
        if member in earlier:
            known[EARLIER] = read_weights(earlier[member], stacked.layout)
        met = (others or {}).get(member, {})
        known |= {
            other: states[other].weights if other in states else weights(file) for other, file in met.items()
        }
        (own, *rest), (exact, *exact_rest) = _scored(stacked, known, chosen)
        served = np.concatenate([np.asarray(row.old_logprobs) for row in chosen])
        names = [BASE, *[name for name in known if name != member]]
        ways = {name: exact - other for name, other in zip(names, exact_rest, strict=True)}
        finding = judge(served, own, dict(zip(names, rest, strict=True)), BASE, limits, ways)
        if finding.told is ProofResult.WRONG:
            finding = _with_others(stacked, states, member, chosen, served, own, finding)
            why = reason(finding, {*states, *met})
            raise not_served(spec.sampler.engine, member, why, finding, limits, SAMPLED_AGAIN)
        findings[member] = finding
    warn_of(spec.sampler.engine, findings, limits)
    return {member: asdict(finding) for member, finding in findings.items()}


def in_turn(members: Sequence[str], member: str, generation: int) -> list[str]:
    """The other members that this one is compared with in a generation: `OTHERS`, until all have had their turn."""
    others = [other for other in members if other != member]
    first = generation * OTHERS
    return [others[(first + place) % len(others)] for place in range(min(OTHERS, len(others)))]


def first_tokens(rows: Sequence[TrainingRow], count: int) -> list[TrainingRow]:
    """The beginnings of these completions, at most half of the count from one, until there are so many tokens."""
    chosen: list[TrainingRow] = []
    left = count
    for row in rows:
        taken = min(left, count // 2, len(row.completion_ids))
        if taken:
            ids, logprobs = row.completion_ids[:taken], row.old_logprobs[:taken]
            chosen.append(replace(row, completion_ids=ids, old_logprobs=logprobs))
        left -= taken
    return chosen


def _scored(
    stacked: StackedAdapters, weights: Mapping[str, Tensor], rows: Sequence[TrainingRow]
) -> tuple[list[Logprobs], list[Logprobs]]:
    """Score the completions with the learner under the first adapter, the bare base, and the rest.

    Returns:
        Rounded as the engine rounds, and in float32.
    """
    from populora_core.model.probe import given_logprobs, rounded_logprobs

    stacked.load(weights)
    first, *rest = weights
    rounded, exact = (
        [
            np.concatenate(
                [score(stacked, who, row.prompt_ids, row.completion_ids, row.temperature) for row in rows]
            )
            for who in (first, None, *rest)
        ]
        for score in (rounded_logprobs, given_logprobs)
    )
    return rounded, exact


def _with_others(
    stacked: StackedAdapters,
    states: Mapping[str, MemberState],
    member: str,
    rows: Sequence[TrainingRow],
    served: Logprobs,
    own: Logprobs,
    finding: MemberProof,
) -> MemberProof:
    """The finding, with the member that answers instead where one does."""
    for other, state in states.items():
        if finding.other is None and other != member:
            theirs = _scored(stacked, {other: state.weights}, rows)[0][0]
            if np.abs(served - theirs).mean() < 0.5 * np.abs(served - own).mean():
                return replace(finding, other=other)
    return finding
