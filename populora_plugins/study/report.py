"""The report of a study: the table of claims first, then every measure over updates and over tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from populora_core.benchmarks.scores import BASE
from populora_core.report.charts import Plot, Series, line_plot
from populora_core.report.notes import Note
from populora_core.report.page import ReportSection, drawn, page
from populora_core.report.palette import GREY, Style
from populora_core.report.text import Format, number, percent, seconds, signed
from populora_core.support.durable import write_atomically
from populora_plugins.study.budget import Basis, common_budget, spent
from populora_plugins.study.drawings import arm_styles, deciders, forest, level_plots, score_over_training
from populora_plugins.study.frontier import SOLVED
from populora_plugins.study.judgement import LEAST_SEEDS, Verdict
from populora_plugins.study.outcomes import outcomes_table
from populora_plugins.study.summary import ALL, AVERAGE, HELD_OUT, Summary
from populora_plugins.study.tables import (
    arms_table,
    bases_table,
    benchmarks_table,
    claims_table,
    deciding,
    effect_on,
    runs_table,
)
from populora_plugins.study.verdicts import Answered, Results, read_results

REPORT = "report.html"
QUESTIONS = {
    "paper": "does co-evolution beat the single agent?",
    "frontier": "does the population push the frontier?",
    "population": "does a population pay for itself?",
    "real": "does self-play teach a pretrained model?",
}
JUDGED = (Verdict.SUPPORTED, Verdict.NO_DIFFERENCE, Verdict.REFUTED, Verdict.CANNOT_TELL)
WORDS = {
    "paper": (Verdict.REPRODUCED, Verdict.NOT_REPRODUCED, Verdict.CANNOT_TELL),
    "frontier": JUDGED,
    "population": JUDGED,
    "real": JUDGED,
}
"""The verdicts of each study's own family."""
SOURCE = "Every figure is computed from the summaries (Parquet) beside it; docs/study.md says how."


@dataclass(frozen=True, slots=True)
class Shown:
    """A measure that gets a plot."""

    title: str
    measure: str
    part: str
    unit: str
    form: Format = number
    zero: bool = True
    cumulative: bool = False


LEARNING = (
    Shown("Solve rate", "solve_rate", ALL, "attempts correct", percent),
    *(
        Shown(f"Solve rate: {kind}", "solve_rate", kind, "attempts correct", percent)
        for kind in ("code_o", "code_i", "code_f")
    ),
    Shown("Problems solved sometimes, not always", "learnable", ALL, "of new problems", percent),
    Shown("Valid proposals", "validity", ALL, "of proposals", percent),
    Shown("Reward of a proposal", "teacher_reward", ALL, "reward", signed),
    Shown("Reward of an attempt", "student_reward", ALL, "reward", signed),
)
COMPLEXITY = (
    Shown("AST depth", "ast_depth", ALL, "nodes", zero=False),
    Shown("Cyclomatic complexity", "cyclomatic_complexity", ALL, "paths", zero=False),
    Shown("Lines of code", "lines_of_code", ALL, "statements", zero=False),
    Shown("Variables", "variable_count", ALL, "names", zero=False),
    Shown("Level", "level", ALL, "statements that matter", zero=False),
    Shown("Executed steps", "executed_steps", ALL, "statements an input", zero=False),
)
DIVERSITY = (
    Shown("Coverage", "new_cells", ALL, "cells so far", cumulative=True),
    Shown("Novelty", "novelty", ALL, "new n-grams", percent),
    Shown("Distinct programs", "distinct_programs", ALL, "of a generation's problems", percent),
    Shown("Entropy of proposers", "entropy", "teacher", "nats per token"),
    Shown("Entropy of solvers", "entropy", "student", "nats per token"),
    Shown("Length of proposals", "proposal_length", ALL, "tokens"),
    Shown("Length of attempts", "attempt_length", ALL, "tokens"),
)
LUCK = (
    Shown("Chance of problems", "chance", ALL, "blind guesses right", percent),
    Shown("Problems with a chance above a fifth", "guessable", ALL, "of new problems", percent),
    Shown("Slack", "slack", ALL, "statements to leave out", percent),
)
PLAY = (
    Shown("Rating of teachers", "rating", "teacher", "mean mu", zero=False),
    Shown("Rating of students", "rating", "student", "mean mu", zero=False),
    Shown("Changes of the leading role", "lead_changes", ALL, "so far"),
    Shown("Spread between pairs", "pair_spread", ALL, "of solve rates", percent),
)
SECTIONS = (
    ("learning", "Do they learn, and does the solve rate swing?", LEARNING),
    ("complexity", "Do problems grow more complex?", COMPLEXITY),
    ("diversity", "Do they keep exploring?", DIVERSITY),
    ("luck", "Do teachers win by luck?", LUCK),
    ("play", "Who leads, and do pairs specialise?", PLAY),
)
TOTAL_SHOWN = (*LEARNING[:1], *COMPLEXITY[:4], DIVERSITY[0], DIVERSITY[3])


def write_report(folder: Path, output: Path | None = None) -> Path:
    """Write the report of a folder of results; returns where it is.

    Raises:
        StudyError: the folder holds no results, or they do not belong together.
        ArtifactError: a summary cannot be read, or the file cannot be written.
    """
    target = output or folder / REPORT
    write_atomically(target, render(read_results(folder)))
    return target


def render(results: Results) -> str:
    """The page."""
    question = QUESTIONS[results.claims]
    return page(
        f"Study {results.name}: {question}",
        [_card(results, results.answers())],
        [section for section in _sections(results) if not section.empty],
        SOURCE,
    )


def _card(results: Results, found: Sequence[Answered]) -> dict[str, Any]:
    others = len(results.runs) - sum(len(results.of(arm)) for arm in deciders(results))
    count = {verdict: sum(own == verdict for _, own, _ in found) for verdict in WORDS[results.claims]}
    tiles = [
        *((str(number_of), verdict.value) for verdict, number_of in count.items() if number_of),
        *((str(len(results.of(arm))), f"runs of {arm}") for arm in deciders(results)),
        *([(str(others), "runs of arms that describe")] if others else []),
        (seconds(sum(run.origin.seconds for run in results.runs)), "of processes in stages and evaluations"),
    ]
    return {
        "label": results.name,
        "headline": [*_answers(results.claims, found), _headline(results.claims, len(found), count)],
        "tiles": tiles,
        "notes": list(_notes(results)),
    }


def _answers(claims: str, found: Sequence[Answered]) -> list[str]:
    """The answers of a study with few claims, each with its number."""
    if claims == "paper":
        return []
    return [
        f"{claim.title}: {verdict.value}. {claim.measured.capitalize()}: {'; '.join(map(effect_on, shown))}."
        for claim, verdict, own in found
        if (shown := deciding(verdict, own))
    ]


def _headline(claims: str, number_of: int, count: Mapping[Verdict, int]) -> str:
    if claims == "paper":
        return (
            f"Of {number_of} claims of the paper, {_are(count[Verdict.REPRODUCED])} reproduced at this scale, "
            f"{_are(count[Verdict.NOT_REPRODUCED])} not, and of {count[Verdict.CANNOT_TELL]} it cannot tell."
        )
    return (
        f"Of {number_of} claims, {_are(count[Verdict.SUPPORTED])} supported, {_are(count[Verdict.REFUTED])} refuted, "
        f"in {count[Verdict.NO_DIFFERENCE]} there is no difference, and of {count[Verdict.CANNOT_TELL]} it cannot tell."
    )


def _are(count: int) -> str:
    return f"{count} is" if count == 1 else f"{count} are"


def _notes(results: Results) -> Iterable[Note]:
    runs = {name: len(results.of(name)) for name in results.compared.values()}
    if min(runs.values()) < LEAST_SEEDS:
        there = " and ".join(
            f"{runs[name]} {'runs ' * (not place)}of {name}" for place, name in enumerate(runs)
        )
        text = f"{there} are there; a verdict needs {LEAST_SEEDS} of each arm that it compares."
        yield Note("watch", text, "claims")
    if results.planned:
        text = f"{len(results.runs)} of {results.planned} runs are there; verdicts may change with the rest."
        yield Note("watch", text, "claims")


def _sections(results: Results) -> Iterable[ReportSection]:
    for family in results.families:
        found = results.answers(family)
        lead = score_over_training(results, deciders(results)) if family is results.families[0] else None
        yield ReportSection(
            family.key,
            family.title,
            family.says,
            drawn([lead, forest(found)]),
            (claims_table(found), bases_table(found)),
            folded=family is not results.families[0],
        )
    yield ReportSection(
        "levels",
        "How deep do they get?",
        "Greedy scores of students and of the single agent on held-out problems by level: the mean over members and "
        "seeds, as far as all compared arms go. Bands, of the arms that are compared, are "
        "from the lowest to the highest seed. The table has every arm where its own runs end: the mean over seeds, the "
        "lowest and the highest. Weakest, taken home, vote, mean@8 and pass@8 are of levels 2 to 5; the member "
        "taken home is the best on the validation half; where no run was validated, the best at the end. What is said "
        "of problems is of the last quarter.",
        drawn(level_plots(results, deciders(results))),
        (outcomes_table(results),),
    )
    every = [arm for arm in results.arms if results.of(arm)]
    if every != deciders(results):
        yield ReportSection(
            "describing",
            "And the arms that describe?",
            "Every arm, those of few seeds in grey: they describe, and decide nothing.",
            drawn([score_over_training(results, every), *level_plots(results, every)]),
        )
    yield ReportSection(
        "arms",
        "What each arm came to",
        "At the budgets of the claims: mean over seeds, lowest and highest. Arms that no claim names describe, they "
        "decide nothing; one that spends less than a budget has no row. Tokens of evaluations are not counted, even "
        "where an arm takes its fitness from them.",
        tables=tuple(arms_table(results, basis) for basis in Basis),
    )
    if results.pair and results.claims == "population":
        yield ReportSection(
            "home",
            "What does a user take home?",
            "Greedy scores on levels 2 to 5 by what a run had spent: the exact average of an arm's students, as one "
            "adapter, and the pair's student. The mean over seeds; bands are from the lowest to the highest.",
            drawn(_taken_home(results, basis) for basis in (Basis.TOTAL, Basis.SECONDS)),
        )
    for key, title, shown in SECTIONS:
        yield ReportSection(
            key,
            title,
            f"Over updates an adapter took, as far as {results.population} and {results.rival} both go; the mean over "
            "seeds, and for arms that are compared the band from the lowest to the highest seed.",
            _plots(results, shown, Basis.UPDATES),
        )
    yield ReportSection(
        "total",
        "The same at equal tokens of all adapters together",
        "A population spends what each of its adapters does, all together. Lines end where the budget does.",
        _plots(results, TOTAL_SHOWN, Basis.TOTAL),
    )
    yield ReportSection(
        "held-out",
        "How do they do on held-out problems?",
        "Mean over a role's members, the band from the weakest member's mean over seeds to the best's. A generation "
        "ends with its evolution, so where both fall together a replaced member is a child that was not updated yet.",
        drawn(_held_out(results)),
        (benchmarks_table(results),),
    )
    yield ReportSection("runs", "Which runs are these?", "", tables=(runs_table(results),))


def _plots(results: Results, shown: Iterable[Shown], basis: Basis) -> tuple[Plot, ...]:
    styles = arm_styles(results)
    compared = [run for arm in (results.population, results.rival) for run in results.of(arm)]
    budget = common_budget(compared or results.runs, basis)
    banded = results.compared.values()

    def plot(item: Shown) -> Plot | None:
        lines = [
            line if arm in banded else replace(line, bands=())
            for arm in deciders(results)
            if (line := _line(arm, results.of(arm), item, basis, styles[arm], budget)) is not None
        ]
        return line_plot(item.title, "", item.unit, lines, item.form, item.zero, along=basis.label)

    return drawn(map(plot, shown))


def _taken_home(results: Results, basis: Basis) -> Plot | None:
    """The adapter that a user would take from arms of many students and from the pair, as far as each goes."""
    styles, lines = arm_styles(results), []
    average, student = (f"{AVERAGE}.levels_2_5", ALL, "average of"), (SOLVED, "student-00", "student of")
    for arm, (measure, part, name) in (
        (results.population, average),
        (results.averaged or "", average),
        (results.pair or "", student),
    ):
        item = Shown("", measure, part, "score")
        if line := _line(f"{name} {arm}", results.of(arm), item, basis, styles[arm], math.inf):
            lines.append(line)
    title = f"Taken home, by {basis.label}"
    return line_plot(title, "", "score", lines, percent, zero=False, along=basis.label) if lines else None


def _line(
    arm: str, runs: Sequence[Summary], item: Shown, basis: Basis, style: Style, budget: float
) -> Series | None:
    """Mean and range of each generation that all seeds have a value of, at what they had spent by it on average."""
    paid = [spent(run, basis) for run in runs]
    series = [
        _so_far(own) if item.cumulative else own
        for own in (run.series(item.measure, item.part) for run in runs)
    ]
    points, band = [], []
    for generation in sorted(set[int]().union(*series)) if series else []:
        have = [place for place, own in enumerate(series) if generation in own and generation in paid[place]]
        if len(have) == len(runs):
            x = sum(paid[place][generation] for place in have) / len(have)
            if x > budget * (1 + 1e-9):
                break
            values = [series[place][generation] for place in have]
            points.append((x, sum(values) / len(values)))
            band.append((x, min(values), max(values)))
    return Series(arm, style, points, (band,)) if points else None


def _so_far(series: Mapping[int, float]) -> dict[int, float]:
    total, found = 0.0, {}
    for generation, value in sorted(series.items()):
        total += value
        found[generation] = total
    return found


def _held_out(results: Results) -> Iterable[Plot | None]:
    """One plot for those who solve and one for teachers, whom nothing trains to solve."""
    styles = arm_styles(results)
    for title, roles in (("Students and the single agent", ("student", "solo")), ("Teachers", ("teacher",))):
        lines = []
        for arm in deciders(results):
            runs = results.of(arm)
            slots = sorted({part for run in runs for part in run.parts(HELD_OUT) if part.startswith(roles)})
            if not slots:
                continue
            means, band = [], []
            for generation in sorted(set[int]().union(*(run.series(HELD_OUT, slots[0]) for run in runs))):
                by_run = [[run.series(HELD_OUT, slot).get(generation) for slot in slots] for run in runs]
                known = [[score for score in scores if score is not None] for scores in by_run]
                if all(known):
                    x = sum(spent(run, Basis.UPDATES).get(generation, 0.0) for run in runs) / len(runs)
                    means.append((x, sum(sum(own) / len(own) for own in known) / len(known)))
                    band.append((x, sum(map(min, known)) / len(known), sum(map(max, known)) / len(known)))
            lines.append(Series(arm, styles[arm], means, (band,)))
        lines += _base(results)
        yield line_plot(title, "", "score", lines, percent, zero=False, along=Basis.UPDATES.label)


def _base(results: Results) -> list[Series]:
    """The base's score as a line, the same in every run, as far as the updates go."""
    score = next(
        (series[max(series)] for run in results.runs if (series := run.series(HELD_OUT, BASE))), None
    )
    if score is None:
        return []
    most = max(max(spent(run, Basis.UPDATES).values(), default=0.0) for run in results.runs)
    return [Series(BASE, Style(GREY, "1 3"), [(0.0, score), (most, score)])]
