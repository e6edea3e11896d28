"""Plots of the hyperparameters that members inherit: where selection moves each."""

from __future__ import annotations

from collections.abc import Iterator

from populora_core.report.charts import Plot, Series, line_plot
from populora_core.report.figures import Figures
from populora_core.report.palette import ROLES
from populora_core.report.series import where
from populora_core.report.text import number, plain

TITLES = {
    "learning_rate": "Learning rates",
    "temperature": "Sampling temperatures",
    "replay": "Weights when repeated problems are dealt",
}


def hyperparameter_plots(figures: Figures) -> Iterator[Plot | None]:
    """Yield a plot of each number that members inherit, a line for each role."""
    rows = figures["hyperparameters"]
    for name, title in TITLES.items():
        lines = []
        for role in figures.roles():
            own = where(rows, name=name, role=role)
            points = [(row["generation"], row["typical"]) for row in own]
            band = [(row["generation"], row["lowest"], row["highest"]) for row in own]
            lines.append(Series(plain(role), ROLES[role], points, (band,)))
        says = "The geometric mean of the living, and between the least and the largest of them."
        yield line_plot(title, says, "inherited", lines, number, zero=False)
