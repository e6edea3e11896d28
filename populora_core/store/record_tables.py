"""The tables that the catalogue reads from run.json: what the run is, and its settings."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from populora_core.store.columns import FLOAT, INT, LONG, TEXT, TIME, Column, Table
from populora_core.store.record import RECORD, RECORDED
from populora_core.support.aliases import Row
from populora_core.support.errors import DamagedText
from populora_core.support.received import validated

_DECLARED = (
    Table(
        "runs",
        (),
        "What run.json says of the run.",
        (
            Column("created_at", TIME, "When the run was started, in UTC."),
            Column("base", TEXT, "Its base model: `base.path`."),
            Column("base_digest", TEXT, "sha256 of the base model's files."),
            Column("dialect", TEXT, "In which dialect the base is asked: `base.dialect`."),
            Column("seed", LONG, "`run.seed`.", nullable=True),
            Column("generations", INT, "How many it is to have: `run.generations`.", nullable=True),
            Column("code_revision", TEXT, "Revision of the code that started it."),
            Column("forked_from", TEXT, "The run that it was forked from; null for none.", nullable=True),
            Column("forked_generation", INT, "The last generation that it took over.", nullable=True),
        ),
    ),
    Table(
        "settings",
        (),
        "The run's settings, one a row.",
        (
            Column("setting", TEXT, "`section.key`, as in docs/configuration.md."),
            Column("value", TEXT, "Its value: text as it is, anything else as JSON."),
            Column("number", FLOAT, "The value where it is a number.", nullable=True),
        ),
    ),
)

RECORD_TABLES: dict[str, Table] = {table.name: table for table in _DECLARED}


def record_rows(run_dir: Path) -> dict[str, list[Row]]:
    """The rows of each of the tables; none where there is no record that can be read."""
    try:
        record = validated(RECORDED, (run_dir / RECORD).read_bytes(), RECORD)
    except (OSError, DamagedText):
        return {table: [] for table in RECORD_TABLES}
    config, origin = record["config"], record.get("forked_from")
    base = config.get("base", {})
    run = {
        "created_at": record["created_at"].removesuffix("+00:00"),
        "base": str(base.get("path", "")),
        "base_digest": record["base_digest"],
        "dialect": str(base.get("dialect", "")),
        "seed": _whole(config.get("run", {}).get("seed"), 63),
        "generations": _whole(config.get("run", {}).get("generations"), 31),
        "code_revision": record["code_revision"],
        "forked_from": origin["run"] if origin else None,
        "forked_generation": origin["generation"] if origin else None,
    }
    settings = [
        {
            "setting": f"{section}.{key}",
            "value": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False),
            "number": _number(value),
        }
        for section, keys in config.items()
        for key, value in keys.items()
    ]
    return {"runs": [run], "settings": settings}


def _whole(value: Any, bits: int) -> int | None:
    return value if isinstance(value, int) and abs(value) < 1 << bits else None


def _number(value: Any) -> float | None:
    try:
        return float(value) if type(value) in (int, float) and math.isfinite(value) else None
    except OverflowError:
        return None
