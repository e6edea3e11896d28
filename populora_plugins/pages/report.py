"""The report of a run, and the comparison of several."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from populora_core.report.figures import Figures
from populora_core.report.notes import Note, headline, notes
from populora_core.report.page import page
from populora_core.report.text import number, seconds
from populora_core.store.catalogue import run_labels
from populora_plugins.pages.comparison import comparison_sections
from populora_plugins.pages.sections import sections

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


def _card(label: str, figures: Figures) -> dict[str, Any]:
    """A run's headline, its figures at a glance and its notes."""
    played = [row["seconds"] + row["before"] for row in figures["stages"]]
    living = [row for row in figures["members"] if row["died_generation"] is None]
    alive = {role: sum(row["role"] == role for row in living) for role in figures.roles()}
    anchored = any(row["anchors"] for row in figures["figures_generation"])
    tiles = [
        (f"{figures.done} / {figures.target}", "generations"),
        *((str(count), f"{role}{'s' * (count != 1)} alive") for role, count in alive.items()),
        *(
            (number(sum(row[what] for row in figures["figures_generation"])), what + also)
            for what, also in (("problems", ""), ("attempts", ", at anchors too" * anchored))
        ),
        (seconds(sum(played)), "by the clock"),
    ]
    found: list[Note] = notes(figures)
    return {"label": label, "headline": headline(figures), "tiles": tiles, "notes": found}


def _described(figures: Figures) -> str:
    kept = "created_at", "code_revision", "versions", "forked_from", "config"
    return json.dumps({key: figures.run.record.get(key) for key in kept}, indent=1)
