"""The proof that a sampler serves what the learner made: nothing left out, stale, swapped or mis-scaled in silence.

At every load the sampler scores one fixed text under every resident member and the bare base, in one batch
and as it generates: once whole and once without its last token, so that rows come unsorted and end apart.
The learner recorded beside each adapter what its own forward pass makes of that text (`store.adapters.Probe`):
both must agree within `TOLERANCE`. Where they do not, the served numbers are compared with everything else that
is known, which tells the fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from populora_core.sampler.requests import Sampler, Served, Text
from populora_core.store.adapters import PROBE, Probe, read_probe
from populora_core.support.errors import AdapterError, AdapterNotServed

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.25}
"""Largest difference of one token's log-probability that is rounding, by the coarser of the two dtypes."""

BASE = "the bare base"
Logprobs = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What the proof found.

    Attributes:
        tolerance: largest difference that counts as rounding.
        largest_error: of any member, and of the base, from the learner's own.
        indistinct: member -> the base and earlier versions from which the learner's own policy differs by no
            more than two tolerances: of these the file's hash is the only proof.
    """

    tolerance: float
    largest_error: float
    indistinct: dict[str, list[str]]


def serve(sampler: Sampler, adapters: Sequence[Served], dtype: str) -> ProbeReport:
    """Make exactly these adapters resident and prove that each is applied.

    Args:
        dtype: that the sampler computes in.

    Raises:
        AdapterError: a file is missing, damaged or not the recorded one.
        AdapterNotServed: the sampler serves something else than the learner made; says which, and what.
    """
    probes = {adapter.member_id: _probe_of(adapter) for adapter in adapters}
    sampler.load(adapters)
    return prove(sampler, adapters, probes, dtype)


def prove(
    sampler: Sampler, adapters: Sequence[Served], probes: Mapping[str, Probe], dtype: str
) -> ProbeReport:
    """Hold a loaded sampler to the learner's numbers (see `serve`)."""
    if not adapters:
        return ProbeReport(TOLERANCE[dtype], 0.0, {})
    tolerance = max(TOLERANCE[name] for name in (dtype, *(probe.dtype for probe in probes.values())))
    first = next(iter(probes.values()))
    texts = [Text(member, probe.prompt_ids, probe.completion_ids) for member, probe in probes.items()]
    texts.append(Text(None, first.prompt_ids, first.completion_ids))
    shorter = [replace(text, completion_ids=text.completion_ids[:-1]) for text in texts]
    scored = sampler.score([*texts, *shorter])
    both = [np.asarray([*whole, *part]) for whole, part in zip(scored, scored[len(texts) :], strict=False)]
    found, base_found = dict(zip(probes, both, strict=False)), both[-1]
    expected = {member: _twice(probe.logprobs) for member, probe in probes.items()}
    base = _twice(first.base_logprobs)
    if _distance(base_found, base) > tolerance:
        given = [member for member, own in expected.items() if _distance(base_found, own) <= tolerance]
        what = f"the adapter of {given[0]}" if given else "other numbers than the learner's base"
        raise _not_served(
            sampler, BASE, f"a row without a member was given {what}", base_found, base, tolerance
        )

    errors, indistinct = [_distance(base_found, base)], {}
    for adapter in adapters:
        member, own, served = adapter.member_id, expected[adapter.member_id], found[adapter.member_id]
        others = {BASE: base} | _earlier(adapter)
        error = _distance(served, own)
        if error > tolerance:
            why = _reason(member, found, expected, others, tolerance)
            raise _not_served(sampler, member, why, served, own, tolerance)
        errors.append(error)
        alike = [name for name, other in others.items() if _distance(own, other) <= 2.0 * tolerance]
        if alike:
            indistinct[member] = alike
    return ProbeReport(tolerance, max(errors), indistinct)


def _probe_of(adapter: Served) -> Probe:
    probe = read_probe(adapter.folder)
    if probe.sha256 != adapter.sha256:
        raise AdapterError(
            f"{adapter.folder / PROBE} belongs to other weights than those to serve for {adapter.member_id}",
            expected=f"sha256 {adapter.sha256[:12]}",
            came=probe.sha256[:12],
            remedy="populora resume makes a damaged adapter again",
        )
    return probe


def _twice(logprobs: Sequence[float]) -> Logprobs:
    """What a text should be given, whole and without its last token."""
    return np.asarray([*logprobs, *logprobs[:-1]])


def _earlier(adapter: Served) -> dict[str, Logprobs]:
    """What the learner recorded for the versions that this one came from, where they are kept."""
    known = {}
    for folder in (probe.parent for probe in adapter.earlier):
        try:
            known[f"{folder.parent.name} of {folder.name}"] = _twice(read_probe(folder).logprobs)
        except AdapterError:
            continue  # it was pruned
    return known


def _reason(
    member: str,
    found: Mapping[str, Logprobs],
    expected: Mapping[str, Logprobs],
    others: Mapping[str, Logprobs],
    tolerance: float,
) -> str:
    """What is served in the member's place, the likeliest first."""
    served, own, base = found[member], expected[member], others[BASE]
    near = min(others, key=lambda name: _distance(served, others[name]))
    if _distance(served, others[near]) <= tolerance:
        if near == BASE:
            return "it is not applied: the bare base answers"
        return f"it is stale: {near} answers"
    for other, logprobs in expected.items():
        if other != member and _distance(served, logprobs) <= tolerance:
            back = _distance(found[other], own) <= tolerance
            return f"it is swapped with {other}" if back else f"the adapter of {other} answers"
    # To first order the log-probabilities move along one line when an adapter is scaled.
    moved, meant = served - base, own - base
    length = float(np.linalg.norm(moved) * np.linalg.norm(meant))
    alike = float(moved @ meant) / length if length else 0.0
    if alike > 0.7:
        times = float(moved @ meant) / float(meant @ meant)
        return f"its scaling is wrong: its effect is about {times:.2g} times the learner's"
    return "it answers like no version that is known: other weights, or another base"


def _not_served(
    sampler: Sampler, who: str, why: str, served: Logprobs, own: Logprobs, tolerance: float
) -> AdapterNotServed:
    return AdapterNotServed(
        f"the {sampler.name} sampler does not serve {who} as the learner made it: {why}",
        expected=f"the learner's log-probabilities on the probe within {tolerance:g}",
        came=f"a difference of {_distance(served, own):.3g}",
        remedy="nothing was sampled; resume tries again with a fresh sampler. If it comes back, use "
        'sampler.engine = "torch" and report it',
    )


def _distance(one: Logprobs, other: Logprobs) -> float:
    """The largest difference of a token. Other texts, and numbers that are not finite, are far apart."""
    if one.shape != other.shape or not np.isfinite(one - other).all():
        return float("inf")
    return float(np.abs(one - other).max())
