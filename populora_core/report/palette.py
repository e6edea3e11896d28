"""Colours that people with any colour vision tell apart, and a dash and a marker for each, for print in grey.

The colours are those of Okabe and Ito, Color Universal Design (2008), without its yellow where a thin line must show on
white.
"""

from __future__ import annotations

from dataclasses import dataclass

# name -> on a light page, on a dark one.
COLOURS = {
    "black": ("#000000", "#F0F3F6"),
    "orange": ("#E69F00", "#E69F00"),
    "sky": ("#56B4E9", "#56B4E9"),
    "green": ("#009E73", "#1FC197"),
    "yellow": ("#F0E442", "#F0E442"),
    "blue": ("#0072B2", "#4BA3E3"),
    "vermillion": ("#D55E00", "#F2792B"),
    "purple": ("#CC79A7", "#D98BB5"),
    "grey": ("#8A8A8A", "#9AA0A6"),
}
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE, GREY = (f"var(--{name})" for name in COLOURS)


def variables(dark: bool = False) -> str:
    """Declarations of the colours for a style sheet."""
    return " ".join(f"--{name}: {shades[dark]};" for name, shades in COLOURS.items())


@dataclass(frozen=True, slots=True)
class Style:
    """The style of a series in a plot.

    Attributes:
        dash: an SVG stroke-dasharray; empty for a solid line.
        marker: circle, square, triangle or diamond.
    """

    colour: str
    dash: str = ""
    marker: str = "circle"


LINES = (
    Style(BLUE, "", "circle"),
    Style(VERMILLION, "7 3", "square"),
    Style(GREEN, "2 3", "triangle"),
    Style(PURPLE, "9 3 2 3", "diamond"),
    Style(ORANGE, "5 2", "circle"),
    Style(SKY, "12 4", "square"),
    Style(BLACK, "1 2", "triangle"),
    Style(GREY, "4 4", "diamond"),
)
ROLES = {"teacher": LINES[1], "student": LINES[0], "solo": LINES[2]}
