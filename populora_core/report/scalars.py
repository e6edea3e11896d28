"""Figures for trackers: the report's figures of each generation, under names that group by their first part."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from populora_core.report.figures import Figures
from populora_core.report.metrics import LOSS, METRICS
from populora_core.report.text import finite
from populora_core.runs.trackers import GenerationFigures
from populora_core.stages.table import stages_of


def whole_generations(figures: Figures) -> list[GenerationFigures]:
    """The figures of each generation from the first on, up to the first one that is not whole.

    A digest is of the keys of its stages, so it changes with what the generation was made from, and not when a stage
    is only made again.
    """
    keys: dict[int, dict[str, str]] = {}
    for row in figures["stages"]:
        keys.setdefault(row["generation"], {})[row["stage"]] = row["key"]
    named, found = by_generation(figures), []
    for generation in figures.generations:
        own = keys.get(generation, {})
        names = [stage.name for stage in stages_of(generation)]
        if not all(name in own for name in names):
            break
        digest = hashlib.sha256("\0".join(own[name] for name in names).encode()).hexdigest()[:16]
        found.append(GenerationFigures(digest, named[generation]))
    return found


def by_generation(figures: Figures) -> dict[int, dict[str, float]]:
    """generation -> name -> value, for every generation that was played; what a generation lacks is left out.

    Names are made of keys, of metrics and of rows: a title may be worded otherwise at any time.
    """
    found: dict[int, dict[str, float]] = {generation: {} for generation in figures.generations}
    for name, generation, value in _named(figures):
        own, known = found.get(int(generation)), finite(value)
        if own is not None and known is not None:
            own[name] = own.get(name, 0.0) + known  # verdicts come by type, and are told of all types
    return found


def _named(figures: Figures) -> Iterator[tuple[str, float, float | None]]:
    """(name, generation, value)."""
    for metric in (*METRICS, LOSS):
        for part in (
            metric.parts_of(figures) if metric.parts == "roles" else [*metric.parts_of(figures), None]
        ):
            name = metric.key if metric.parts == "none" else f"{metric.key}/{part or 'all'}"
            yield from ((name, *point) for point in metric.points(figures, part))
    for row in figures["verdicts"]:
        yield f"{row['what'].removesuffix('s')}_verdicts/{row['verdict']}", row["generation"], row["n"]
    for row in figures["ratings"]:
        yield f"rating_mu/{row['member_id']}", row["generation"], row["mu"]
        yield f"fitness/{row['member_id']}", row["generation"], row["fitness"]
    for row in figures["stages"]:
        yield f"stage_seconds/{row['stage']}", row["generation"], row["seconds"]
    for row in figures["metrics"]:
        yield f"recorded/{row['stage']}/{row['name']}", row["generation"], row["value"]
    for row in figures["evaluations"]:
        name = f"score/{row['suite']}, {row['benchmark']}, {row['role'] or 'base'}"
        yield name, row["generation"], row["score"]
