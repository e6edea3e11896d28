"""The index of runs as a page: sorted by a click, with ticks for those to compare, and links to what can be done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from populora_core.report.index import RunGlance
from populora_core.report.text import percent, seconds
from populora_core.report.write import REPORT
from populora_core.support.visible import visible

COMPARE, RUN = "compare", "run"
"""The page that compares, below the index, and the name under which the form gives it runs."""
STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
html { color: light-dark(#1a1d21, #e6e8eb); background: light-dark(#fff, #0f1216) }
body { max-width: 90rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
a { color: light-dark(#0b57a4, #7ab7f0) }
button { font: inherit; padding: .4rem .8rem; margin: 0 0 1rem }
th, td { text-align: left; vertical-align: top; padding: .5rem .8rem .5rem 0; border-bottom: 1px solid #8886 }
th, td:not(:last-child) { white-space: nowrap } .n { text-align: right } .do { font-size: .9rem }
th:last-child { width: 60% } td[data-name=started], td[data-name=solvers] { white-space: normal; min-width: 6.5rem }
input { width: 1.2rem; height: 1.2rem }
@media (max-width: 60rem) {
  thead { display: none } tr { display: block; padding: .7rem 0; border-bottom: 1px solid #8886 }
  tbody td { display: block; padding: 0; border: 0; overflow-wrap: anywhere }
  tbody td.n { text-align: left } tbody td:not(:last-child) { white-space: normal }
  td:nth-child(2) { font-weight: 600 } td[data-name]::before { content: attr(data-name) ": " }
  td:empty { display: none }
}
"""
COLUMNS = ("run", "state", "started", "length", "generations", "base", "seed", "solvers", "headline")
NUMBERS = ("length", "generations", "seed", "solvers")


ORDERS: dict[str, Callable[[RunGlance], Any]] = {
    "run": lambda run: run.name,
    "started": lambda run: run.started,
    "length": lambda run: run.outcome.seconds,
    "generations": lambda run: run.generation,
    "base": lambda run: run.base,
    "seed": lambda run: -1 if run.seed is None else run.seed,
    "solvers": lambda run: -1.0 if run.outcome.solvers is None else run.outcome.solvers,
}
"""Orders of a list of runs, by name."""


def in_order(runs: Sequence[RunGlance], by: str) -> list[RunGlance]:
    """The runs in one of ORDERS, the largest first behind a minus; as they are for any other name."""
    key = ORDERS.get(by.removeprefix("-"))
    return list(runs) if key is None else sorted(runs, key=key, reverse=by.startswith("-"))


def no_forms(directory: Path) -> Mapping[str, str]:
    """No form for a run: there is no Prefect to fill one in."""
    return {}


def index_page(
    runs: Sequence[RunGlance],
    link: Callable[[Path], str],
    by: str = "",
    forms: Callable[[Path], Mapping[str, str]] = no_forms,
) -> str:
    """The runs as an HTML page.

    Args:
        link: makes the address of the report in a folder.
        by: one of ORDERS, behind a minus for the largest first; anything else leaves the runs as they are.
        forms: makes the addresses of forms that do something with a run, by their names.
    """
    rows = "".join(_row(run, link, forms(run.directory)) for run in in_order(runs, by))
    head = "".join(_head(name, by) for name in COLUMNS)
    table = (
        f'<form action="{COMPARE}"><button>Compare the ticked runs</button><table><thead><tr>'
        f'<th scope="col">compare</th>{head}</tr></thead><tbody>{rows}</tbody></table></form>'
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Runs · PopuLoRA</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style><main><h1>Runs</h1>{table if rows else '<p>There is no run yet.</p>'}</main></html>"
    )


def _head(name: str, by: str) -> str:
    if name not in ORDERS:
        return f'<th scope="col">{name}</th>'
    up, down = by == name, by == f"-{name}"
    other = name if down else f"-{name}" if up or name in (*NUMBERS, "started") else name
    sort = f' aria-sort="{"ascending" if up else "descending"}"' if up or down else ""
    mark = " ↑" if up else " ↓" if down else ""
    number = ' class="n"' if name in NUMBERS else ""
    return f'<th scope="col"{number}{sort}><a href="?by={other}">{name}{mark}</a></th>'


def _row(run: RunGlance, link: Callable[[Path], str], forms: Mapping[str, str]) -> str:
    name = shown = escape(visible(run.name))
    if (run.directory / REPORT).is_file():
        shown = f'<a href="{escape(link(run.directory))}">{name}</a>'
    cells = {
        "started": run.started,
        "length": seconds(run.outcome.seconds) if run.outcome.seconds else "",
        "generations": f"{run.generation} / {run.target}",
        "base": run.base,
        "seed": "" if run.seed is None else str(run.seed),
        "solvers": _scores(run),
    }
    told = "".join(_cell(key, text) for key, text in cells.items())
    tick = f'<input type="checkbox" name="{RUN}" value="{name}" aria-label="compare {name}">'
    actions = " · ".join(f'<a href="{escape(address)}">{what}</a>' for what, address in forms.items())
    return (
        f"<tr><td>{tick}</td><td>{shown}</td><td>{run.state}</td>{told}"
        f"<td>{escape(visible(run.outcome.headline))}{f'<div class=do>{actions}</div>' if actions else ''}</td></tr>"
    )


def _cell(name: str, text: str) -> str:
    number = ' class="n"' if name in NUMBERS else ""
    return f'<td{number} data-name="{name}">{escape(visible(text))}</td>' if text else "<td></td>"


def _scores(run: RunGlance) -> str:
    """The solvers' score beside the base's, on which suite."""
    own, base = run.outcome.solvers, run.outcome.base
    return (
        "" if own is None or base is None else f"{percent(own)} (base {percent(base)}, {run.outcome.suite})"
    )
