"""Terminal output during and after a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from populora_core.benchmarks.scores import BASE
from populora_core.report import learnt
from populora_core.report.scored import Scored, Yardstick, scored, yardsticks
from populora_core.report.summary import (
    ASKED,
    OVERALL,
    POPULATION,
    WORDS,
    generation_lines,
    run_rows,
)
from populora_core.report.text import call, with_interval
from populora_core.runs.observer import Observer
from populora_core.store.sql import text as literal
from populora_core.support.aliases import Row
from populora_core.support.shipped import IN_CLONE, REPOSITORY
from populora_core.support.typed import shown, typed, working_folder
from populora_core.support.visible import visible
from populora_core.terminal.screen import titled_table

if TYPE_CHECKING:
    from populora_core.runs.run import Run


SOMETIMES = (
    "SELECT program, inputs, outputs, solve_rate FROM problems WHERE solve_rate BETWEEN 0.2 AND 0.8 "
    "ORDER BY generation DESC LIMIT 3"
)
BY_LEVEL = (
    "PIVOT (SELECT stratum, if(member_id = 'base', 'base', 'generation ' || generation) AS who, score "
    "FROM evaluation_strata WHERE part = 'test' AND suite = {suite} AND member_id NOT LIKE 'teacher%') "
    "ON who USING avg(score)"
)
THOUGHTS = {"bundled:frontier": "a thought has a line a step: variable, step : old value, operand, new value"}
"""Legends of thoughts that are no words."""
DOING = {
    "found": "founding the population",
    "match": "pairing teachers and students",
    "propose": "teachers write problems",
    "verify": "the sandbox checks the problems",
    "solve": "students answer",
    "grade": "the sandbox judges the answers",
    "update": "every member learns",
    "evaluate": "held-out problems measure the population",
    "evolve": "the weakest are replaced",
}
"""Sentences on the stages of the loop; a stage of a plug-in is told by its name."""

STYLES = (
    (r"^generation +\d+", "bold"),
    (r"│", "cyan"),
    (r"^ +(?:held-out|yardstick|valid).*", "cyan"),
    (r"(?m)^ +\S+(?= replaced by)", "yellow"),
    (r"(?<=replaced by )[^:]+", "green"),
)
"""Patterns in a line on a generation, with the style of what each matches."""


class ConsoleObserver(Observer):
    """An observer that draws progress on a terminal, and one line per generation everywhere."""

    def __init__(self, console: Console, directory: Path, generations: int) -> None:
        self._console, self._directory, self._generations = console, directory, generations
        self._found = 0
        self.position = "before the first stage"
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._bar = self._progress.add_task("starting", total=None)

    def __enter__(self) -> ConsoleObserver:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()
        self._tell_found()

    def stage_started(self, generation: int, stage: str) -> None:
        self.position = f"{stage} of generation {generation}"
        doing = DOING.get(stage.partition("-")[0], f"{stage} is made")
        self._progress.reset(
            self._bar, description=f"generation {generation}: {doing}", total=None, completed=0
        )

    def stage_again(self, generation: int, stage: str, moved: Sequence[str]) -> None:
        line = f"{stage} of generation {generation} is made again: {'; '.join(moved)}"
        self._console.print(line, soft_wrap=True, highlight=False)

    def stage_progress(self, done: int, total: int) -> None:
        self._progress.update(self._bar, completed=done, total=total)

    def stage_ended(self, generation: int, stage: str, reused: bool, seconds: float) -> None:
        self._progress.update(self._bar, total=1, completed=1)

    def generation_found(self, generation: int) -> None:
        if generation > 0:
            self._found += 1

    def generation_ended(self, generation: int) -> None:
        self._tell_found()
        for line in generation_lines(self._directory, generation, self._generations):
            self._console.print(styled(line), soft_wrap=True)

    def _tell_found(self) -> None:
        if self._found:
            told = f"generations done already: {self._found}; they stay as they are"
            self._console.print(Text(told, "dim"))
            self._found = 0


def styled(line: str) -> Text:
    """A line on a generation in colours."""
    text = Text(line)
    for pattern, style in STYLES:
        text.highlight_regex(pattern, style)
    return text


def answer_table(directory: Path, title: str, sql: str) -> Table:
    """The rows of a query of `report.summary` as a table, numbers to the right."""
    rows = run_rows(directory, sql)
    header = list(rows[0]) if rows else []
    cells = [[str(WORDS.get(value, value)) for value in row.values()] for row in rows]
    return titled_table(title, header, cells, {*header} - {"member", "made by", "type"})


def population_table(directory: Path) -> Table:
    return answer_table(directory, "the population now", POPULATION)


def asked_table(problems: Sequence[Row]) -> Table:
    """Problems of the teachers, a column for each generation: the program, its first call, how often it was solved."""
    columns = {number: map(_asked, list(own)) for number, own in groupby(problems, itemgetter("generation"))}
    header = [f"generation {number}" for number in columns]
    rows = zip_longest(*columns.values(), fillvalue=Text())
    return titled_table("what the teachers asked", header, rows, box=None, padding=(0, 4, 1, 0))


def _asked(problem: Row) -> Text:
    solved = round(problem["solve_rate"] * problem["n_attempts"])
    asks = f"{call(problem['inputs'][0])} gives {problem['outputs'][0]}"
    return Text.assemble(
        visible(f"{problem['program']}\n{asks}"), (f"\nsolved {solved} of {problem['n_attempts']}", "dim")
    )


def closing(console: Console, run: Run) -> None:
    """The summary table, where everything lies, and what to try next."""
    directory = run.directory
    console.print()
    console.print(population_table(directory))
    console.print(run_rows(directory, OVERALL)[0]["totals"])
    if asked := run_rows(directory, ASKED):
        console.print(asked_table(asked))
    show_learnt(console, run)
    place = shown(directory)
    console.print(
        Text.assemble(
            "\neverything lies in ",
            (place, "bold"),
            ": generations/ (Parquet), members/ (PEFT adapters), catalogue.duckdb, report.html",
        ),
        soft_wrap=True,
    )
    console.print("what to try next:")
    ui = "make ui" if working_folder() == REPOSITORY else "populora ui"
    for command, meaning in (
        (f"populora inspect {place}", "the run at a glance; --member or --problem to look closer"),
        (f"populora report {place}", "report.html, the run in plots; give several runs to compare them"),
        *((f'populora query {place} "{sql}"', meaning) for meaning, sql in questions(directory)),
        (f"populora resume {place} --generations {max(run.generations()) + 10}", "go on for ten more"),
        *([(ui, "resume, redo, evaluate and schedule runs in a browser, with Prefect")] if IN_CLONE else []),
    ):
        told = Text.assemble("  ", (typed(command), "green"), f"\n      {meaning}")
        console.print(told, soft_wrap=True)


def questions(directory: Path) -> list[tuple[str, str]]:
    """Questions in SQL that a run can answer, each with its meaning."""
    asked = [("problems that are solved sometimes, the newest first", SOMETIMES)]
    for item in scored(directory)[-1:]:
        by_level = BY_LEVEL.format(suite=literal(item.suite))
        asked += [("held-out scores by level, base first", by_level)] if item.strata else []
    return asked


def yardstick_table(item: Yardstick) -> Table:
    """Solvers and base on the first problems of the run and on the newest: down, problems; across, members."""
    header = ("", "first problems", "newest problems")
    rows = [
        (who, *(with_interval(getattr(era, own)) for era in (item.first, item.newest)))
        for who, own in (("base, which never changes", BASE), ("population now", "solvers"))
    ]
    title = f"the yardstick after generation {item.generation}: problems solved"
    return titled_table(title, header, rows, header[1:])


def strata_table(item: Scored) -> Table:
    """Base and solvers at each stratum of a suite."""
    header = ("", "problems", BASE, "solvers", "solvers minus base")
    rows = [
        (name, str(of.problems), with_interval(of.base), with_interval(of.solvers), learnt.points(of.gain))
        for name, of in item.by_stratum.items()
    ]
    return titled_table(f"{item.suite} by stratum: problems solved", header, rows, header[1:])


def show_learnt(console: Console, run: Run) -> None:
    """Print what was learnt, and a problem that the base gets wrong and the population now gets right."""
    directory = run.directory
    for line in learnt.lines(directory):
        console.print(line, soft_wrap=True, highlight=False)
    for item in yardsticks(directory)[-1:]:
        console.print(yardstick_table(item))
    for scores in scored(directory)[-1:]:
        if scores.generation and scores.strata:
            console.print(strata_table(scores))
    example = learnt.won(directory)
    if example is not None:
        _show_won(console, example, run.config.base.path)


def _show_won(console: Console, example: learnt.Won, base: str) -> None:
    """Print the problem, and the two thoughts and answers side by side."""
    console.print("\na problem that the base gets wrong and the population now gets right:")
    console.print(Padding(Text(visible(example.prompt)), (0, 0, 0, 4)))
    table = Table(box=None, pad_edge=False, padding=(0, 4, 0, 0))
    for mark, who, answer in (
        (("✗", "red"), BASE, example.base_answer),
        (("✓", "green"), example.solver_id, example.solver_answer),
    ):
        said = "gives no answer" if answer is None else f"answers {answer}"
        table.add_column(Text.assemble(mark, f" {who} {visible(said)}"), overflow="fold")
    table.add_row(Text(visible(example.base)), Text(visible(example.solver)))
    console.print(Padding(table, (0, 0, 0, 4)))
    if legend := THOUGHTS.get(base):
        console.print(Text(f"    {legend}", "dim"))
