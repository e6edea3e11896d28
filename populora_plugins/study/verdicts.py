"""The table of verdicts: computed from a folder of summaries, kept beside them as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from populora_core.support.durable import write_atomically
from populora_core.support.errors import StudyError
from populora_core.support.received import read_json
from populora_plugins.study.budget import EARLY, LATE, Basis
from populora_plugins.study.claims import PAPER
from populora_plugins.study.config import StudyConfig
from populora_plugins.study.frontier import FRONTIER, RESTATED
from populora_plugins.study.judgement import (
    ALPHA,
    DEGREE,
    LEAST_CHANGES,
    LEAST_SEEDS,
    SHUFFLES,
    Claim,
    ClaimArm,
    ClaimResult,
    Family,
    Rule,
    Verdict,
    answers,
    overall,
)
from populora_plugins.study.population import PAYS
from populora_plugins.study.real import REAL
from populora_plugins.study.summary import Summary, read_summaries

VERDICTS = "verdicts.json"
FAMILIES = {"paper": (PAPER,), "frontier": (FRONTIER, RESTATED), "population": (PAYS,), "real": (REAL,)}
"""Families of claims that a study judges, by its key `claims`: its own family first."""
Answered = tuple[Claim, Verdict, list[ClaimResult]]
"""A claim with its verdict and the answers on each basis."""


COMPARED = ("frozen", "pair", "islands", "averaged", "teachers", "format", "pool")
NAMED = ("name", "population", "solo", "claims", *COMPARED)
"""Fields of the study in the table of verdicts; those in UNSAID are left out at their defaults."""
UNSAID = {"claims": "paper"} | dict.fromkeys(COMPARED) | {"solo": None}


@dataclass(frozen=True, slots=True)
class Results:
    """A folder of results, read.

    Attributes:
        population, solo, and those of COMPARED: names of the arms that claims compare.
        arms: all arms of the study, in its order.
        planned: runs that the study makes; 0 where all are there.
        claims: key of its families.
    """

    name: str
    population: str
    arms: tuple[str, ...]
    runs: tuple[Summary, ...]
    planned: int = 0
    solo: str | None = None
    claims: str = "paper"
    frozen: str | None = None
    pair: str | None = None
    islands: str | None = None
    averaged: str | None = None
    teachers: str | None = None
    format: str | None = None
    pool: str | None = None

    @property
    def families(self) -> tuple[Family, ...]:
        return FAMILIES[self.claims]

    @property
    def rival(self) -> str:
        """The arm beside the population's where one is shown: the single agent, or else the pair or the pool."""
        return self.solo or self.pair or self.pool or self.population

    @property
    def compared(self) -> dict[ClaimArm, str]:
        """The name that each arm of the claims has in this study."""
        names = {arm: getattr(self, arm.value) for arm in ClaimArm}
        return {arm: name for arm, name in names.items() if name is not None}

    def of(self, arm: str) -> list[Summary]:
        return [run for run in self.runs if run.origin.arm == arm]

    def answers(self, family: Family | None = None) -> list[Answered]:
        """Every claim of a family, the study's own where none is named."""
        claims = (family or self.families[0]).claims
        arms = {arm: self.of(name) for arm, name in self.compared.items()}
        given = [answer for basis in Basis for answer in answers(claims, arms, basis)]
        by_claim = [[answer for answer in given if answer.claim is claim] for claim in claims]
        return [(claim, overall(own), own) for claim, own in zip(claims, by_claim, strict=True)]


def write_verdicts(study: StudyConfig) -> Results:
    """Compute the verdicts from the summaries that are there, and write them beside these.

    Raises:
        StudyError: the summaries were not made by one code.
        ArtifactError: one cannot be read, or the table cannot be written.
    """
    runs = read_summaries(study.results) if study.results.is_dir() else []
    named = {key: getattr(study, key) for key in NAMED}
    planned = sum(len(arm.seeds) for arm in study.arms)
    named["planned"] = planned if len(runs) < planned else 0
    results = Results(arms=tuple(arm.name for arm in study.arms), runs=tuple(runs), **named)
    require_alike(runs)
    study.results.mkdir(parents=True, exist_ok=True)
    write_atomically(study.results / VERDICTS, json.dumps(as_json(results), indent=1) + "\n")
    return results


def read_results(folder: Path) -> Results:
    """A folder of results as `write_verdicts` left it.

    Raises:
        StudyError: there is none, or its summaries were not made by one code.
        ArtifactError: a summary cannot be read.
    """
    try:
        study = read_json(folder / VERDICTS)["study"]
        named = {key: study[key] for key in (*NAMED, "planned") if key in study}
        arms = tuple(study["arms"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise StudyError(
            f"{folder} holds no results of a study",
            expected=f"a folder with {VERDICTS} and a summary of each finished run",
            got=str(error),
            fix="populora study --config FILE makes them; `results` in FILE names the folder",
        ) from error
    runs = read_summaries(folder)
    require_alike(runs)
    return Results(arms=arms, runs=tuple(runs), **named)


def require_alike(runs: Sequence[Summary]) -> None:
    """Raise StudyError unless all runs were made on the same base and suite, by the same versions of stages.

    As in `Origin.stale`, a stage that only one of two runs knows is passed over.
    """
    for one, other in combinations([run.origin for run in runs], 2):
        both = sorted(one.stage_versions.keys() & other.stage_versions.keys())
        for what in ("stage_versions", "base_digest", "suite", "evaluate_every"):
            first, second = getattr(one, what), getattr(other, what)
            if what == "stage_versions":
                first, second = ({stage: of[stage] for stage in both} for of in (first, second))
            if first != second:
                raise StudyError(
                    f"{other.name} and {one.name} cannot be compared: {what} differ",
                    expected=str(first),
                    got=str(second),
                    fix="populora study --config FILE --again makes again what is out of date",
                )


def as_json(results: Results) -> dict[str, Any]:
    """The table, as it is kept."""
    return {
        "study": {
            **{key: getattr(results, key) for key in NAMED if getattr(results, key) != UNSAID.get(key)},
            "arms": list(results.arms),
            **({"planned": results.planned} if results.planned else {}),
        },
        "rules": {
            "alpha": ALPHA,
            "least_seeds": LEAST_SEEDS,
            "early": EARLY,
            "late": LATE,
            "trend_degree": DEGREE,
            "shuffles": SHUFFLES,
            "least_sign_changes": LEAST_CHANGES,
        },
        "stage_versions": results.runs[0].origin.stage_versions if results.runs else {},
        "code_revisions": sorted({code for run in results.runs for code in run.origin.code_revisions}),
        "runs": [run.origin.name for run in results.runs],
        **{family.key: _family(results.answers(family)) for family in results.families},
    }


def _family(answered: Sequence[Answered]) -> list[dict[str, Any]]:
    return [
        {
            "key": claim.key,
            "title": claim.title,
            "verdict": verdict,
            "margin": claim.margin,
            "unit": claim.unit,
            "bases": {answer.basis.value: _answer(answer) for answer in own},
        }
        for claim, verdict, own in answered
    ]


def hedges_g(answer: ClaimResult) -> float | None:
    """The effect size of two arms; of one sample, as for an oscillation, g would be another quantity."""
    two = answer.claim.against is not None and not answer.claim.oscillation
    return answer.test.effect if answer.test and two else None


def _answer(answer: ClaimResult) -> dict[str, Any]:
    test = answer.test
    return {
        "verdict": answer.verdict,
        "effect": _number(test.value) if test else None,
        "low": _number(test.low) if test else None,
        "high": _number(test.high) if test else None,
        "hedges_g": _number(hedges_g(answer)),
        "p": test.p if test else None,
        "p_adjusted": answer.p_adjusted,
        **({} if answer.claim.rule is Rule.REPRODUCTION else {"p_same": answer.p_same}),
        "means": {arm.value: _number(mean) for arm, mean in answer.means.items()},
        "conditions": dict(answer.conditions),
    }


def _number(value: float | None) -> float | None:
    """Ten significant digits, which every machine agrees on; null where there is no end."""
    return float(f"{value:.10g}") if value is not None and math.isfinite(value) else None
