"""Plots: ticks say where they are, names never overlap, a line is broken where nothing is known."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora_core.report import text
from populora_core.report.charts import Series, line_plot
from populora_core.report.palette import LINES
from populora_core.report.svg import round_ticks, spread, tick_labels, ticks
from populora_plugins.pages.heat_map import HeatMapCell, heat_map
from populora_plugins.pages.lines import one_error, smoothed


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 10))
def test_ticks_are_few_rising_and_inside(low: float, span: float, most: int) -> None:
    found = ticks(low, low + span, most)
    assert 1 <= len(found) <= most
    assert found == sorted(found)
    slack = 1e-6 * max(1.0, abs(low), abs(low + span))
    assert all(low - slack <= value <= low + span + slack for value in found)


UNITS = {"": 1.0, "%": 0.01, "s": 1.0, "min": 60.0, "h": 3600.0}


def place(label: str) -> tuple[float, str]:
    """The value that a label of an axis says, and its unit."""
    digits, _, unit = label.replace("−", "-").partition(text.NARROW)
    return float(digits) * UNITS[unit], unit


@given(
    st.floats(-1e4, 1e4),
    st.floats(1e-3, 1e4),
    st.sampled_from([text.number, text.percent, text.signed, text.seconds]),
)
def test_a_tick_says_exactly_where_it_is(low: float, span: float, form: text.Format) -> None:
    low = abs(low) if form is text.seconds else low
    values = round_ticks(low, low + span, 6, form)
    labels = tick_labels(values, form)
    if max(map(abs, values)) < 1e4 or form is text.seconds:
        said, units = zip(*map(place, labels), strict=True)
        assert said == pytest.approx(values, rel=1e-4, abs=1e-9 + 1e-4 * span)
        assert len(set(units)) == 1
    assert len(set(labels)) == len(labels)


@given(st.floats(1e-7, 2.0), st.floats(0.05, 10.0))
def test_a_tick_of_inherited_numbers_says_exactly_where_it_is(low: float, times: float) -> None:
    """They were rounded to two digits: temperatures read 0.95, 1, 1.1, 1.1 and 1.2."""
    values = round_ticks(low, low + times * low, 6, text.number)
    assert [place(label)[0] for label in tick_labels(values, text.number)] == pytest.approx(values, rel=1e-4)


def test_an_axis_of_time_has_one_unit() -> None:
    """It read 0 s, 50 s, 100 s, 2 min, 3 min and 4 min."""

    def read(high: float) -> list[str]:
        labels = tick_labels(round_ticks(0.0, high, 6, text.seconds), text.seconds)
        return [label.replace(text.NARROW, " ") for label in labels]

    assert read(252.0) == ["0 min", "1 min", "2 min", "3 min", "4 min"]
    assert read(90.0) == ["0 s", "20 s", "40 s", "60 s", "80 s"]
    assert read(9000.0) == ["0.0 h", "0.5 h", "1.0 h", "1.5 h", "2.0 h", "2.5 h"]
    assert tick_labels([0.95, 1.0, 1.05, 1.1, 1.15], text.number) == ["0.95", "1.00", "1.05", "1.10", "1.15"]
    assert tick_labels([1e-5, 1.5e-5, 2e-5], text.number) == ["1.0e−05", "1.5e−05", "2.0e−05"]
    assert tick_labels([0.0, 2e-5], text.number) == ["0", "2e−05"]


def test_ticks_around_ten_thousand_are_told_apart() -> None:
    """9995 and 10000 were both shown as 10k."""
    assert tick_labels([9990.0, 9995.0, 10000.0], text.number) == ["9990", "9995", "10000"]
    assert tick_labels([0.0, 5000.0, 10000.0], text.number) == ["0", "5000", "10k"]


def test_ticks_of_two_and_a_half_per_cent_are_told_apart() -> None:
    """They were shown as 32, 30, 28 and 25 %."""
    labels = tick_labels([0.25, 0.275, 0.3, 0.325], text.percent)
    assert [label.replace(text.NARROW, " ") for label in labels] == ["25.0 %", "27.5 %", "30.0 %", "32.5 %"]


@given(st.lists(st.floats(0, 200), min_size=1, max_size=6))
def test_names_at_the_ends_of_lines_never_overlap(wanted: list[float]) -> None:
    placed = sorted(spread(wanted, 27.0, 192.0))
    assert all(after - before >= 27.0 - 1e-6 for before, after in pairwise(placed))
    assert placed[-1] <= 192.0 + 1e-6


def test_a_line_is_broken_where_there_is_no_value() -> None:
    plot = line_plot("t", "s", "u", [Series("a", LINES[0], [(1, 0.1), (2, None), (3, 0.3), (4, 0.4)])])
    assert plot is not None
    (line,) = (e for e in ElementTree.fromstring(str(plot.drawing)).iter() if e.get("stroke-width") == "2")
    assert line.get("d", "").count("M") == 2
    assert line_plot("t", "s", "u", [Series("a", LINES[0], [(1, None)])]) is None


def test_a_band_is_broken_where_there_is_no_value_or_no_error() -> None:
    points = [(1, 1.0), (2, None), (3, 3.0), (4, 4.0), (5, 5.0), (6, 6.0)]
    pieces = one_error(points, {1: 0.5, 3: 0.5, 4: 0.5, 6: 0.5})
    assert [[x for x, *_ in piece] for piece in pieces] == [[1], [3, 4], [6]]
    assert one_error(points, {}) == ()


def test_the_key_of_a_heat_map_ends_at_shares_that_there_are() -> None:
    cells = {("t", name): HeatMapCell(value, "") for name, value in (("a", 1.0), ("b", 1.0), ("c", 0.1))}
    plot = heat_map("t", "s", ["t"], ["a", "b", "c"], cells)
    assert plot is not None
    drawn = str(plot.drawing).replace(text.NARROW, " ")
    assert ">10 %<" in drawn and ">100 % solved<" in drawn
    *squares, low, _, _, _, _, _, _, _, _, _, high = re.findall('fill="(#[^"]+)"', drawn)
    assert squares == [high, high, low], "they have the colour of their share"


def test_a_long_line_is_smoothed_and_its_single_points_are_thin() -> None:
    points = [(x, None if x == 9 else float(x % 2)) for x in range(1, 21)]
    means = dict(smoothed(points))
    assert means[4] == pytest.approx(2 / 5) and means[1] == pytest.approx(2 / 3)
    assert means[9] is None and means[8] == pytest.approx(1 / 4)
    assert smoothed(points[:14]) == ()
    plot = line_plot("t", "s", "u", [Series("a", LINES[0], points, smooth=smoothed(points))])
    assert plot is not None
    widths = [e.get("stroke-width") for e in ElementTree.fromstring(str(plot.drawing)).iter()]
    assert widths.count("1") == widths.count("2") == 1
