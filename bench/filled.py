"""Arrow columns filled by rule, and stages committed with them, for runs that no model played."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from populora_core.store.adapters import place_adapters
from populora_core.store.artifacts import StageWriter

Columns = dict[str, Any]


def first(columns: Columns, rows: int) -> Columns:
    return {name: values[:rows] for name, values in columns.items()}


def repeat(values: Any, times: int) -> pa.Array:
    """Every value so many times in a row."""
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return array.take(pa.array(np.arange(len(array)).repeat(times)))


def numbers(count: int, times: int, digits: int) -> pa.Array:
    """0 to count - 1 with leading zeros, over and over."""
    return pa.array([f"{number:0{digits}d}" for number in range(count)] * times)


def texts(numbers: np.ndarray) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def joined(*parts: Any) -> pa.Array:
    """Texts and columns of texts, put together row by row."""
    return pc.binary_join_element_wise(*parts, "")


def lists(values: pa.Array, before: str, after: str) -> pa.Array:
    """Lists of one text each."""
    return pa.ListArray.from_arrays(np.arange(len(values) + 1, dtype=np.int32), joined(before, values, after))


def tokens(values: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Lists of numbers of the given lengths."""
    return pa.ListArray.from_arrays(np.r_[0, np.cumsum(lengths)].astype(np.int32), pa.array(values))


def commit_stage(
    run_dir: Path,
    generation: int,
    stage: str,
    tables: Mapping[str, pa.Table],
    extra: Columns | None = None,
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
