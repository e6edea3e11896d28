"""Output of `populora assemble` and its --push."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from populora_core.benchmarks.scores import BASE
from populora_core.benchmarks.suite import Suite
from populora_core.report.write import refresh
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.support.errors import ConfigError
from populora_core.terminal.screen import console, narrated, say
from populora_plugins.harvest.assemble import MEAN, Assembly, Compared, compared, together
from populora_plugins.harvest.assembled import line, write_assembly
from populora_plugins.harvest.stage import assemble


def suite_of_runs(runs: Sequence[Run]) -> Path:
    """The suite that the runs' configurations name.

    Raises:
        ConfigError: they name different ones.
    """
    named = {run.config.evaluate.suite: run.config.evaluate.file() for run in runs}
    if len(named) > 1:
        raise ConfigError(
            "these runs name different suites",
            expected="one suite for all",
            got=", ".join(sorted(named)),
            fix="choose with --suite, such as --suite bundled:frontier",
        )
    (file,) = named.values()
    return file


def assemble_runs(runs: Sequence[Run], suite: Suite, generation: int | None) -> list[Assembly]:
    """Try every way on each run, with a table for each, and one for all where there are several."""
    found = []
    for run in runs:
        with Session(run) as session, narrated() as tell:
            found.append(assemble(session, suite, generation, tell))
            refresh(run.directory)
        one = found[-1]
        rows = compared(one.items, suite, one.groups)
        _show(f"{run.name} after generation {one.generation}", rows, one.validation)
        say(one.told)
    if len(found) > 1:
        items, groups = together(found)
        _show(f"{len(found)} runs together", compared(items, suite, groups), {})
    return found


def write(found: Assembly, how: str | None, to: Path, merge: bool, base_name: str | None) -> None:
    """Write the requested way, or the one that won on validation."""
    chosen = how or found.winner
    with narrated(f"writing {chosen} ..."):
        write_assembly(found, chosen, to, merge=merge, base_name=base_name)
    say(f"{to} holds {chosen}, assembly.json, and a card that says what was tried")


def _show(title: str, rows: Sequence[Compared], validation: Mapping[str, float]) -> None:
    table = Table(title=f"{title}: the half that chose nothing, with 95 % intervals", title_justify="left")
    for column in ("", "score", f"over the {MEAN}", f"over the {BASE}", "validation"):
        table.add_column(column, no_wrap=column == "")
    for row in rows:
        table.add_row(*line(row, validation))
    console.print(table)
