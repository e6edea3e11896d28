"""Output of `populora evaluate`: the cost, the progress, and the table of scores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from populora_core.benchmarks.contamination import NGRAM, Contamination
from populora_core.benchmarks.scores import (
    ALL,
    BASE,
    NOTHING,
    group_interval,
    headline_rows,
    tells_nothing,
    unjudged,
)
from populora_core.benchmarks.suite import VALIDITY, YARDSTICK, Suite, named_suite
from populora_core.commands.console import strata_table, yardstick_table
from populora_core.lifecycle.adapter_evaluation import adapter_session, base_of, suite_of
from populora_core.lifecycle.progress import evaluation_of
from populora_core.lifecycle.run_evaluation import SOLVERS, Evaluated, RunEvaluation, overlap
from populora_core.report.history import earlier_history
from populora_core.report.learnt import fallen_most, level_claim, told, validity_line
from populora_core.report.scored import of_items, validities, yardsticks
from populora_core.report.write import refresh
from populora_core.runs.observer import Observer
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.evaluation import Exam, seeded
from populora_core.store.rows import EvaluationItemRow, EvaluationRow
from populora_core.support.typed import shown, typed
from populora_core.terminal.screen import console, narrated, say, titled_table

NAMED = 10  # problems that could not be judged, for each of so many reasons
COLUMNS = 3  # of benchmarks beside each other, so that a terminal of 80 characters holds their names


def show_evaluation(run: Run, suite: Suite, members: str, generation: int | None) -> None:
    """Evaluate a run, telling cost, progress and scores.

    Args:
        suite: of `suite_for`.
    """
    with Session(run) as session:
        found = _made(evaluation_of(session, suite, members, generation))
    show = {YARDSTICK: _show_yardstick, VALIDITY: _show_validity}.get(suite.suite, _show_scores)
    show(run, suite, found)
    for line in earlier_history(run, found.generation):
        say(typed(line))
    say(typed(where(shown(found.folder), shown(run.directory))))


def show_adapter(
    folder: Path,
    base: str | None,
    suite: str,
    seed: int | None = None,
    sample: int | None = None,
    spoken: str | None = None,
) -> None:
    """Score an adapter beside its base.

    Args:
        base: None for the bundled one that the adapter names.
        spoken: the dialect of all prompts; None for what fits the base.
        suite: a file; empty for that of a bundled base.
    """
    base = base_of(folder, base)
    chosen = seeded(named_suite(suite or suite_of(base)), seed)
    chosen = chosen if sample is None else chosen.sampled(sample)
    with narrated("loading base and adapter ..."), adapter_session(folder, base, spoken) as session:
        asked, used = evaluation_of(session, chosen, SOLVERS), session.run.config.base
        say(f"{used.path}, {used.dtype}, {used.device}, dialect {used.dialect}")
        say(cost_line(asked.exam))
        with progress_bar(console) as session.observer:
            found = asked.run()
        name = folder.resolve().name
        rows = [row | {"member_id": BASE if row["member_id"] == BASE else name} for row in found.rows]
        _show_table(rows, chosen, found, after="")


def _show_table(rows: Sequence[EvaluationRow], suite: Suite, found: Evaluated, after: str) -> None:
    """Scores, what is missing from them, and where they are from.

    Args:
        after: the end of the title, which says when members were as they are here; empty where they never change.
    """
    console.print(score_table(rows, suite, after))
    if len(suite.benchmarks) > 1:
        console.print(*benchmark_tables(rows), sep="\n")
    if tells_nothing(rows, suite):
        say(f"suite {suite.suite}: {NOTHING}; choose another with --suite")
    answered = of_items(found.generation, suite, found.items())
    if answered is not None and answered.strata:
        console.print(strata_table(answered))
        for claim in (level_claim(answered), fallen_most(answered)):
            say(f"{claim}." if claim else "")
    for line in unjudged_lines(found.items(), suite):
        say(line)
    say(f"programs were judged in {found.judged_in}")


def _show_scores(run: Run, suite: Suite, found: Evaluated) -> None:
    _show_table(found.rows, suite, found, _after(found))
    for line in population_lines(found.rows, found.items(), suite):
        say(line)
    with narrated("comparing the suite with the run's problems ..."):
        shared = overlap(run, found.exam.problems, found.generation)
    say(contamination_line(shared, bundled=all(entry.bundled is not None for entry in suite.benchmarks)))


def _show_yardstick(run: Run, suite: Suite, found: Evaluated) -> None:
    for shows in yardsticks(run.directory, found.generation):  # none where infrastructure lost every answer
        for line in told(shows):
            say(line)
        console.print(yardstick_table(shows))


def _show_validity(run: Run, suite: Suite, found: Evaluated) -> None:
    console.print(score_table(found.rows, suite, _after(found)))
    for item in validities(run.directory, found.generation):
        say(validity_line(item))


def _after(found: Evaluated) -> str:
    return f", after generation {found.generation}"


def _made(asked: RunEvaluation) -> Evaluated:
    """The evaluation, once it is made, in the report too."""
    say(cost_line(asked.exam))
    with progress_bar(console) as asked.session.observer:
        found = asked.run()
    refresh(asked.session.run.directory)
    return found


def cost_line(exam: Exam) -> str:
    """A line on the evaluation's size, before it starts."""
    problems = sum(len(items) for _, items in exam.problems)
    return (
        f"suite {exam.suite.suite}, {exam.part} half: {problems} problems, {len(exam.players)} players, "
        f"{exam.completions} completions of together at most {exam.most_tokens:,} tokens, "
        f"in {len(list(exam.blocks))} blocks"
    )


@contextmanager
def progress_bar(console: Console) -> Iterator[Observer]:
    """A display of completions done and time left; one line a tenth where there is no terminal."""
    if not console.is_terminal:
        yield _Tenths(console)
        return
    columns = (TextColumn("answering"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Bar(progress)


class _Bar(Observer):
    def __init__(self, progress: Progress) -> None:
        self._progress, self._task = progress, progress.add_task("answering", total=None)

    def stage_progress(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)


class _Tenths(Observer):
    def __init__(self, console: Console) -> None:
        self._console, self._told = console, 0

    def stage_progress(self, done: int, total: int) -> None:
        tenth = 10 * done // total
        if tenth > self._told:
            self._told = tenth
            self._console.print(f"{done} of {total} completions")


def score_table(rows: Sequence[EvaluationRow], suite: Suite, after: str) -> Table:
    """The players' scores over the whole suite with intervals, and the paired difference to the base model.

    Args:
        after: the end of the title.
    """
    title = f"suite {suite.suite}: no answer could be judged"  # infrastructure lost them all
    if rows:
        title = f"suite {suite.suite}, {rows[0]['part']} half{after}"
    table = Table(title=title, title_justify="left")
    table.add_column("member", overflow="fold")
    for name in ("right", "score", "95 % interval", "minus base"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in headline_rows(rows, suite):
        table.add_row(
            row["member_id"],
            f"{row['n_correct']}/{row['n']}",
            f"{row['score']:.3f}",
            f"{row['low']:.3f} {row['high']:.3f}",
            _over_base(row),
        )
    return table


def benchmark_tables(rows: Sequence[EvaluationRow]) -> Iterator[Table]:
    """The scores by benchmark and metric, a few columns at a time; their intervals stand in the view `evaluations`."""
    names = list(dict.fromkeys(_column(row) for row in rows if row["benchmark"] != ALL))
    for start in range(0, len(names), COLUMNS):
        shown = names[start : start + COLUMNS]
        table = titled_table("by benchmark" if start == 0 else None, ("member", *shown), (), shown)
        for member in dict.fromkeys(row["member_id"] for row in rows):
            own = {_column(row): f"{row['score']:.3f}" for row in rows if row["member_id"] == member}
            table.add_row(member, *(own.get(name, "") for name in shown))
        yield table


def population_lines(
    rows: Sequence[EvaluationRow], items: Sequence[EvaluationItemRow], suite: Suite
) -> list[str]:
    """Mean with interval, minimum and maximum of each role over the whole suite."""
    scores = {row["member_id"]: row["score"] for row in headline_rows(rows, suite)}
    lines = []
    for role in sorted({member.partition("-")[0] for member in scores if member != BASE}):
        own = {member: score for member, score in scores.items() if member.startswith(f"{role}-")}
        mean = group_interval(items, suite, sorted(own))
        if mean is not None:
            low, high = min(own, key=own.__getitem__), max(own, key=own.__getitem__)
            lines.append(
                f"{role}s: mean {mean.value:.3f} ({mean.low:.3f} to {mean.high:.3f}), "
                f"minimum {own[low]:.3f} ({low}), maximum {own[high]:.3f} ({high})"
            )
    return lines


def unjudged_lines(items: Sequence[EvaluationItemRow], suite: Suite) -> list[str]:
    """Lines on problems that are in no score, one for each reason."""
    missing: dict[str, list[str]] = defaultdict(list)
    for name, why in unjudged(items, suite).items():
        missing[why].append(name)
    told = [f"in no score: {_some(names)} ({why})" for why, names in islice(missing.items(), NAMED)]
    others = sum(map(len, islice(missing.values(), NAMED, None)))
    return told + [f"and {others} more, for other reasons"] * (others > 0)


def _some(names: Sequence[str]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def contamination_line(found: Contamination, bundled: bool) -> str:
    """A line on how much of the suite the run's problems repeat, and what to make of it.

    Args:
        bundled: whether the suite's problems are of a bundled base's grammar.
    """
    meaning = (
        "; the language of these suites is so small that long stretches recur by themselves, "
        "and a problem of a bundled suite is never taken into a run"
        if bundled
        else "; look at the problems that overlap most before you trust their scores"
    )
    return (
        f"contamination: {found.overlapping} of {found.items} problems of the suite share {NGRAM} words in a row "
        f"with one of the {found.documents} problems of the run; mean overlap {found.mean_share:.1%}, "
        f"highest {found.highest:.0%}{meaning if found.overlapping else ''}"
    )


def where(folder: str, run_dir: str) -> str:
    return (
        f"every answer is in {folder}; "
        f'populora query {run_dir} "SELECT * FROM evaluation_items WHERE NOT correct LIMIT 5"'
    )


def _column(row: EvaluationRow) -> str:
    warm = f", T {row['temperature']:g}" if row["temperature"] else ""
    return f"{row['benchmark']} {row['metric']}{warm}"


def _over_base(row: EvaluationRow) -> str:
    value, low, high = row["delta"], row["delta_low"], row["delta_high"]
    if value is None or low is None or high is None:
        return ""
    mark = " *" if low > 0 or high < 0 else ""
    return f"{value:+.3f} ({low:+.3f} {high:+.3f}){mark}"
