"""The HTML page: everything in one file, with nothing to fetch."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from populora_core.report.comparison import comparison_sections
from populora_core.report.figures import Figures
from populora_core.report.notes import Note, headline, notes
from populora_core.report.palette import variables
from populora_core.report.sections import ReportSection, sections
from populora_core.report.text import excerpt, number, percent, plain, seconds, signed, visible
from populora_core.store.catalogue import run_labels
from populora_core.support.version import VERSION

VIEWS = "Every figure comes from the run's DuckDB views; populora query answers what it leaves open."


def render(runs: Sequence[Figures]) -> str:
    """The report of one run, or the comparison of several."""
    labels = run_labels([figures.run.directory for figures in runs])
    return page(
        labels[0] if len(runs) == 1 else f"{len(runs)} runs compared",
        [_card(label, figures) for label, figures in zip(labels, runs, strict=True)],
        sections(runs[0]) if len(runs) == 1 else comparison_sections(runs),
        VIEWS,
        config=_described(runs[0]) if len(runs) == 1 else "",
    )


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


def _card(label: str, figures: Figures) -> dict[str, Any]:
    """A run's headline, its figures at a glance and its notes."""
    played = [row["seconds"] + row["before"] for row in figures["stages"]]
    living = [row for row in figures["members"] if row["died_generation"] is None]
    tiles = [
        (f"{figures.last} / {figures.target}", "generations"),
        *((str(sum(row["role"] == role for row in living)), f"{role}s alive") for role in figures.roles()),
        *(
            (number(sum(row[what] for row in figures["figures_generation"])), what)
            for what in ("problems", "attempts")
        ),
        (seconds(sum(played)), "by the clock"),
    ]
    found: list[Note] = notes(figures)
    return {"label": label, "headline": headline(figures), "tiles": tiles, "notes": found}


def _described(figures: Figures) -> str:
    record = figures.run.record
    kept = {key: record[key] for key in ("created_at", "code_revision", "versions", "forked_from", "config")}
    return json.dumps(kept, indent=1)


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
        "visible": visible,
        "excerpt": excerpt,
        "percent": percent,
        "plain": plain,
        "signed": signed,
    }
    return environment
