"""run.json as it is read: of this format, with the rules that older versions had where it lacks a setting."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from populora_core.store.record import FORMAT, RECORDED, RunRecord
from populora_core.support.errors import RunDirectoryError
from populora_core.support.plain import read_plain
from populora_core.support.received import read_json, validated

FORMER: Mapping[str, Mapping[str, object]] = {"evolve": {"inherit": False, "last_share": 0.0}}
"""section -> setting -> the rule before there was such: children started afresh, and births never ended."""


def read_record(path: Path) -> dict[str, Any]:
    """The record of a run.

    Raises:
        RunDirectoryError: it has another format.
        OSError, ValueError: it cannot be read.
    """
    found = read_json(path)
    if isinstance(found, dict) and found.get("format", FORMAT) != FORMAT:
        raise RunDirectoryError(
            f"{path} was written by another version",
            expected=f"format {FORMAT}",
            got=f"format {found['format']}",
            fix=f"open it with the code that wrote it (revision {found.get('code_revision')}); "
            "this one starts new runs: --run-dir NEW",
        )
    record: RunRecord = validated(RECORDED, read_plain(path), path)
    return dict(record)


def recorded_settings(record: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings that a run was started with, section by section."""
    return {section: {**FORMER.get(section, {}), **own} for section, own in record["config"].items()}
