"""Drift: the part of a stage's key, or of its files, that moved since it was committed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from populora_core.runs.run import Run
from populora_core.stages.decisive import ADDED
from populora_core.stages.plan import MADE_WITH, StagePlan
from populora_core.stages.table import file_name
from populora_core.store.adapters import state_intact
from populora_core.store.artifacts import read_table
from populora_core.store.manifest import Manifest, damaged, intact, read_manifest, stage_dir

UNRECORDED = "something that its manifest does not record"
"""The part of a key that a manifest without `made_with` is silent about."""
ASKED = "asked for"
LONGEST = 200  # letters of a value that are shown


def drift(run: Run, plan: StagePlan) -> list[str] | None:
    """The reasons to make a committed stage again, as phrases; None where nothing was committed."""
    folder = stage_dir(run.directory, plan.generation, plan.stage.name)
    found = read_manifest(folder)
    if found is None:
        return None
    lost = [
        f"{name} is missing or damaged" for name in (*damaged(folder, found), *_lost_adapters(run, found))
    ]
    if found.key == plan.key:
        return lost or [ASKED]
    return [*moved(found, plan.decides), *lost] or [UNRECORDED]


def moved(found: Manifest, decides: Mapping[str, Any]) -> Iterator[str]:
    """The parts of the key that a committed stage was made with otherwise."""
    if found.stage_version != decides["version"]:
        yield f"version {found.stage_version} → {decides['version']}"
    if found.seed != decides["seed"]:
        yield f"seed {found.seed} → {decides['seed']}"
    yield from moved_settings(found.config, decides["config"])
    inputs = decides["inputs"]
    for what, names in (
        ("other content of", [n for n, sha in inputs.items() if found.inputs.get(n, sha) != sha]),
        ("it reads", sorted(inputs.keys() - found.inputs.keys())),
        ("it no longer reads", sorted(found.inputs.keys() - inputs.keys())),
    ):
        if names:
            yield f"{what} {', '.join(names)}"
    before: Mapping[str, Any] = found.extra.get("made_with", decides)
    for name in MADE_WITH:
        if before.get(name) != decides[name]:
            yield f"{name} {_shown(before.get(name))} → {_shown(decides[name])}"


def moved_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The settings that differ between two choices of deciding ones, old value and new."""
    for section in sorted(before.keys() | now.keys()):
        if section not in before or section not in now:
            yield f"[{section}] {'decides' if section in now else 'no longer decides'}"
            continue
        if not isinstance(now[section], Mapping):
            if before[section] != now[section]:
                yield f"{section} {_shown(before[section])} → {_shown(now[section])}"
            continue
        old, new = (ADDED.get(section, {}) | side[section] for side in (before, now))
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                yield f"{section}.{key} {_shown(old.get(key))} → {_shown(new.get(key))}"


def is_whole(run: Run, folder: Path, found: Manifest) -> bool:
    """True if a committed stage has all its files and adapters."""
    return intact(folder, found) and not any(_lost_adapters(run, found))


def recorded_alike(plan: StagePlan, found: Manifest, folder: Path) -> bool:
    """True for an evaluation whose key is of a time before these were stages, if all that it recorded is as planned."""
    (source,) = plan.sources["population"]
    population = read_manifest(source)
    return (
        population is not None
        and "made_with" not in found.extra
        and found.inputs == {"population": population.contents[file_name("population")]}
        and found.config == {"suite": plan.settings["suite"]}
        and set(read_table(folder, "evaluations", ["member_id"]).column(0).to_pylist())
        == {player for player, _ in plan.settings["players"]}
    )


def _lost_adapters(run: Run, found: Manifest) -> Iterator[str]:
    members: Mapping[str, Mapping[str, str]] = found.extra.get("adapters", {})
    return (path for path, hashes in members.items() if not state_intact(run.directory / path, hashes))


def _shown(value: object) -> str:
    """A value as a person knows it; of a digest the beginning."""
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value)
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    return re.sub(r"\b([0-9a-f]{8})[0-9a-f]{32,}\b", r"\1", text)
