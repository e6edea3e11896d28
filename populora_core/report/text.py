"""Numbers and model-written text as a person reads them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from populora_core.problems.types import PROBLEM_TYPES
from populora_core.sandbox.literals import NotPlainData, written_arguments
from populora_core.support.visible import visible

if TYPE_CHECKING:
    from populora_core.benchmarks.metrics import Interval

Format = Callable[[float], str]

NARROW = "\u00a0"  # between a number and its unit, which stay on one line


def percent(value: float) -> str:
    """A share; below ten per cent with a decimal where it has one."""
    digits = f"{100 * value:.0f}" if abs(value) >= 0.0995 else f"{100 * value:.1f}".removesuffix(".0")
    return f"{digits}{NARROW}%"


def number(value: float) -> str:
    """Three significant digits, thousands and millions short, a true minus."""
    short = float(f"{value:.3g}")  # first, since rounding may reach the next size
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(short) >= size:
            return f"{short / (1000 if suffix == 'k' else size):.3g}{suffix}".replace("-", "−")
    return (f"{value:.0f}" if abs(short) >= 1000 else f"{short:.3g}").replace("-", "−")


def seconds(value: float) -> str:
    """Seconds up to two minutes, then minutes, then hours."""
    if value < 120:
        digits = f"{value:.0f}" if value >= 10 or value == 0 else f"{value:.1f}" if value >= 0.1 else "<0.1"
        return f"{digits}{NARROW}s"
    minutes = round(value / 60)
    if minutes < 120:
        return f"{minutes}{NARROW}min"
    return f"{minutes // 60}{NARROW}h{NARROW}{minutes % 60:02d}{NARROW}min"


def with_interval(score: Interval) -> str:
    """A share with its interval."""
    return f"{percent(score.value)} ({percent(score.low)} to {percent(score.high)})"


def signed(value: float, digits: int = 2) -> str:
    """The value with its sign, a true minus; plain 0 for what rounds to it."""
    return f"{value:+.{digits}f}".replace("-", "−") if round(value, digits) else "0"


def in_points(share: float) -> str:
    """A difference of two shares in whole points, as `+1 point`."""
    value = signed(100 * share, 0)
    return f"{value} {'point' if value[1:] == '1' else 'points'}"


def plain(name: str) -> str:
    """A problem type of ours in plain words, a role in the plural, anything else as it is."""
    title = getattr(PROBLEM_TYPES.get(name), "title", "")
    return title or (f"{name}s" if name in ("teacher", "student") else name)


def call(arguments: str) -> str:
    """A call of a program as it is written: `f(4)` for the argument tuple `(4,)`."""
    try:
        return f"f({', '.join(written_arguments(arguments))})"
    except NotPlainData:  # too long, or another package's problem type asks otherwise
        return f"f{arguments}"


def short_id(member_id: str) -> str:
    """`student-03-g0004` as `S3·g4`, which a crowded plot has room for."""
    match = re.fullmatch(r"(\w)\w*-(\d+)-g(\d+)", member_id)
    return f"{match[1].upper()}{int(match[2])}·g{int(match[3])}" if match else member_id


def listed(parts: list[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1] if parts else ""]))


def markdown_table(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """A table in Markdown: floats with four digits, a dash for what is not known."""
    return "\n".join(map(markdown_row, [header, ["---"] * len(header), *rows]))


def markdown_text(text: str) -> str:
    """A text of somebody else's that is shown as it is: no HTML, link, heading or code of it is taken for one."""
    shown = visible(text).replace("\n", " ")
    return (
        re.sub(r"([\\`*_{}\[\]()#+!|<>&~$])", r"\\\1", shown).replace("\\<", "&lt;").replace("\\&", "&amp;")
    )


def markdown_name(text: str, mark: str = "`") -> str:
    """A name in the type of code, or between other marks; text of other signs is shown as it is, without."""
    signs = r"[\w.:/@+-]" if mark else r"[\w.+-]"  # without marks an address would be a link
    return f"{mark}{text}{mark}" if re.fullmatch(signs + "{1,200}", text) else markdown_text(text)


def markdown_block(text: str) -> str:
    """Lines of code, between fences that none of them can be."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def markdown_row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(_markdown_cell, cells))} |"


def _markdown_cell(value: object) -> str:
    if value is None:
        return "–"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def mean(total: float, count: float) -> float | None:
    """The mean, None of nothing."""
    return total / count if count else None


def finite(value: float | None) -> float | None:
    """The value, None for NaN and infinities: a plot has no place for them."""
    return None if value is None or not math.isfinite(value) else value
