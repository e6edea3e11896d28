"""A run on one screen of Markdown: headline, what to look at, a line per generation."""

from __future__ import annotations

from collections.abc import Iterator

from populora_core.report.figures import Figures
from populora_core.report.notes import Note, headline, notes
from populora_core.report.text import markdown_table, percent, short_id, visible
from populora_core.support.aliases import Row


def overview(figures: Figures) -> str:
    """An overview of the run in Markdown, for a page that cannot show the report."""
    parts = [f"# {visible(figures.run.name)}", *headline(figures)]
    if found := notes(figures):
        parts += ["## What to look at", "\n".join(map(_item, found))]
    if figures.last:
        roles = figures.roles()
        header = ("generation", "valid", "solved", *(f"leading {role}" for role in roles), "seconds")
        parts.append(markdown_table(header, _lines(figures, roles)))
    return "\n\n".join(parts) + "\n"


def _item(note: Note) -> str:
    return f"- {note.text}" + (f" `{note.command}`" if note.command else "")


def _lines(figures: Figures, roles: list[str]) -> Iterator[tuple[object, ...]]:
    """A line per generation, the newest first; of each role the member of the highest fitness."""
    took: dict[int, float] = {}
    for row in figures["stages"]:
        took[row["generation"]] = took.get(row["generation"], 0.0) + row["seconds"] + row["before"]
    rated: dict[tuple[int, str], list[Row]] = {}
    for row in figures["ratings"]:
        rated.setdefault((row["generation"], row["role"]), []).append(row)
    for row in reversed(figures["figures_generation"]):
        number = row["generation"]
        yield (
            number,
            _share(row["valid"]),
            _share(row["solve_rate"]),
            *(_first(rated.get((number, role), [])) for role in roles),
            round(took.get(number, 0.0)),
        )


def _first(rows: list[Row]) -> str | None:
    ranked = sorted(rows, key=lambda row: (not row["eligible"], -row["fitness"], row["member_id"]))
    return short_id(ranked[0]["member_id"]) if ranked else None


def _share(value: float | None) -> str | None:
    return None if value is None else percent(value)
