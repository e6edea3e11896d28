"""The HTML page: everything in one file, with nothing to fetch."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from populora_core.report.charts import Plot
from populora_core.report.figures import SampleProblem
from populora_core.report.palette import variables
from populora_core.report.text import call, plain, signed
from populora_core.support.version import VERSION
from populora_core.support.visible import visible

SHORTEST = 8000  # characters of one prompt or completion that a report shows


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Rows of text by column, all with the same columns; `folded` ones open on a click."""

    title: str
    rows: Sequence[Mapping[str, str]]
    folded: bool = True

    @property
    def header(self) -> tuple[str, ...]:
        return tuple(self.rows[0])


@dataclass(frozen=True, slots=True)
class ReportSection:
    """Plots and tables that answer one question; `folded` ones open on a click."""

    key: str
    title: str
    says: str
    plots: tuple[Plot, ...] = ()
    tables: tuple[ReportTable, ...] = ()
    samples: tuple[SampleProblem, ...] = field(default=())
    folded: bool = True

    @property
    def empty(self) -> bool:
        return not (self.plots or self.samples or any(table.rows for table in self.tables))


def drawn(plots: Iterable[Plot | None]) -> tuple[Plot, ...]:
    """Drop empty plots."""
    return tuple(plot for plot in plots if plot is not None)


def page(
    title: str,
    cards: Sequence[Mapping[str, Any]],
    shown: Sequence[ReportSection],
    source: str,
    config: str = "",
) -> str:
    """One HTML file.

    Args:
        cards: at the top: label, headline, tiles as (value, name), notes.
        source: where the figures come from, for the last line.
        config: what the last section unfolds; empty for none.
    """
    script = Markup(files("populora_core.report").joinpath("templates", "report.js").read_text("utf-8"))
    return (
        _environment()
        .get_template("report.html")
        .render(
            title=title,
            cards=cards,
            sections=shown,
            anchors={section.key for section in shown},
            config=config,
            source=source,
            script=script,
            script_hash=f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}",
            colours=variables(),
            dark_colours=variables(dark=True),
            version=VERSION,
            written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        )
    )


def excerpt(text: str, limit: int = SHORTEST) -> str:
    """The visible text, cut where it is longer than `limit` characters, saying so."""
    if len(text) <= limit:
        return visible(text)
    return f"{visible(text[:limit])}\n[… {len(text) - limit:,} more characters; `populora inspect --problem` shows all]"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("populora_core.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "call": call,
        "visible": visible,
        "excerpt": excerpt,
        "plain": plain,
        "signed": signed,
    }
    return environment
