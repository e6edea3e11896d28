"""A run's headline in words, and notes for the reader, computed from the run's rows.

A change of the solve rate counts as one only beyond its 95 % interval over problems; below that the note says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from shlex import quote
from typing import Literal

from populora_core.report import advice, metrics
from populora_core.report.figures import Figures
from populora_core.report.guard import falls
from populora_core.report.history import earlier_history
from populora_core.report.learnt import brief, measured, validity
from populora_core.report.scored import scored
from populora_core.report.series import (
    changed,
    last_generations,
    span,
    totals,
    went,
    where,
    within,
)
from populora_core.report.text import listed, percent, plain, seconds, short_id
from populora_core.stages.table import typed_name
from populora_core.store import sql

MANY_UNSOLVED, MANY_SOLVED, MANY_DUPLICATES, MANY_OUTAGES = 0.6, 0.5, 0.3, 0.01
FALL = 0.7  # what is left of a figure whose fall is worth a warning
LONG = 2.0  # times the median generation


@dataclass(frozen=True, slots=True)
class Note:
    """One thing to look at.

    Attributes:
        kind: watch (something may be wrong), good, or note (neither).
        section: the id of the section whose plots show it.
        command: what to do next, to be copied; empty for nothing.
    """

    kind: Literal["watch", "good", "note"]
    text: str
    section: str
    command: str = ""


FOUNDED = "The population is founded; no generation is done yet."
UNMEASURED = (
    "Whether problems got harder or students better was not measured: scores beside the base say it "
    "(populora evaluate RUN --suite yardstick)."
)


def headline(figures: Figures) -> list[str]:
    """The state of the run in a few short paragraphs: what was measured, then how training went.

    Whether problems got harder or students better is said where it was measured alone: a solve rate cannot tell.
    """
    if figures.last == 0:
        return [FOUNDED]
    done = (
        f"All {figures.done} generations are done."
        if figures.done == figures.target
        else f"{figures.done} of {figures.target} generations are done."
    )
    found = [" ".join(part) for part in measured(figures.run.directory)] or [UNMEASURED]
    beside = [*earlier_history(figures.run), *validity(figures.run.directory)]
    return [f"{done} {found[0]}", *found[1:], *beside, _training(figures)]


def one_line(figures: Figures) -> str:
    """The headline of a run in a list of runs."""
    if figures.last == 0:
        return FOUNDED
    return brief(figures.run.directory) or _training(figures)


def _training(figures: Figures) -> str:
    """A sentence on how much of the teachers' problems is solved, and how much of it teaches."""
    before, now = metrics.SOLVE_RATE.ends(figures, None)
    if now is None:
        return f"No problem of the last {span(figures)} was solved or failed; the verdicts say why."
    trend = "with none judged at first" if before is None else went(percent, before, now)
    if figures.last < 3:
        trend = "too early to speak of a trend"
    learnable = metrics.LEARNABLE.mean(figures, None, last_generations(figures))
    share = percent(learnable.mean if learnable else 0.0)
    return (
        f"Students now solve {percent(now.mean)} of what their teachers ask, {trend}. "
        f"{share} of the newest problems teach: solved sometimes, but not always."
    )


def notes(figures: Figures) -> list[Note]:
    """Everything worth a look, warnings first."""
    if figures.last == 0:
        return []
    found = [
        *_fallen(figures),
        *_types(figures),
        *_collapse(figures),
        *_outages(figures),
        *_idle(figures),
        *_children(figures),
        *_costs(figures),
    ]
    order = ("watch", "good", "note")
    return sorted(found, key=lambda note: order.index(note.kind))


def _fallen(figures: Figures) -> Iterable[Note]:
    """Notes on what the guard marks at each role's newest evaluation."""
    for fall in falls(figures.run.directory):
        if fall.newest:
            yield Note("watch", f"Guard: {fall}.", "evaluations")


def _types(figures: Figures) -> Iterable[Note]:
    """Types that no one or everyone solves, and types whose solve rate changed."""
    config = figures.run.config
    solve = config.solve
    pays_softly = advice.rewards(config) != {"one_minus_p"}
    paid = f" Pay teachers for harder ones{advice.stays(config, 'teacher_reward')}:"
    newest = last_generations(figures)
    for problem_type in figures.types():
        if not within(where(figures["figures_type"], problem_type=problem_type), newest):
            continue  # it is no longer asked
        name = plain(problem_type)
        before, now = metrics.SOLVE_RATE.ends(figures, problem_type)
        never, learnable = (
            metric.mean(figures, problem_type, newest) for metric in (metrics.NEVER, metrics.LEARNABLE)
        )
        if now is None or never is None or learnable is None:
            text = f"{name}: no valid problem in the last {span(figures)}. See why they are refused:"
            query = f"FROM proposals WHERE problem_type = {sql.text(problem_type)} ORDER BY generation DESC LIMIT 5"
            yield Note("watch", text, "verdicts", _command(figures, "query", _shown(query)))
            continue
        always = 1.0 - never.mean - learnable.mean
        if never.mean > MANY_UNSOLVED:
            more = min(2 * solve.attempts, 99 - solve.extra_attempts)
            rises = more > solve.attempts
            yield Note(
                "watch",
                f"{name} is stalled: no one solved {percent(never.mean)} of its problems in the last {span(figures)}, "
                "so most of them teach nothing."
                + (" More attempts find the rare right one:" if rises else ""),
                "learning",
                _fork(figures, f"solve.attempts={more}") if rises else "",
            )
        elif always > MANY_SOLVED:
            yield Note(
                "watch",
                f"{name} is too easy: {percent(always)} of its problems in the last {span(figures)} were always "
                "solved." + (paid if pays_softly else ""),
                "learning",
                _fork(figures, advice.reward(config, "one_minus_p")) if pays_softly else "",
            )
        if before is not None and figures.last >= 3 and changed(before, now):
            rose = changed(before, now) > 0
            yield Note(
                "good" if rose else "note",
                f"{name}: solve rate {'up' if rose else 'down'} from {percent(before.mean)} to {percent(now.mean)} "
                f"between the first and the last {span(figures)}.",
                "learning",
            )


def _collapse(figures: Figures) -> Iterable[Note]:
    """Fewer distinct programs, more duplicates, policies that say one thing."""
    config = figures.run.config
    warmer, slower = (advice.stays(config, name) for name in ("temperature", "learning_rate"))
    if fell := _fell(figures, metrics.PROGRAMS):
        yield Note(
            "watch",
            f"Distinct programs fall: {fell[0]:.0f} per generation now, {fell[1]:.0f} at first. "
            f"Teachers may be collapsing onto few ideas. Warmer proposals vary more{warmer}:",
            "complexity",
            _warmer(figures),
        )
    duplicates = metrics.DUPLICATES.mean(figures, None, last_generations(figures))
    if duplicates and duplicates.mean > MANY_DUPLICATES:
        yield Note(
            "watch",
            f"{percent(duplicates.mean)} of the newest proposals repeat an earlier problem. "
            f"Warmer ones do less{warmer}:",
            "verdicts",
            _warmer(figures),
        )
    for role in figures.learners():
        fell = _fell(figures, metrics.ENTROPY, role)
        if fell and (role == "teacher" or not _has_learnt(figures)):
            yield Note(
                "watch",
                f"The {role}s' entropy falls: {fell[0]:.2f} nats per token now, {fell[1]:.2f} at first. "
                f"Smaller steps keep it{slower}:",
                "policies",
                _fork(figures, advice.learning_rate(config, role, 0.5)),
            )
    newest = within(figures["figures_generation"], last_generations(figures))
    if figures.last >= 3 and newest and not sum(row["new_cells"] for row in newest):
        yield Note(
            "note",
            f"No new cell of the problem space in the last {span(figures)}; "
            f"{newest[-1]['cumulative_cells']} are reached.",
            "complexity",
        )


def _has_learnt(figures: Figures) -> bool:
    """True if the members that solve score above the base: they grow sure of what they have learnt."""
    scores = scored(figures.run.directory)
    return bool(scores) and scores[-1].gain.low > 0.0


def _outages(figures: Figures) -> Iterable[Note]:
    for what in ("proposals", "attempts"):
        rows = figures["figures_generation"]
        whole, judged = (sum(row[key] for row in rows) for key in (what, f"{what}_judged"))
        lost = 1 - judged / whole if whole else 0.0
        if lost > MANY_OUTAGES:
            yield Note(
                "watch",
                f"{percent(lost)} of all {what} met a failing sandbox; they earn nothing and count for no one.",
                "verdicts",
                "populora doctor",
            )


def _shown(query: str) -> str:
    """A query as a word for a shell: easy to read and edit, unless it holds what a shell would act on."""
    return f'"{query}"' if re.fullmatch(r"[\w =':.]+", query) else quote(query)


def _idle(figures: Figures) -> Iterable[Note]:
    """A note on the members that are not eligible to lead."""
    idle = where(figures["ratings"], generation=figures.last, eligible=False)
    if idle:
        who = listed([short_id(row["member_id"]) for row in idle])
        text = f"{who} brought nothing valid or correct lately and rank last. Look at one:"
        yield Note(
            "watch", text, "ratings", _command(figures, "inspect", f"--member {quote(idle[0]['member_id'])}")
        )


def _children(figures: Figures) -> Iterable[Note]:
    """Notes on whether evolution's children stay."""
    removed = {row["removed_id"]: row["generation"] for row in figures["evolutions"]}
    for role in figures.roles():
        made = where(figures["evolutions"], role=role)
        following = dict(pairwise(sorted({row["generation"] for row in made})))
        tested = [row for row in made if row["generation"] in following]
        gone = sum(row["child_id"] in removed for row in tested)
        stayed = sum(removed.get(row["child_id"]) != following[row["generation"]] for row in tested)
        if len(tested) >= 2 and gone == len(tested):
            yield Note(
                "watch",
                f"All {gone} {role} children that evolution brought in had to go at a later one: "
                "evolution has not improved this role yet. Give children longer to show what they can:",
                "evolution",
                _fork(figures, f"evolve.every={2 * figures.run.config.evolve.every}"),
            )
        elif tested:
            yield Note(
                "note",
                f"{stayed} of {len(tested)} {role} children outlived the next evolution.",
                "evolution",
            )


def _costs(figures: Figures) -> Iterable[Note]:
    played = [
        row for row in figures["stages"] if row["generation"] > 0 and ":" not in typed_name(row["stage"])
    ]
    of_stage = totals(played, "stage", "seconds")
    of_generation = totals(played, "generation", "seconds")
    whole = sum(of_generation.values())
    if not whole:
        return
    stage, most = max(of_stage.items(), key=lambda item: item[1])
    median = sorted(of_generation.values())[len(of_generation) // 2]
    yield Note(
        "note",
        f"A generation takes {seconds(median)} (median); {stage} is {percent(most / whole)} of the time.",
        "cost",
    )
    slow = [generation for generation, value in of_generation.items() if value > LONG * median]
    if slow:
        shown = [str(g) for g in slow[:5]] + ([f"{len(slow) - 5} more"] if len(slow) > 5 else [])
        yield Note(
            "watch",
            f"Generation{'s' * (len(slow) > 1)} {listed(shown)} took more than twice the median time.",
            "cost",
            _command(figures, "inspect", f"--generation {slow[0]}"),
        )


def _command(figures: Figures, name: str, options: str) -> str:
    """A command over the run."""
    return f"populora {name} {quote(str(figures.run.directory))} {options}"


def _fork(figures: Figures, setting: str) -> str:
    """The command that goes on from here with another setting, in a run of its own."""
    to = quote(f"{figures.run.directory}-fork")
    return _command(figures, "fork", f"--generation {figures.last} --to {to} --set {quote(setting)}")


def _warmer(figures: Figures) -> str:
    return _fork(figures, advice.temperature(figures.run.config, 1.2))


def _fell(figures: Figures, metric: metrics.Metric, part: str | None = None) -> tuple[float, float] | None:
    """The means over the last and over the first generations; None where they are not known, or no fall."""
    start, late = metric.ends(figures, part)
    if late and start and late.mean < FALL * start.mean:
        return late.mean, start.mean
    return None
