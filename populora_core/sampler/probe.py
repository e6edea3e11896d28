"""The proof that a sampler serves what the learner made: nothing left out, stale, swapped or mis-scaled in silence.

At every load the sampler scores one fixed text under every resident member and the bare base, in one batch
and as it generates: once whole and once without its last token, so that rows come unsorted and end apart.
The learner recorded beside each adapter what its own pass in float32 makes of that text (`store.adapters.Probe`), and
`sampler.proof` tells from both whose numbers they are. Where the sampler scores in float32 too, a few tokens tell
everything. In bfloat16 they tell gross faults alone; what they leave open, the update tells from the tokens that it
learns from (`compute.proving`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from populora_core.sampler.proof import Logprobs, MemberProof, MismatchLimits, ProofResult, judge
from populora_core.sampler.requests import Sampler, Served, Text
from populora_core.store.adapters import PROBE, Probe, read_probe
from populora_core.support.errors import AdapterError, AdapterNotServed

BASE = "the bare base"
WARN, REFUSE = 0.05, 0.5
"""Mean differences of two engines in bfloat16, where no setting says otherwise."""
LOADED_AGAIN = "nothing was made of it; resume tries again with a fresh sampler"


class EnginesDiffer(UserWarning):
    """Sampler and learner give a member's tokens other log-probabilities than rounding explains."""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """Result of the proof that the sampler serves every member.

    Attributes:
        refused_from: the mean difference that is refused.
        largest_error: of any token of any member, and of the base, from the learner's own.
        told: member -> conclusion about it, a value of `ProofResult`.
        alike: member -> the base, earlier versions and members that the text cannot tell from it: of these the file's
            hash is the only proof.
    """

    refused_from: float
    largest_error: float
    told: dict[str, str]
    alike: dict[str, list[str]]


def serve(
    sampler: Sampler, adapters: Sequence[Served], dtype: str, warn: float = WARN, refuse: float = REFUSE
) -> ProbeReport:
    """Make exactly these adapters resident and prove that each is applied.

    Args:
        dtype: that the sampler scores in.
        warn, refuse: mean differences, in nats per token, from which on it is reported and refused in bfloat16.

    Raises:
        AdapterError: a file is missing, damaged or not the recorded one.
        AdapterNotServed: the sampler serves something else than the learner made; says which, and what.
    """
    probes = {adapter.member_id: _probe_of(adapter) for adapter in adapters}
    sampler.load(adapters)
    return prove(
        sampler, adapters, probes, MismatchLimits.of(warn, refuse, dtype, *(p.dtype for p in probes.values()))
    )


def prove(
    sampler: Sampler, adapters: Sequence[Served], probes: Mapping[str, Probe], limits: MismatchLimits
) -> ProbeReport:
    """Hold a loaded sampler to the learner's numbers (see `serve`)."""
    if not adapters:
        return ProbeReport(limits.refuse, 0.0, {}, {})
    first = next(iter(probes.values()))
    texts = [Text(member, probe.prompt_ids, probe.completion_ids) for member, probe in probes.items()]
    texts.append(Text(None, first.prompt_ids, first.completion_ids))
    shorter = [replace(text, completion_ids=text.completion_ids[:-1]) for text in texts]
    scored = sampler.score([*texts, *shorter])
    both = [np.asarray([*whole, *part]) for whole, part in zip(scored, scored[len(texts) :], strict=False)]
    found, base_found = dict(zip(probes, both, strict=False)), both[-1]
    expected = {member: _twice(probe.logprobs) for member, probe in probes.items()}
    base = _twice(first.base_logprobs)
    findings = {BASE: judge(base_found, base, expected, BASE, limits)}
    if findings[BASE].told is ProofResult.WRONG:
        other = findings[BASE].other
        what = f"the adapter of {other}" if other else "other numbers than the learner's base"
        raise not_served(
            sampler.name, BASE, f"a row without a member was given {what}", findings[BASE], limits
        )

    for adapter in adapters:
        member, own, served = adapter.member_id, expected[adapter.member_id], found[adapter.member_id]
        others = (
            {BASE: base}
            | _earlier(adapter)
            | {name: each for name, each in expected.items() if name != member}
        )
        finding = findings[member] = judge(served, own, others, BASE, limits)
        if finding.told is ProofResult.WRONG:
            back = finding.other in found and _answers(own, found[str(finding.other)], limits)
            raise not_served(sampler.name, member, reason(finding, set(expected), back), finding, limits)
    del findings[BASE]
    warn_of(sampler.name, findings, limits)
    return ProbeReport(
        limits.refuse,
        max(float(np.abs(base_found - base).max()), *(finding.largest for finding in findings.values())),
        {member: str(finding.told) for member, finding in findings.items()},
        {member: list(finding.alike) for member, finding in findings.items() if finding.alike},
    )


def reason(finding: MemberProof, members: set[str], back: bool = False) -> str:
    """Say what is served in place of a member.

    Args:
        members: whose adapters were loaded.
        back: whether the one that answers is answered for by this member.
    """
    other, share = finding.other, finding.share
    if other == BASE:
        return "it is not applied: the bare base answers"
    if other in members:
        return f"it is swapped with {other}" if back else f"the adapter of {other} answers"
    if other is not None:
        return f"it is stale: {other} answers"
    if share is not None:
        return f"its scaling is wrong: its effect is about {share:.2g} times the learner's"
    return "it answers like no version that is known: other weights, or another base"


def warn_of(engine: str, findings: Mapping[str, MemberProof], limits: MismatchLimits) -> None:
    """Warn of members whose numbers differ by more than they should."""
    far = {member: finding.mean for member, finding in findings.items() if finding.mean >= limits.warn}
    if far:
        worst = max(far, key=far.__getitem__)
        warnings.warn(
            f"the {engine} sampler and the learner differ by {far[worst]:.3f} nats per token on average for {worst}"
            + (f", and by {limits.warn:g} or more for {len(far)} members" if len(far) > 1 else "")
            + "; update.importance_cap corrects for it, sampler.warn_mismatch says from where on it is told",
            EnginesDiffer,
            stacklevel=3,
        )


def not_served(
    engine: str, who: str, why: str, finding: MemberProof, limits: MismatchLimits, again: str = LOADED_AGAIN
) -> AdapterNotServed:
    """The error for a member that is answered for by something else; `again` is what tries once more."""
    return AdapterNotServed(
        f"the {engine} sampler does not serve {who} as the learner made it: {why}",
        expected=f"the learner's log-probabilities, on average within {limits.refuse:g}, and nearer than any other's",
        got=f"a mean difference of {finding.mean:.3g} over {finding.tokens} tokens, {finding.largest:.3g} at most",
        fix=f"{again}. If it comes back, report it, and go on without it: populora fork RUN --generation LAST --to NEW "
        "--set sampler.engine=torch, then resume NEW",
    )


def _probe_of(adapter: Served) -> Probe:
    probe = read_probe(adapter.folder)
    if probe.sha256 != adapter.sha256:
        raise AdapterError(
            f"{adapter.folder / PROBE} belongs to other weights than those to serve for {adapter.member_id}",
            expected=f"sha256 {adapter.sha256[:12]}",
            got=probe.sha256[:12],
            fix="populora resume makes a damaged adapter again",
        )
    return probe


def _twice(logprobs: Sequence[float]) -> Logprobs:
    """Expected log-probabilities of a text, whole and then without its last token."""
    return np.asarray([*logprobs, *logprobs[:-1]])


def _earlier(adapter: Served) -> dict[str, Logprobs]:
    """Log-probabilities that the learner recorded for this adapter's earlier versions, where they are kept."""
    known = {}
    for folder in (probe.parent for probe in adapter.earlier):
        try:
            known[f"{folder.parent.name} of {folder.name}"] = _twice(read_probe(folder).logprobs)
        except AdapterError:
            continue  # it was pruned
    return known


def _answers(own: Logprobs, served: Logprobs, limits: MismatchLimits) -> bool:
    """True if a member's own log-probabilities were served in place of another's."""
    return own.shape == served.shape and float(np.abs(own - served).mean()) < limits.refuse
