"""The runs of a folder at a glance: state, how far each is, and its headline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from pathlib import Path

from populora_core.report.figures import read_figures
from populora_core.report.notes import one_line
from populora_core.report.text import visible
from populora_core.report.write import REPORT
from populora_core.runs.heartbeat import Beat, Life
from populora_core.runs.run import Run
from populora_core.store.record import RECORD
from populora_core.support.errors import PopuloraError

KEPT = 500  # headlines
STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
html { color: light-dark(#1a1d21, #e6e8eb); background: light-dark(#fff, #0f1216) }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
a { color: light-dark(#0b57a4, #7ab7f0) }
th, td { text-align: left; vertical-align: top; padding: .5rem 1rem .5rem 0; border-bottom: 1px solid #8886 }
@media (max-width: 40rem) {
  thead { display: none } tr { display: block; padding: .7rem 0; border-bottom: 1px solid #8886 }
  tbody td { display: block; padding: 0; border: 0; overflow-wrap: anywhere }
  td:first-child { font-weight: 600 } td:nth-child(3)::after { content: " generations" }
}
"""


@dataclass(frozen=True, slots=True)
class RunGlance:
    """One run in a list of runs.

    Attributes:
        state: at work, killed, finished, stopped, or not readable.
    """

    directory: Path
    state: str
    generation: int
    target: int
    headline: str


def runs_in(folder: Path) -> list[RunGlance]:
    """The runs of a folder, the one that went on last first."""
    found = [path.parent for path in folder.glob(f"*/{RECORD}")]
    return [glance(directory) for directory in sorted(found, key=_newest, reverse=True)]


def glance(directory: Path) -> RunGlance:
    """A run at a glance."""
    try:
        run = Run.open(directory)
        said = _headline(run.directory, _newest(directory))
    except PopuloraError as error:
        return RunGlance(directory, "not readable", 0, 0, error.problem)
    last, target = max([0, *run.generations()]), run.config.run.generations
    beat = Beat.read(run.directory)
    life = Life.ENDED if beat is None else beat.life
    ended = "finished" if last >= target else "stopped"
    state = {Life.ALIVE: "at work", Life.DEAD: "killed", Life.ENDED: ended}[life]
    return RunGlance(run.directory, state, last, target, said)


def index_page(runs: Sequence[RunGlance], link: Callable[[Path], str]) -> str:
    """The runs as an HTML page that links to their reports.

    Args:
        link: makes the address of the report in a folder.
    """
    rows = []
    for run in runs:
        name = escape(visible(run.directory.name))
        if (run.directory / REPORT).is_file():
            name = f'<a href="{escape(link(run.directory))}">{name}</a>'
        done = f"{run.generation} / {run.target}"
        rows.append(
            f"<tr><td>{name}</td><td>{run.state}</td><td>{done}</td><td>{escape(run.headline)}</td></tr>"
        )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("run", "state", "generations", "headline"))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Runs · PopuLoRA</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style><main><h1>Runs</h1>{table if rows else '<p>There is no run yet.</p>'}</main></html>"
    )


@lru_cache(KEPT)
def _headline(directory: Path, newest: int) -> str:
    """The headline of a run, in one line; computed again once the run's report is written again."""
    return one_line(read_figures(directory, samples=False))


def _newest(directory: Path) -> int:
    """Modification time, in ns, of the report, or of the record if there is none."""
    report = directory / REPORT
    return (report if report.is_file() else directory / RECORD).stat().st_mtime_ns
