"""The tables of a study's report: the verdict on each claim and its reasons, every arm at equal budgets, the runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from populora_core.benchmarks.scores import BASE
from populora_core.report.page import ReportTable
from populora_core.report.text import percent, seconds, signed
from populora_plugins.study.budget import Basis, common_budget, window
from populora_plugins.study.judgement import (
    ALPHA,
    LEAST_SEEDS,
    PAIRED_SEEDS,
    Claim,
    ClaimArm,
    ClaimResult,
    Rule,
    Verdict,
)
from populora_plugins.study.statistics import Test, two_samples
from populora_plugins.study.summary import HELD_OUT
from populora_plugins.study.verdicts import Answered, Results, hedges_g

UNKNOWN = "–"
MINUS = "−"
SHARES = ("score", "chance")  # units that are told in points
SHORT = {
    Basis.UPDATES: "updates",
    Basis.TRAINED: "trained tokens",
    Basis.TOTAL: "tokens of all",
    Basis.SECONDS: "seconds",
}


def claims_table(found: Sequence[Answered]) -> ReportTable:
    """One row a claim."""
    return ReportTable("Claims", [_claim_row(*row) for row in found], folded=False)


def _claim_row(claim: Claim, verdict: Verdict, own: Sequence[ClaimResult]) -> dict[str, str]:
    shown = deciding(verdict, own)
    return {
        "claim": claim.title,
        "verdict": verdict.value,
        "why": why(own),
        "the paper says" if claim.rule is Rule.REPRODUCTION else "claimed": claim.paper,
        "measured": claim.measured,
        "effect (95 % interval)": "; ".join(map(effect_on, shown)) or UNKNOWN,
        "margin": f"{100 * claim.margin:g} points"
        if claim.unit in SHARES
        else f"{_shown(claim.margin)} {claim.unit}",
        "p, Holm": "; ".join(f"{answer.p_adjusted:.3g}" for answer in shown) or UNKNOWN,
    }


def deciding(verdict: Verdict, own: Sequence[ClaimResult]) -> list[ClaimResult]:
    """The bases that a claim's row shows: where the verdict is hardest to hold, or all where there is none."""
    known = [(answer, answer.test) for answer in own if answer.test is not None]
    if not known or verdict is Verdict.CANNOT_TELL:
        return [answer for answer, _ in known]
    if verdict in (Verdict.REPRODUCED, Verdict.SUPPORTED):
        return [min(known, key=lambda pair: pair[1].value)[0]]
    return [max(known, key=lambda pair: pair[1].high)[0]]


def why(own: Sequence[ClaimResult]) -> str:
    """The reasons for a verdict, in a few words; one that does not hold on every basis names those on which it does."""
    said = [(answer, reason) for answer in own for reason in _reasons(answer)]
    if len({answer.verdict for answer in own}) > 1:
        said = [(answer, answer.verdict.value) for answer in own] + said
    reasons: dict[str, list[str]] = {}
    for answer, reason in said:
        reasons.setdefault(reason, []).append(SHORT[answer.basis])
    return "; ".join(
        reason if len(bases) == len(own) else f"{reason} ({', '.join(bases)})"
        for reason, bases in reasons.items()
    )


def _reasons(answer: ClaimResult) -> list[str]:
    test = answer.test
    if test is None:
        return [f"needs {LEAST_SEEDS} runs of each arm, with a value each"]
    match answer.verdict, answer.claim.rule:
        case Verdict.REPRODUCED, _:
            return ["effect beyond the margin, significant, every condition met"]
        case Verdict.NOT_REPRODUCED, _ if test.high <= answer.claim.margin:
            return ["the whole interval is at or below the margin"]
        case Verdict.NOT_REPRODUCED, _:
            return [f"not so: {says}" for says, met in answer.conditions.items() if met is False]
        case Verdict.SUPPORTED, Rule.DIFFERENCE:
            return ["effect beyond the margin, significant"]
        case (Verdict.SUPPORTED, Rule.EQUIVALENCE) | (Verdict.NO_DIFFERENCE, _):
            return ["the 90 % interval lies within the margin either way"]
        case Verdict.REFUTED, Rule.DIFFERENCE:
            return ["the whole interval is below zero"]
        case Verdict.REFUTED, Rule.EQUIVALENCE:
            return ["the whole interval lies beyond the margin"]
    if not math.isfinite(test.low):
        paired = answer.claim.against is None
        return [f"needs {PAIRED_SEEDS} runs" if paired else f"needs {LEAST_SEEDS} runs of each arm"]
    doubts = [f"unclear: {says}" for says, met in answer.conditions.items() if met is None]
    if answer.p_adjusted > ALPHA:
        doubts.append("not significant")
    if answer.claim.rule is not Rule.EQUIVALENCE and test.value < answer.claim.margin:
        doubts.append("effect below the margin")
    return doubts or [f"needs {LEAST_SEEDS} runs of each arm"]


def bases_table(found: Sequence[Answered]) -> ReportTable:
    """One row a claim and basis."""
    given = [answer for _, _, own in found for answer in own]
    compared = [arm for arm in ClaimArm if any(arm in (a.claim.first, a.claim.against) for a in given)]
    return ReportTable("Every basis", [_basis_row(answer, compared) for answer in given])


def _basis_row(answer: ClaimResult, compared: Sequence[ClaimArm]) -> dict[str, str]:
    marks = {True: "yes", False: "no", None: "unclear"}
    effect, interval = _effect(answer)
    conditions = "; ".join(f"{says}: {marks[met]}" for says, met in answer.conditions.items())
    return {
        "claim": answer.claim.title,
        "at equal": answer.basis.label,
        **{arm.value: _shown(answer.means.get(arm)) for arm in compared},
        "effect": effect,
        "95 % interval": interval,
        "g": _shown(hedges_g(answer)),
        "p": UNKNOWN if answer.test is None else f"{answer.test.p:.3g}",
        "p, Holm": f"{answer.p_adjusted:.3g}",
        "conditions": conditions or UNKNOWN,
        "verdict": answer.verdict.value,
    }


def _effect(answer: ClaimResult) -> tuple[str, str]:
    test = answer.test
    if test is None:
        return UNKNOWN, UNKNOWN
    if answer.claim.unit in SHARES:
        return f"{signed(100 * test.value, 1)} points", _interval(test, 100.0)
    return f"{_shown(test.value)} {answer.claim.unit}", _interval(test)


def _interval(test: Test, scale: float = 1.0) -> str:
    ends = (scale * test.low, scale * test.high)
    if not any(map(math.isfinite, ends)):  # too few seeds to bound it
        return UNKNOWN
    return " to ".join(_shown(end) if math.isfinite(end) else "none" for end in ends)


def effect_on(answer: ClaimResult) -> str:
    """A claim's effect with its interval, at equal budgets of one basis."""
    return f"{_bounded(*_effect(answer))} at equal {SHORT[answer.basis]}"


def _bounded(value: str, interval: str) -> str:
    return value if interval == UNKNOWN else f"{value} ({interval})"


def difference(first: Sequence[float], second: Sequence[float]) -> str:
    """Difference of the means of first and second values, with its exact 95 % interval."""
    if not first or not second:
        return UNKNOWN
    test = two_samples(first, second)
    return _bounded(_shown(test.value), _interval(test))


def _shown(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g}".replace("-", MINUS)


def arms_table(results: Results, basis: Basis) -> ReportTable:
    """Every arm over the budget at which the claims are answered; an arm that spends less has no row."""
    claims = {claim.statistic: claim for family in results.families for claim in family.claims}
    compared = [claim for claim in claims.values() if not claim.oscillation]
    both = [*results.of(results.population), *results.of(results.rival)]
    if not both:
        return ReportTable(f"At equal {basis.label}", [])
    budget = common_budget(both, basis)
    rows = []
    for arm in results.arms:
        runs = results.of(arm)
        if runs and common_budget(runs, basis) >= budget * (1 - 1e-9):
            own = [window(run, basis, budget) for run in runs]
            row = {"arm": arm, "seeds": str(len(runs))}
            for claim in compared:
                values = [value for run in own if (value := claim.statistic(run)) is not None]
                row[f"{claim.key.replace('_', ' ')}, {claim.unit}"] = spread(values)
            rows.append(row)
    return ReportTable(f"At equal {basis.label}: {budget:,.0f}", rows)


def spread(values: Sequence[float]) -> str:
    """The mean, and between which values it lies."""
    if len(set(values)) < 2:
        return _shown(values[0] if values else None)
    return f"{_shown(sum(values) / len(values))} ({_shown(min(values))} to {_shown(max(values))})"


def benchmarks_table(results: Results) -> ReportTable:
    """Newest held-out score by benchmark: those who solve, averaged over slots and seeds, beside the base."""
    names = sorted(
        {
            value.measure
            for run in results.runs
            for value in run.values
            if value.measure == HELD_OUT or value.measure.startswith(f"{HELD_OUT}.")
        }
    )
    rows = []
    for arm in (BASE, *results.arms):
        runs = results.runs if arm == BASE else results.of(arm)
        row = {"arm": arm}
        for name in names:
            scores = [
                series[max(series)]
                for run in runs
                for part in ([BASE] if arm == BASE else run.solvers(name))
                if (series := run.series(name, part))
            ]
            title = "all" if name == HELD_OUT else name.removeprefix(f"{HELD_OUT}.")
            row[title] = percent(sum(scores) / len(scores)) if scores else UNKNOWN
        if runs:
            rows.append(row)
    return ReportTable("The last evaluation, by benchmark", rows, folded=False)


def runs_table(results: Results) -> ReportTable:
    """The runs that every figure comes from."""
    rows = [
        {
            "run": run.origin.name,
            "generations": str(run.origin.config["run"]["generations"]),
            "in stages and evaluations": seconds(run.origin.seconds),
            "code revision": ", ".join(run.origin.code_revisions),
            "stage versions": " ".join(
                f"{name} {number}" for name, number in run.origin.stage_versions.items()
            ),
        }
        for run in results.runs
    ]
    return ReportTable("Runs", rows, folded=False)
