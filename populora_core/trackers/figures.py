"""What trackers are told: the report's figures of each generation, under names that group by their first part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from populora_core.report.figures import Figures
from populora_core.report.metrics import LOSS, METRICS, Metric
from populora_core.report.text import finite

By = dict[int, dict[str, float]]


def by_generation(figures: Figures) -> By:
    """generation -> name -> value, for every generation that was played; what a generation lacks is left out."""
    found = _Found({generation: {} for generation in figures.generations})
    for metric in (*METRICS, LOSS):
        _add_metric(found, figures, metric)
    for table in ("proposals", "attempts"):
        for row in figures[table]:
            found.add(f"{table[:-1]}_verdicts/{row['verdict']}", row["generation"], row["n"])
    for row in figures["ratings"]:
        found.add(f"rating_mu/{row['member_id']}", row["generation"], row["mu"])
        found.add(f"fitness/{row['member_id']}", row["generation"], row["fitness"])
    for row in figures["stages"]:
        found.add(f"stage_seconds/{row['stage']}", row["generation"], row["seconds"])
    for row in figures["evaluations"]:
        who = row["role"] or "base"
        found.add(f"score/{row['suite']}, {row['benchmark']}, {who}", row["generation"], row["score"])
    return found.values


@dataclass(frozen=True, slots=True)
class _Found:
    values: By = field(default_factory=dict)

    def add(self, name: str, generation: int, value: float | None) -> None:
        """Add a value; rows of one name and generation add up."""
        own, value = self.values.get(generation), finite(value)
        if own is not None and value is not None:
            own[name] = own.get(name, 0.0) + value


def _add_metric(found: _Found, figures: Figures, metric: Metric) -> None:
    name = metric.title.lower().replace(" ", "_").replace("'", "")
    parts: Iterable[tuple[str, str | None]] = [(f"{name}/{part}", part) for part in metric.parts_of(figures)]
    if metric.parts == "none":
        parts = [(name, None)]
    elif metric.parts == "types":
        parts = [*parts, (f"{name}/all", None)]
    for label, part in parts:
        for generation, value in metric.points(figures, part):
            found.add(label, int(generation), value)
