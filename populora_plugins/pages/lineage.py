"""The lineage tree of a role: a lane per slot, a bar per life, and a curve from each parent to its child."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from populora_core.report import svg
from populora_core.report.charts import GENERATION, Plot, PlotTable
from populora_core.report.figures import Figures
from populora_core.report.palette import LINES, Style
from populora_core.report.series import where
from populora_core.report.text import listed, number, short_id
from populora_core.support.aliases import Row

LANE = 42.0
LETTER = 5.6  # about the width of a letter of the operators' names
NAMES = 58.0  # for who lives at the end


def lineage_plot(figures: Figures, role: str) -> Plot | None:
    """The births, lives and replacements of a role; None before anyone was replaced."""
    members = where(figures["members"], role=role)
    if figures.last == 0 or not any(member["parent_ids"] for member in members):
        return None
    slots = sorted({member["slot"] for member in members})
    lane = {slot: svg.TOP + LANE * (index + 0.75) for index, slot in enumerate(slots)}
    height = svg.TOP + LANE * (len(slots) + 0.4) + svg.BOTTOM
    area = svg.frame((0.0, float(figures.last)), (0.0, 1.0), height, right=NAMES)
    styles = {slot: LINES[index % len(LINES)] for index, slot in enumerate(slots)}
    known = {member["member_id"]: member for member in members}
    parts = [
        svg.element("line", class_="grid", x1=area.x(value), x2=area.x(value), y1=svg.TOP, y2=area.bottom)
        for value in svg.ticks(area.x.low, area.x.high, 8, whole=True)
    ]
    parts.append(svg.x_axis(area, GENERATION))
    for child in members:
        for parent in filter(None, map(known.get, child["parent_ids"])):
            parts.append(
                _descent(area, child, lane[parent["slot"]], lane[child["slot"]], styles[parent["slot"]])
            )
    for slot in slots:
        parts.append(svg.text(f"{role[0].upper()}{slot}", svg.LEFT - 14, lane[slot] + 4, "end"))
        lives = sorted(where(members, slot=slot), key=lambda member: member["born_generation"])
        parts += _operators(area, lives, lane[slot])
        for life in lives:
            parts.append(_life(area, life, lane[slot], styles[slot], figures.last))
        parts.append(svg.text(short_id(lives[-1]["member_id"]), area.x.end + 8, lane[slot] + 4, "start"))
    title = f"Lineage of the {role}s"
    says = (
        "A lane is a slot of the population, a ring a birth, on the right who lives now. Curves lead from the "
        "parents to the child."
    )
    told = [(None, _told(member, figures.last)) for member in members]
    table = PlotTable(("member", "made by", "parents", "born", "until"), told)
    return Plot(title, says, svg.drawing(f"{title}. {says}", parts, height), table=table)


def _told(member: Row, last: int) -> tuple[str, ...]:
    died = member["died_generation"]
    until = f"replaced in generation {died}" if died is not None and died <= last else "alive"
    made = member["operator"] if member["parent_ids"] else "founder"
    return member["member_id"], made, listed(member["parent_ids"]), f"{member['born_generation']}", until


def _life(area: svg.Frame, member: Row, y: float, style: Style, last: int) -> Markup:
    died = member["died_generation"]
    gone = died is not None and died <= last
    born = area.x(member["born_generation"])
    end = area.x(died if gone else last)
    name, made, parents, at, until = _told(member, last)
    told = f"{name}: {made}{f' of {parents}' if parents else ''}; born in generation {at}, {until}"
    title, opacity = svg.element_title(told), "0.35" if gone else "0.85"
    width = max(end - born, 1.0)
    bar = svg.element(
        "rect", title, x=born, y=y - 4, width=width, height=8, fill=style.colour, fill_opacity=opacity
    )
    ring = {"cx": born, "cy": y, "r": 5, "stroke": style.colour, "stroke_width": 2}
    return bar + svg.element("circle", title, class_="ring", **ring)


def _descent(area: svg.Frame, child: Row, start: float, end: float, style: Style) -> Markup:
    x = area.x(child["born_generation"])
    bend = max(x - 26.0, svg.LEFT)
    return svg.element(
        "path",
        d=f"M{svg.px(bend)} {svg.px(start)}C{svg.px(x)} {svg.px(start)} {svg.px(bend)} {svg.px(end)} "
        f"{svg.px(x - 5)} {svg.px(end)}",
        fill="none",
        stroke=style.colour,
        stroke_width=1.6,
    )


def _operators(area: svg.Frame, lives: Sequence[Row], y: float) -> list[Markup]:
    """The operator's name at each birth, above the lane or below it, the newest first, as far as they fit."""
    free = {y - 10: area.x.end + 4, y + 17: area.x.end + 4}  # baseline -> the x from which on it is taken
    names = []
    for life in reversed(lives):
        width = LETTER * len(life["operator"])
        x = min(area.x(life["born_generation"]) - 2, area.x.end - width)
        track = next((track for track, taken in free.items() if x + width <= taken), None)
        if life["parent_ids"] and track is not None:
            free[track] = x - 4
            names.append(svg.text(life["operator"], x, track, "start", class_="small"))
    return names


def replacements(figures: Figures) -> list[dict[str, str]]:
    """One row a replacement, the newest first, for a table."""
    return [
        {
            "generation": str(row["generation"]),
            "removed": row["removed_id"],
            "its fitness": "" if row["removed_fitness"] is None else number(row["removed_fitness"]),
            "child": row["child_id"],
            "operator": row["operator"],
            "parents": ", ".join(row["parent_ids"]),
        }
        for row in sorted(figures["evolutions"], key=lambda row: -row["generation"])
    ]


def averages(figures: Figures) -> list[dict[str, str]]:
    """One row an average of a role, the newest first, for a table; how far members moved is their mean."""
    return [
        {
            "generation": str(row["generation"]),
            "role": row["role"],
            "members": str(row["members"]),
            "share of the way": f"{row['share']:.0%}",
            "moved by": "" if row["distance"] is None else f"{row['distance']:.0%}",
            "energy kept": f"{row['energy_kept']:.0%}",
        }
        for row in sorted(figures["averages"], key=lambda row: (-row["generation"], row["role"]))
    ]
