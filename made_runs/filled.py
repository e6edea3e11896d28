"""Stages committed with given tables, for runs that no model played."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from populora_core.store.adapters import place_adapters
from populora_core.store.artifacts import StageWriter


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
