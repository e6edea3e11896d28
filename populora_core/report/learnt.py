"""A run's gains in plain words: solvers scored beside the base. No cause is named that was not measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from populora_core.benchmarks.metrics import CONFIDENCE, Interval
from populora_core.benchmarks.scores import BASE, NOTHING
from populora_core.benchmarks.strata import level_of
from populora_core.report.scored import (
    Scored,
    Yardstick,
    answers,
    scored,
    telling_nothing,
    validities,
    yardsticks,
)
from populora_core.report.text import in_points, listed, percent, signed
from populora_core.store.catalogue import Catalogue
from populora_core.store.rows import EvaluationItemRow

TEXTS = """
SELECT prompt, completion FROM evaluation_items
WHERE generation = ? AND suite = ? AND benchmark = ? AND temperature = ? AND item_id = ? AND member_id = ?
      AND sample_index = 0
"""


@dataclass(frozen=True, slots=True)
class Won:
    """A problem that the base gets wrong and a solver right: prompt, completions, and the answers read from them."""

    prompt: str
    base: str
    solver_id: str
    solver: str
    base_answer: str | None
    solver_answer: str | None


def points(gain: Interval) -> str:
    """A difference of two scores with its interval."""
    low, high = (signed(100 * part, 0) for part in (gain.low, gain.high))
    return f"{in_points(gain.value)} ({low} to {high})"


def score_lines(directory: Path, generation: int) -> list[str]:
    """Measurements after a generation, a line each."""
    return lines_by_generation(directory, generation).get(generation, [])


def lines_by_generation(directory: Path, generation: int | None = None) -> dict[int, list[str]]:
    """Measurements, a line each, by the generation after which they were taken.

    Args:
        generation: this one alone; None for all, each read once.
    """
    found: dict[int, list[str]] = defaultdict(list)
    for item in scored(directory, generation):
        found[item.generation].append(score_line(item))
    for taken in yardsticks(directory, generation):
        found[taken.generation].append(yardstick_line(taken))
    for item in validities(directory, generation):
        found[item.generation].append(validity_line(item))
    return found


def yardstick_line(item: Yardstick) -> str:
    """One line on the first and the newest problems."""
    return (
        f"yardstick: base {percent(item.newest.base.value)} of the newest problems, {percent(item.first.base.value)} "
        f"of the first; solvers {percent(item.newest.solvers.value)} and {percent(item.first.solvers.value)}"
    )


def score_line(item: Scored) -> str:
    """One line on held-out problems."""
    return (
        f"held-out ({item.suite}): solvers {percent(item.solvers.value)}, base {percent(item.base.value)}, "
        f"{points(item.gain)}"
    )


def validity_line(item: Scored) -> str:
    """One line on what teachers and base make of the same references."""
    return (
        f"valid proposals: teachers {percent(item.solvers.value)}, base {percent(item.base.value)} with the same "
        f"references, {points(item.gain)}"
    )


def lines(directory: Path) -> list[str]:
    """The run's gains in a few sentences; empty if the solvers were never scored after an update."""
    return [line for part in (*measured(directory), validity(directory)) for line in part]


def measured(directory: Path) -> list[list[str]]:
    """Sentences on held-out problems, by level first, and on the yardstick; empty where neither was taken."""
    taken = yardsticks(directory)
    return [part for part in (_held_out(directory), told(taken[-1]) if taken else []) if part]


def brief(directory: Path) -> str:
    """The same in one line, for a list of runs; empty where neither was taken."""
    taken, found = yardsticks(directory), _after_updates(directory)
    said = [level_claim(found[-1])] if found else []
    said += [yardstick_claim(taken[-1])] if taken else []
    said += [held_out_claim(found[-1])] if found else []
    return " ".join(f"{claim}." for claim in said if claim)


def yardstick_claim(item: Yardstick) -> str:
    """A claim on whether problems got harder and solvers better."""
    problems, solvers = _ways(item)
    better = signed(100 * item.newest.gain.value, 0)
    return f"{problems} ({in_points(item.harder().value)} for the base). {solvers} ({better})"


def _ways(item: Yardstick) -> tuple[str, str]:
    """The ways that the problems and the solvers went."""
    problems = "Problems got easier", "Problems got harder", "Whether problems got harder cannot be told yet"
    solvers = "Solvers got better", "Solvers got worse", "Solvers are no better than the base beyond chance"
    return way(item.harder(), *problems), way(item.newest.gain, *solvers)


def held_out_claim(item: Scored) -> str:
    """A claim on whether solvers are better than the base on problems that no one trains on."""
    where = "" if item.own else f" of another suite, {item.suite},"
    return f"On held-out problems{where} solvers are {_better(item)} than the base: {points(item.gain)}"


def _better(item: Scored) -> str:
    return way(item.gain, "better", "worse", "no better for sure")


def level_claim(item: Scored) -> str:
    """A claim on the first level of which the base solves less than half; empty if the suite has no levels."""
    name = item.first_hard_level()
    if name is None:
        return ""
    of = item.by_stratum[name]
    return (
        f"Of {name}, the first that the base solves less than half of, solvers get {percent(of.solvers.value)} right "
        f"({percent(of.solvers.low)} to {percent(of.solvers.high)}), the base {percent(of.base.value)}; "
        f"{of.problems} problems"
    )


def fallen_most(item: Scored) -> str:
    """The level at which solvers lie furthest below the base; empty where they do at none.

    The lowest of several lies low by chance too, so its fall is sure only by the interval that allows for all of them.
    """
    levels = {name: of for name, of in item.by_stratum.items() if level_of(name) is not None}
    name = min(levels, key=lambda name: levels[name].gain.value, default=None)
    if name is None or levels[name].gain.value >= 0.0:
        return ""
    of_all = levels[name].gain_within(1 - (1 - CONFIDENCE) / len(levels))
    sure = "" if of_all.high < 0 else ", which may be chance"
    return f"Of all levels {name} fell most: {points(levels[name].gain)} against the base{sure}"


def told(item: Yardstick) -> list[str]:
    """Sentences on the yardstick: whether problems got harder, and whether solvers got better."""
    problems, solvers = _ways(item)
    newest, first = percent(item.newest.base.value), percent(item.first.base.value)
    return [
        f"{problems}: the base, which never changes, solves {newest} of the newest and {first} of the first, "
        f"{points(item.harder())}.",
        f"{solvers}: on the newest problems they solve {percent(item.newest.solvers.value)}, the base {newest}, "
        f"{points(item.newest.gain)}.",
    ]


def way(change: Interval, up: str, down: str, unclear: str) -> str:
    """Pick the wording for a change, by the side of zero that its whole interval is on."""
    return up if change.low > 0 else down if change.high < 0 else unclear


def _after_updates(directory: Path) -> list[Scored]:
    """The scores on held-out problems; none where the founders alone were scored."""
    found = scored(directory)
    return found if found and found[-1].generation else []


def _held_out(directory: Path) -> list[str]:
    found = _after_updates(directory)
    if not found:
        return [f"The suite {suite} was asked, but {NOTHING}." for suite in telling_nothing(directory)]
    last = found[-1]
    return [
        *(f"{claim}." for claim in (level_claim(last), fallen_most(last)) if claim),
        f"On held-out problems ({last.suite}) the base solves {percent(last.base.value)}; "
        f"the population solved {_course(_few(found))}.",
        f"Solvers are {_better(last)} than the base: {points(last.gain)}.",
    ]


def _few(found: Sequence[Scored]) -> Sequence[Scored]:
    """The scores that a sentence has room for: all of four, else the first, the middle one and the last."""
    return found if len(found) <= 4 else [found[0], found[len(found) // 2], found[-1]]


def _course(found: Sequence[Scored]) -> str:
    scores = ", ".join(f"{percent(item.solvers.value)} after {item.generation}" for item in found)
    return f"{scores} generation{'s' * (found[-1].generation != 1)}"


def validity(directory: Path) -> list[str]:
    """A sentence on the valid proposals of teachers and base; empty where it was never taken."""
    found = validities(directory)
    if not found:
        return []
    shown = _few(found)
    base = listed([percent(item.base.value) for item in shown])
    return [
        f"Of the teachers' proposals {_course(shown)} were valid; of the base's, with the same references, "
        f"{base}: {points(found[-1].gain)}" + (" at last." if len(found) > 1 else ".")
    ]


def won(directory: Path) -> Won | None:
    """A problem of the last evaluation that the base gets wrong and the solvers right.

    It is from the stratum with the largest gain, so that it shows a skill and not a lucky guess.
    """
    found = scored(directory)
    if not found:
        return None
    rows = [
        row
        for row in answers(directory, found[-1])
        if row["sample_index"] == 0 and row["correct"] is not None
    ]
    solvers = [row for row in rows if row["member_id"] != BASE]
    base = {_asked(row): row for row in rows if row["member_id"] == BASE}
    gains: dict[str, float] = defaultdict(float)
    right: dict[tuple[object, ...], int] = defaultdict(int)
    for row in solvers:
        if _asked(row) in base:
            gains[row["stratum"]] += bool(row["correct"]) - bool(base[_asked(row)]["correct"])
            right[_asked(row)] += bool(row["correct"])
    shown = [
        row for row in solvers if row["correct"] and _asked(row) in base and not base[_asked(row)]["correct"]
    ]
    if not shown:
        return None
    best = max(shown, key=lambda row: (gains[row["stratum"]], right[_asked(row)], row["item_id"]))
    with Catalogue(directory) as catalogue:
        own, other = (
            catalogue.rows(TEXTS, [best["generation"], best["suite"], *_asked(best), who])[0]
            for who in (best["member_id"], BASE)
        )
    return Won(
        own["prompt"],
        other["completion"],
        best["member_id"],
        own["completion"],
        base[_asked(best)]["answer"],
        best["answer"],
    )


def _asked(row: EvaluationItemRow) -> tuple[object, ...]:
    """The problem of an answer: an id says which within its benchmark, which may be asked at two temperatures."""
    return row["benchmark"], row["temperature"], row["item_id"]
