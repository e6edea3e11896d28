"""Rows and stages of runs that no model played, each with what is told of it and nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from populora_core.store.adapters import place_adapters
from populora_core.store.artifacts import StageWriter
from populora_core.store.columns import BOOL, FLOAT, INT, LONG, TEXT, Column
from populora_core.store.tables import TABLES

_BLANK: dict[pa.DataType, Any] = {INT: 0, LONG: 0, FLOAT: 0.0, TEXT: "", BOOL: False}


def filled(table: str, **values: Any) -> dict[str, Any]:
    """A row of a declared table with these values: any other column is null where it may be, else 0, empty or false."""
    return {column.name: _blank(column) for column in TABLES[table]} | values


def _blank(column: Column) -> Any:
    if column.nullable:
        return None
    return [] if pa.types.is_list(column.type) else _BLANK[column.type]


def commit_stage(
    run_dir: Path,
    generation: int,
    stage: str,
    tables: Mapping[str, pa.Table],
    extra: dict[str, Any] | None = None,
    adapters: Path | None = None,
) -> None:
    """Write a stage's tables as the stage would, with a manifest that names no inputs.

    Args:
        adapters: the folder of the PEFT folders that `extra` names, which move to their places.
    """
    with StageWriter(run_dir, generation, stage) as writer:
        for name, table in tables.items():
            writer.write_table(name, table)
        manifest = writer.draft(
            key="0" * 64,
            stage_version=1,
            seed=0,
            config={},
            inputs={},
            started=1.8e9 + 60 * generation,
            seconds=5.0,
            code_revision="none",
            extra=extra,
        )
        if adapters is not None:
            os.rename(adapters, writer.scratch / "adapters")
            place_adapters(run_dir, writer, manifest)
        writer.commit(manifest)
