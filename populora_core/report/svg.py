"""Small static SVG: scales, axes and the marks that charts are made of. Text stays text.

Every drawing is WIDTH units wide and meant to be shown near that many pixels wide, on a phone as on a desk, so its
letters are always about as large as the page's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from populora_core.report.palette import Style
from populora_core.report.text import NARROW, Format, number, percent, seconds, signed

WIDTH, HEIGHT = 400.0, 230.0
LEFT, RIGHT, TOP, BOTTOM = 60.0, 12.0, 10.0, 38.0
LETTER = 7.2  # about the width of one, on the generous side
LABEL_DEEP = 27.0  # of a line's name and value at its end
MARKER, MOST_MARKERS = 3.2, 14  # half its width; of one line
TIMES = ((7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (0.0, 1.0, "s"))  # from where on, size, name


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map of data from [low, high] to pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Frame:
    """The area that a chart draws in."""

    x: Scale
    y: Scale

    @property
    def bottom(self) -> float:
        return self.y.start


def px(value: float) -> str:
    """A coordinate, to a tenth of a unit."""
    return f"{value:.1f}".removesuffix(".0")


def element(name: str, content: object = None, **attributes: object) -> Markup:
    """One SVG element; `class_` and `stroke_width` become `class` and `stroke-width`, and all values are escaped."""
    text = Markup(" ").join(
        Markup('{}="{}"').format(
            key.rstrip("_").replace("_", "-"), px(value) if isinstance(value, float) else value
        )
        for key, value in attributes.items()
        if value is not None and value != ""
    )
    if content is None:
        return Markup("<{} {}/>").format(name, text)
    return Markup("<{} {}>{}</{}>").format(name, text, content, name)


def text(words: str, x: float, y: float, anchor: str = "middle", **attributes: object) -> Markup:
    """Words at a point; `anchor` says which part of them lies there."""
    return element("text", words, x=x, y=y, text_anchor=anchor, **attributes)


def upright(words: str, x: float, y: float) -> Markup:
    """Words that read upwards."""
    return text(words, x, y, transform=f"rotate(-90 {px(x)} {px(y)})")


def joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


def drawing(name: str, parts: Iterable[Markup], height: float = HEIGHT) -> Markup:
    """The whole drawing: to a screen reader one image of this name, whose numbers are in the table behind it."""
    size = f"0 0 {px(WIDTH)} {px(height)}"
    return element("svg", joined(parts), viewBox=size, role="img", aria_label=name)


def ticks(low: float, high: float, most: int, whole: bool = False) -> list[float]:
    """Round values within [low, high], at most `most` of them, all whole numbers if `whole`."""
    span = high - low
    exponent = math.floor(math.log10(span / most)) if span > 0 else 0
    for power in range(exponent, exponent + 3):
        for step in (1.0, 2.0, 2.5, 5.0):
            size = step * 10.0**power
            if whole and size != round(size):
                continue
            first, last = math.ceil(low / size - 1e-9), math.floor(high / size + 1e-9)
            if last - first < most:
                return [index * size for index in range(first, last + 1)]
    return [low]


def round_ticks(low: float, high: float, most: int, form: Format) -> list[float]:
    """Ticks that are round in the unit of their axis."""
    size, _ = unit_of(max(abs(low), abs(high)), form)
    return [size * value for value in ticks(low / size, high / size, most)]


def unit_of(largest: float, form: Format) -> tuple[float, str]:
    """The one unit that an axis counts in: its size, and what follows every number."""
    if form is percent:
        return 0.01, f"{NARROW}%"
    if form is seconds:
        return next((size, f"{NARROW}{name}") for least, size, name in TIMES if largest >= least)
    power = math.floor(math.log10(largest)) if largest else 0
    return (1.0, "") if power >= -4 else (10.0**power, f"e−{-power:02d}")


def tick_labels(values: Sequence[float], form: Format) -> list[str]:
    """The values along an axis, all in one unit and with as many decimals as tell each of them exactly.

    Large ones are short, as elsewhere, where that tells them apart.
    """
    short = [form(value) for value in values]
    largest = max(map(abs, values))
    large = largest >= 1e4 and form is not seconds and len({*short}) == len(short)
    if large or form not in (percent, number, signed, seconds):
        return short
    size, unit = unit_of(largest, form)
    shown = [value / size for value in values]
    near = 1e-9 * max(1.0, largest / size)
    digits = next(d for d in range(10) if all(abs(value - round(value, d)) <= near for value in shown))
    sign = "+" if form is signed else ""
    return [
        f"{value + 0.0:{sign if value else ''}.{digits}f}{unit}".replace("-", "−")
        if value or not unit.startswith("e")
        else "0"
        for value in shown
    ]


def value_range(values: Iterable[float], zero: bool) -> tuple[float, float]:
    """A y range with some air round the values; from or through zero if asked."""
    known = list(values)
    low, high = min(known), max(known)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    air = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return (low if zero and low == 0.0 else low - air), (
        high if zero and high == 0.0 and low < 0 else high + air
    )


def frame(
    xs: tuple[float, float], ys: tuple[float, float], height: float = HEIGHT, right: float = RIGHT
) -> Frame:
    low, high = xs if xs[0] < xs[1] else (xs[0] - 0.5, xs[1] + 0.5)
    return Frame(Scale(low, high, LEFT, WIDTH - right), Scale(*ys, height - BOTTOM, TOP))


def axes(area: Frame, x_label: str, y_label: str, y_format: Format) -> Markup:
    """Grid lines, tick labels and the two axis labels."""
    parts = []
    values = round_ticks(area.y.low, area.y.high, 6, y_format)
    for value, label in zip(values, tick_labels(values, y_format), strict=True):
        y = area.y(value)
        parts.append(
            element("line", class_="zero" if value == 0 else "grid", x1=LEFT, x2=area.x.end, y1=y, y2=y)
        )
        parts.append(text(label, LEFT - 6, y + 4, "end"))
    parts += [x_axis(area, x_label), upright(y_label, 12.0, (area.y.start + area.y.end) / 2)]
    return joined(parts)


def x_axis(area: Frame, label: str) -> Markup:
    """Tick labels and the label below them."""
    marks = [
        text(number(value), area.x(value), area.bottom + 15)
        for value in ticks(area.x.low, area.x.high, 8, whole=True)
    ]
    return joined([*marks, text(label, (area.x.start + area.x.end) / 2, area.bottom + 31)])


def polyline(
    area: Frame, points: Sequence[tuple[float, float | None]], style: Style, smooth: bool = False
) -> Markup:
    """A line through the points, broken where a value is None, with markers at some of them.

    Args:
        smooth: a smoothed line lies over it, so it is thin and pale.
    """
    known = [(x, y) for x, y in points if y is not None]
    step = max(1, math.ceil(len(known) / MOST_MARKERS))
    shown = known[::-1][::step]  # the newest is always marked
    shapes = "".join(marker(area.x(x), area.y(y), style.marker) for x, y in shown)
    width, opacity = (1, "0.5") if smooth else (2, None)
    return stroke(area, points, style, width, opacity) + element("path", d=shapes, fill=style.colour)


def stroke(
    area: Frame,
    points: Sequence[tuple[float, float | None]],
    style: Style,
    width: int = 2,
    opacity: str | None = None,
) -> Markup:
    """A line without markers."""
    path, pen = [], "M"
    for x, y in points:
        if y is None:
            pen = "M"
            continue
        path.append(f"{pen}{px(area.x(x))} {px(area.y(y))}")
        pen = "L"
    return element(
        "path",
        d="".join(path),
        fill="none",
        stroke=style.colour,
        stroke_width=width,
        stroke_dasharray=style.dash,
        stroke_opacity=opacity,
    )


def marker(x: float, y: float, shape: str) -> str:
    """The path of one marker."""
    size = MARKER
    at = f"{px(x)} {px(y)}"
    if shape == "square":
        return f"M{px(x - size)} {px(y - size)}h{2 * size}v{2 * size}h{-2 * size}z"
    if shape == "triangle":
        return f"M{px(x)} {px(y - size - 1)}l{size + 0.8} {2 * size}h{-2 * size - 1.6}z"
    if shape == "diamond":
        return f"M{px(x)} {px(y - size - 1)}l{size + 1} {size + 1}l{-size - 1} {size + 1}l{-size - 1} {-size - 1}z"
    return f"M{at}m{-size} 0a{size} {size} 0 1 0 {2 * size} 0a{size} {size} 0 1 0 {-2 * size} 0z"


def band(area: Frame, points: Sequence[tuple[float, float, float]], colour: str) -> Markup:
    """The area between the lower and the upper value at each x, as far as the frame reaches."""

    def at(x: float, value: float) -> str:
        return f"{px(area.x(x))} {px(area.y(min(max(value, area.y.low), area.y.high)))}"

    upper = [at(x, high) for x, _, high in points]
    lower = [at(x, low) for x, low, _ in reversed(points)]
    return element("path", d="M" + "L".join([*upper, *lower]) + "z", fill=colour, fill_opacity="0.13")


def rule(area: Frame, x: float, told: str) -> Markup:
    """A vertical line at something that happened, which says what when pointed at."""
    at = area.x(x)
    return element("line", element_title(told), class_="rule", x1=at, x2=at, y1=TOP, y2=area.bottom)


def spread(wanted: Sequence[float], apart: float, lowest: float) -> list[float]:
    """Heights near the wanted ones, at least so far apart, none below `lowest` (which is the largest y)."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    placed = list(wanted)
    for before, place in pairwise(order):
        placed[place] = max(placed[place], placed[before] + apart)
    for place in reversed(order):
        placed[place] = min(placed[place], lowest)
        lowest = placed[place] - apart
    return placed


def end_labels(area: Frame, ends: Sequence[tuple[float, str, str, Style]]) -> list[Markup]:
    """Names and newest values of lines, right of where they end.

    Args:
        ends: of each line the last value, its name, that value as text, and its style.
    """
    heights = spread([area.y(value) for value, *_ in ends], LABEL_DEEP, area.bottom - 10)
    x = area.x.end + 6
    return [
        element(
            "g",
            element("path", d=marker(x + 3, y - 4, style.marker), fill=style.colour)
            + text(name, x + 10, y, "start")
            + text(shown, x + 10, y + 12 * bool(name), "start", class_="value"),
            class_="label",
            data_series=str(place),
        )
        for place, ((_, name, shown, style), y) in enumerate(zip(ends, heights, strict=True))
    ]


def element_title(text: str) -> Markup:
    """A tooltip: the text that a browser shows while the pointer rests on an element."""
    return Markup("<title>{}</title>").format(escape(text))


def swatch(style: Style) -> Markup:
    """A small sample of a line for a legend."""
    line = element("path", d="M0 7H28", stroke=style.colour, stroke_width=2, stroke_dasharray=style.dash)
    mark = element("path", d=marker(14, 7, style.marker), fill=style.colour)
    return element("svg", line + mark, class_="swatch", viewBox="0 0 28 14", aria_hidden="true")


def block(colour: str) -> Markup:
    """A small sample of a filled part for a legend."""
    rect = element("rect", x=8, y=1, width=12, height=12, fill=colour)
    return element("svg", rect, class_="swatch", viewBox="0 0 28 14", aria_hidden="true")
