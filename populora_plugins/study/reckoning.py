"""Cost and power of a study: core hours, and power by simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from populora_plugins.study.claims import level
from populora_plugins.study.config import StudyConfig
from populora_plugins.study.judgement import Claim, Rule, Verdict, decide
from populora_plugins.study.statistics import equivalence, one_sample, two_samples
from populora_plugins.study.summary import Summary


@dataclass(frozen=True, slots=True)
class ArmCost:
    """Cost of an arm.

    Attributes:
        seconds: of one core, of one generation.
        measured: whether these are finished runs', evaluations included, or the study's file says so.
    """

    arm: str
    runs: int
    generations: int
    seconds: float
    measured: bool

    @property
    def hours(self) -> float:
        return self.runs * self.generations * self.seconds / 3600.0

    def __str__(self) -> str:
        source = "measured" if self.measured else "as its file says"
        return (
            f"{self.arm}: {self.runs} runs of {self.generations} generations of {self.seconds:.1f} s "
            f"({source}), {self.hours:.1f} core hours"
        )


def costs(study: StudyConfig, finished: Sequence[Summary]) -> Iterator[ArmCost]:
    """Yield the cost of every arm that has a finished run, or whose file gives the seconds of a generation."""
    for arm in study.arms:
        own = [run.origin.seconds for run in finished if run.origin.arm == arm.name]
        seconds = sum(own) / len(own) / arm.generations if own else arm.core_seconds
        if seconds is not None:
            yield ArmCost(arm.name, len(arm.seeds), arm.generations, seconds, bool(own))


def power(
    effect: float,
    margin: float,
    spreads: tuple[float, float | None],
    seeds: int,
    claims: int,
    rng: np.random.Generator,
    draws: int = 400,
) -> dict[Verdict, float]:
    """Probability of each verdict on a claim of difference, corrected as the most significant of its family is.

    Args:
        effect: what is true.
        spreads: standard deviations over seeds, normal, of both arms; None for a test of one sample.
        claims: of the family.
    """
    claim = Claim("drawn", "", "", "", "", level(""), margin, rule=Rule.DIFFERENCE)
    found: Counter[Verdict] = Counter()
    for _ in range(draws):
        groups = [rng.normal(effect, spreads[0], seeds)]
        if spreads[1] is not None:
            groups.append(rng.normal(0.0, spreads[1], seeds))
        compare = two_samples if len(groups) == 2 else one_sample
        test = compare(*groups)
        p = min(1.0, claims * test.p)
        found[decide(claim, test, p, [], equivalence(compare, margin, *groups))] += 1
    return {verdict: count / draws for verdict, count in found.items()}
