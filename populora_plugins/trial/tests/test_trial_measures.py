"""Shares of a trial: attempts at one problem are alike, so their interval is over problems."""

from __future__ import annotations

import numpy as np
import pytest
from command import populora

from populora_core.problems.verdicts import AttemptVerdict
from populora_plugins.trial import report
from populora_plugins.trial.trial import GROUP, Ability, Measure, TypeTrial


def readable(counts: list[int]) -> Measure:
    """The measure of readable answers where so many of each problem's group can be read."""
    groups = [
        [AttemptVerdict.WRONG] * read + [AttemptVerdict.FORMAT_ERROR] * (GROUP - read) for read in counts
    ]
    (found,) = (each for each in TypeTrial("code_o", groups=groups).shares() if "readable" in each.name)
    return found


def width(measure: Measure) -> float:
    low, high = measure.interval
    return high - low


def test_attempts_that_fail_together_tell_less_than_those_that_fail_apart() -> None:
    together, apart = readable([0] * 3 + [GROUP] * 35), readable([GROUP - 1] * 24 + [GROUP] * 14)
    assert (together.hits, together.total) == (apart.hits, apart.total) == (280, 304)
    plain = Measure("", 280, 304, 0.95)
    assert apart.interval == plain.interval
    assert width(together) > 2 * width(plain)
    whole = Measure("", 35, 38, 0.95)  # a problem is then a single observation
    assert together.interval == pytest.approx(whole.interval, abs=0.01)


def test_a_base_that_writes_readable_answers_passes_by_many_problems_alone() -> None:
    assert readable([GROUP] * 38).ability is readable([GROUP] * 37 + [GROUP - 1]).ability is Ability.CAN
    assert readable([GROUP] * 10).ability is Ability.TOO_FEW, "eighty attempts, but at ten problems"
    assert Measure("", 80, 80, 0.95).ability is Ability.CAN
    assert readable([0] * 38).ability is Ability.CANNOT
    assert readable([]).interval == (0.0, 1.0)


def test_a_base_at_the_gate_seldom_passes_it_by_problems_that_are_alike() -> None:
    """True shares of .95, and the readability of problems apart: a correlation of .14 within a group."""
    source = np.random.default_rng(0)
    spread = 1 / 0.14 - 1
    drawn = source.binomial(GROUP, source.beta(0.95 * spread, 0.05 * spread, (500, 38)))
    found = [readable(counts) for counts in drawn.tolist()]
    plain = [Measure(each.name, each.hits, each.total, each.least) for each in found]
    passed, before = (sum(each.ability is Ability.CAN for each in own) for own in (found, plain))
    assert passed <= 500 * 0.025 < before


@pytest.mark.parametrize(("options", "kinds"), [((), ("code_o",)), (("--full",), report.TYPES)])
def test_a_full_trial_is_of_every_type(
    options: tuple[str, ...], kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def tried(base: str, dialect: str | None, kinds: object, full: bool, *others: object) -> Ability:
        asked.extend((kinds, full))
        return Ability.CAN

    monkeypatch.setattr(report, "try_base", tried)
    assert populora("try", "--base", "tiny", *options).returncode == 0
    assert asked == [kinds, bool(options)]
