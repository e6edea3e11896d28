"""Colours of stages, verdicts and whatever else a report tells apart."""

from __future__ import annotations

from collections.abc import Sequence

from populora_core.report.palette import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LINES,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
    Style,
)

STAGES = {
    "found": GREY,
    "match": BLACK,
    "propose": ORANGE,
    "verify": SKY,
    "solve": BLUE,
    "grade": YELLOW,
    "update": GREEN,
    "evolve": PURPLE,
    "evaluate": VERMILLION,
}
INFRASTRUCTURE = "infrastructure"  # no finding, hence in no group
# Verdicts in groups that mean one thing to a reader; more colours than these cannot be told apart.
VERDICTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "valid": (GREEN, ("valid",)),
    "correct": (GREEN, ("correct",)),
    "wrong": (SKY, ("wrong",)),
    "duplicate": (SKY, ("duplicate",)),
    "trivial": (BLUE, ("trivial",)),
    "malformed": (ORANGE, ("format_error", "syntax_error")),
    "fails when run": (VERMILLION, ("runtime_error", "nondeterministic", "not_plain_data")),
    "over a limit": (PURPLE, ("timeout", "out_of_memory", "output_limit")),
    "forbidden": (BLACK, ("forbidden",)),
    "not judged": (YELLOW, ()),
}


def styled(names: Sequence[str]) -> dict[str, Style]:
    """A style for each name, by its place; they repeat after eight."""
    return {name: LINES[index % len(LINES)] for index, name in enumerate(names)}
