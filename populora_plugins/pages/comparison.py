"""Several runs side by side: the settings that differ, a table of differences, and the same plots overlaid."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from populora_core.benchmarks.strata import in_order
from populora_core.report.charts import Plot, Series, line_plot
from populora_core.report.figures import Figures
from populora_core.report.metrics import METRICS, Metric
from populora_core.report.page import ReportSection, ReportTable, drawn
from populora_core.report.scored import scored
from populora_core.report.series import SampleMean, changed, last_generations, noise, where
from populora_core.report.text import NARROW, finite, percent, plain, with_interval
from populora_core.store.catalogue import run_labels
from populora_plugins.pages.colours import styled
from populora_plugins.pages.lines import metric_line, reading

UNKNOWN = "–"


def comparison_sections(runs: Sequence[Figures]) -> list[ReportSection]:
    """The sections of a comparison; the first run is what the others are compared with."""
    labels = run_labels([figures.run.directory for figures in runs])
    overlaid = ReportSection(
        "overlay",
        "The same plots, overlaid",
        "One line per run. These are single runs: a difference between two of them may be chance.",
        drawn(_overlay(metric, part, runs, labels) for metric in METRICS for part in _facets(metric, runs)),
    )
    scores = ReportSection(
        "evaluations",
        "Held-out problems",
        "Mean score of a role's members; the suites `yardstick` and `validity` are each run's own.",
        drawn(_scores(key, runs, labels) for key in _suites(runs)),
    )
    return [
        section
        for section in (
            _settings(runs, labels),
            _levels(runs, labels),
            _differences(runs, labels),
            scores,
            overlaid,
        )
        if not section.empty
    ]


def _facets(metric: Metric, runs: Sequence[Figures]) -> list[str | None]:
    """The parts that get a plot each; [None] for one plot of everything."""
    if not metric.faceted:
        return [None]
    return list(dict.fromkeys(part for figures in runs for part in metric.parts_of(figures)))


def _overlay(metric: Metric, part: str | None, runs: Sequence[Figures], labels: Sequence[str]) -> Plot | None:
    styles = styled(labels)
    lines = [
        metric_line(metric, figures, part, label, styles[label], rates=True)
        for label, figures in zip(labels, runs, strict=True)
    ]
    return line_plot(
        _title(metric, part), reading(metric, lines), metric.unit, lines, metric.form, metric.zero
    )


def _differences(runs: Sequence[Figures], labels: Sequence[str]) -> ReportSection:
    """Every metric over the last generations that all runs have."""
    compared = last_generations(min(runs, key=lambda figures: figures.last))
    last, rows = compared[-1], []
    for metric in METRICS if last else ():
        facets = _facets(metric, runs)
        for part in facets if metric.parts == "roles" else [None, *(facets if facets != [None] else [])]:
            values = [metric.mean(figures, part, compared, rates=True) for figures in runs]
            if any(value is not None for value in values):
                rows.append(_difference_row(metric, part, dict(zip(labels, values, strict=True))))
    which = f"generation {last}" if len(compared) == 1 else f"generations {compared[0]} to {last}"
    title = f"Means over {which}; what is counted so far, at the end of them"
    table = ReportTable(title, rows, folded=False)
    says = (
        f"Differences are from {labels[0]}, in brackets the 95 % interval over problems, where it is known; ≈ is what "
        "lies within it. Counts are per 100 proposals, so that a larger run does not win by its size."
    )
    return ReportSection("differences", "What differs?", says, tables=(table,), folded=False)


def _levels(runs: Sequence[Figures], labels: Sequence[str]) -> ReportSection:
    """Share of each stratum that the solvers of each run, and its base, get right at the suite's last evaluation."""
    found = {
        label: own[-1]
        for label, figures in zip(labels, runs, strict=True)
        if (own := scored(figures.run.directory))
    }
    rows = []
    for suite in dict.fromkeys(item.suite for item in found.values()):
        asked = {label: item.by_stratum for label, item in found.items() if item.suite == suite}
        for name in in_order({stratum for strata in asked.values() for stratum in strata}):
            row = {"suite": suite, "stratum": name}
            for label in labels:
                of = asked.get(label, {}).get(name)
                row[label] = UNKNOWN if of is None else with_interval(of.solvers)
                row[f"{label}, base"] = UNKNOWN if of is None else percent(of.base.value)
            rows.append(row)
    says = "Mean of the solvers with its 95 % interval, after each run's last score; beside it the base."
    table = ReportTable("Held-out problems by level", rows, folded=False)
    return ReportSection("levels", "Which problems do they solve?", says, tables=(table,), folded=False)


def _difference_row(
    metric: Metric, part: str | None, values: Mapping[str, SampleMean | None]
) -> dict[str, str]:
    row = {"figure": _title(metric, part)}
    first = next(iter(values.values()))
    for place, (label, value) in enumerate(values.items()):
        row[label] = UNKNOWN if value is None else metric.form(value.mean)
        if place:
            row[f"{label}, difference"] = _difference(metric, first, value)
    return row


def _title(metric: Metric, part: str | None) -> str:
    return (
        metric.title
        + (f": {plain(part)}" if part else "")
        + (", per 100 proposals" if metric.counted else "")
    )


def _difference(metric: Metric, first: SampleMean | None, value: SampleMean | None) -> str:
    if first is None or value is None:
        return UNKNOWN
    difference = value.mean - first.mean
    told = _signed(metric, difference)
    wide = noise(first, value)
    if wide is None:
        return told if metric.form(first.mean) != metric.form(value.mean) else "0"
    within = "" if changed(first, value) else "≈ "
    low, high = (
        _signed(metric, end).removesuffix(f"{NARROW}points") for end in (difference - wide, difference + wide)
    )
    return f"{within}{told} ({low} to {high})"


def _signed(metric: Metric, difference: float) -> str:
    size = metric.form(abs(difference)).lstrip("+")
    if metric.form is percent:
        size = size.removesuffix("%") + "points"
    sign = "" if metric.form(abs(difference)) == metric.form(0.0) else "+" if difference > 0 else "−"
    return sign + size


def _suites(runs: Sequence[Figures]) -> list[tuple[str, str, str | None]]:
    return sorted(
        {(row["suite"], row["benchmark"], row["role"]) for figures in runs for row in figures["evaluations"]},
        key=str,
    )


def _scores(key: tuple[str, str, str | None], runs: Sequence[Figures], labels: Sequence[str]) -> Plot | None:
    suite, benchmark, role = key
    styles = styled(labels)
    lines = []
    for label, figures in zip(labels, runs, strict=True):
        rows = where(figures["evaluations"], suite=suite, benchmark=benchmark, role=role)
        lines.append(
            Series(label, styles[label], [(row["generation"], finite(row["score"])) for row in rows])
        )
    return line_plot(
        f"{suite}: {benchmark}, {plain(role or 'base')}", "Mean over members.", "score", lines, percent
    )


def _settings(runs: Sequence[Figures], labels: Sequence[str]) -> ReportSection:
    """The settings that are not the same in all runs."""
    flat = [dict(_flatten(figures.run.config.as_json())) for figures in runs]
    keys = list(dict.fromkeys(key for settings in flat for key in settings))
    values = {key: [json.dumps(settings.get(key)) for settings in flat] for key in keys}
    values["code revision"] = [figures.run.record["code_revision"] for figures in runs]
    rows = [
        {"setting": key, **dict(zip(labels, own, strict=True))}
        for key, own in values.items()
        if len(set(own)) > 1
    ]
    table = ReportTable("Settings that are not the same", rows, folded=False)
    return ReportSection("settings", "What was set differently?", "", tables=(table,), folded=False)


def _flatten(data: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
