"""What the terminal shows during and after a run."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from populora_core.commands.typed import shown, typed
from populora_core.report.summary import (
    GenerationSummary,
    coverage_rows,
    generation_summary,
    overall,
    population_rows,
)

console = Console(emoji=False)  # `s[a:b:c]` is code, not a picture

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


class ConsoleObserver:
    """Draws progress on a terminal, and one line a generation everywhere."""

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
        self._progress.reset(
            self._bar, description=f"generation {generation}: {DOING[stage]}", total=None, completed=0
        )

    def stage_progress(self, done: int, total: int) -> None:
        self._progress.update(self._bar, completed=done, total=total)

    def stage_ended(self, generation: int, stage: str, reused: bool, seconds: float) -> None:
        self._progress.update(self._bar, total=1, completed=1)

    def generation_found(self, generation: int) -> None:
        if generation > 0:
            self._found += 1

    def generation_ended(self, generation: int) -> None:
        self._tell_found()
        if generation == 0:
            self._console.print("the population is founded: every adapter starts as the base model")
        else:
            summary = generation_summary(self._directory, generation)
            self._console.print(generation_line(summary, self._generations), soft_wrap=True)

    def _tell_found(self) -> None:
        if self._found:
            self._console.print(f"[dim]{self._found} generations were done already and stay as they are[/]")
            self._found = 0


def generation_line(summary: GenerationSummary, generations: int) -> str:
    """One line a person understands: valid proposals, solve rates, compute, replacements."""
    valid = "  ".join(f"{t.problem_type[-1]} {t.valid:.0%}" for t in summary.types)
    solved = "  ".join(
        f"{t.problem_type[-1]} " + ("–" if t.solve_rate is None else f"{t.solve_rate:.0%}")
        for t in summary.types
    )
    line = (
        f"[bold]generation {summary.generation:>3}[/]/{generations}  valid {valid}  [cyan]│[/]  "
        f"solved {solved}  [cyan]│[/]  "
    )
    if summary.members:
        tokens = summary.trained_tokens / 1000
        line += f"trained {tokens:.1f}k tokens, {tokens / summary.members:.1f}k a member  [cyan]│[/]  "
    line += f"{summary.seconds:.0f} s"
    for row in summary.replaced:
        parents = " + ".join(row["parent_ids"])
        line += f"\n    [yellow]{row['removed_id']}[/] replaced by [green]{row['child_id']}[/]: "
        line += f"{row['operator']} of {parents}"
    return line


def population_table(directory: Path) -> Table:
    table = Table(title="the population now", title_justify="left")
    for name in ("member", "rating μ ± σ", "fitness μ - 3σ", "born in", "made by"):
        table.add_column(name, justify="left" if name in ("member", "made by") else "right")
    for row in population_rows(directory):
        table.add_row(
            row["member_id"],
            f"{row['mu']:.1f} ± {row['sigma']:.1f}",
            f"{row['fitness']:.1f}" + ("" if row["eligible"] else " (idle)"),
            str(row["born_generation"]),
            row["operator"],
        )
    return table


def coverage_table(directory: Path) -> Table:
    table = Table(title="the problem space, newest generation", title_justify="left")
    names = ("type", "cells so far", "new cells", "sets of constructs so far", "mean novelty", "mean lines")
    for name in names:
        table.add_column(name, justify="left" if name == "type" else "right")
    for row in coverage_rows(directory):
        table.add_row(
            row["problem_type"],
            str(row["cumulative_cells"]),
            str(row["new_cells"]),
            str(row["cumulative_construct_sets"]),
            f"{row['mean_novelty']:.2f}",
            f"{row['mean_lines_of_code']:.1f}",
        )
    return table


def closing(console: Console, directory: Path) -> None:
    """The summary table, where everything lies, and what to try next."""
    total = overall(directory)
    console.print()
    console.print(population_table(directory))
    console.print(
        f"{total['proposals']} proposals, {total['problems']} problems, {total['attempts']} attempts, "
        f"{total['replacements']} replacements, {total['seconds']:.0f} s in stages"
    )
    place = shown(directory)
    console.print(
        f"\neverything lies in [bold]{place}[/]: generations/ (Parquet), members/ (PEFT adapters), "
        "catalogue.duckdb, report.html",
        soft_wrap=True,
    )
    console.print("what to try next:")
    for command, meaning in (
        (f"populora inspect {place}", "the run at a glance; --member or --problem to look closer"),
        (f"populora report {place}", "report.html, the run in plots; give several runs to compare them"),
        (f'populora query {place} "SELECT * FROM problems ORDER BY solve_rate LIMIT 5"', "ask in SQL"),
        (f"populora resume {place} --generations {_generations(directory) + 10}", "go on for ten more"),
    ):
        console.print(f"  [green]{typed(command)}[/]\n      {meaning}", highlight=False, soft_wrap=True)


def _generations(directory: Path) -> int:
    return max((int(path.name) for path in (directory / "generations").glob("[0-9]*")), default=0)
