"""The tables that the catalogue reads from manifests: times are not content, so no Parquet file has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from populora_core.store.columns import FLOAT, INT, LONG, TEXT, TIME, Column, Table
from populora_core.store.manifest import Manifest
from populora_core.store.shared_columns import GENERATION, MEMBER_ID

_DECLARED = (
    Table(
        "stages",
        (),
        "Committed stages.",
        (
            GENERATION,
            Column("stage", TEXT, "Name of the stage."),
            Column(
                "attempt", INT, "How often the stage has been committed in the run directory that made it."
            ),
            Column("started_at", TIME, "When the stage started, in UTC."),
            Column("seconds", FLOAT, "How long it took."),
            Column("rows", LONG, "Rows of all its tables."),
            Column("key", TEXT, "sha256 of all that decides the stage's content."),
            Column("code_revision", TEXT, "Revision of the code that ran it."),
            Column(
                "sandbox",
                TEXT,
                "Sandbox that ran programs, and the Python inside: results can differ; null where none was recorded.",
                nullable=True,
            ),
            Column(
                "tokens_per_second",
                FLOAT,
                "Tokens drawn, or learnt from with their prompts, per second of the stage; null where it does neither.",
                nullable=True,
            ),
            Column(
                "gpu_busy",
                FLOAT,
                "Share of the stage in which its GPUs computed, as the driver counts it; null without one.",
                nullable=True,
            ),
            Column(
                "mfu",
                FLOAT,
                "Model FLOPs utilisation of an update on GPUs: what its tokens need, without what is computed again or "
                "padded, divided by what one large matrix product reaches there in the same time; null elsewhere.",
                nullable=True,
            ),
            Column(
                "cache_hits",
                FLOAT,
                "Share of the prompts' tokens that the engine had in its prefix cache; null where it does not tell "
                "(vLLM does).",
                nullable=True,
            ),
            Column(
                "seconds_before",
                FLOAT,
                "Seconds between the stage before and this one: the catalogue, the report and Prefect. Null for the "
                "first of a session.",
                nullable=True,
            ),
        ),
    ),
    Table(
        "member_seconds",
        (),
        "How long the update of each member took.",
        (
            GENERATION,
            MEMBER_ID,
            Column("seconds", FLOAT, "How long the update of the member took, all its roles together."),
        ),
    ),
    Table(
        "metrics",
        (),
        "Figures that stages recorded beside their tables.",
        (
            GENERATION,
            Column("stage", TEXT, "Name of the stage."),
            Column("name", TEXT, "Name of the figure."),
            Column("value", FLOAT, "Its value."),
        ),
    ),
)

MANIFEST_TABLES: dict[str, Table] = {table.name: table for table in _DECLARED}


def manifest_rows(manifests: Sequence[Manifest]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each of the tables."""
    stages = [
        {
            "generation": manifest.generation,
            "stage": manifest.stage,
            "attempt": manifest.attempt,
            "started_at": manifest.started_at.removesuffix("+00:00"),
            "seconds": manifest.seconds,
            "rows": manifest.rows,
            "key": manifest.key,
            "code_revision": manifest.code_revision,
            "sandbox": manifest.extra.get("sandbox"),
            "tokens_per_second": _quotient(manifest.extra.get("tokens"), manifest.seconds),
            "gpu_busy": manifest.extra.get("gpu_busy"),
            "mfu": manifest.extra.get("mfu"),
            "cache_hits": _quotient(
                manifest.extra.get("cached_tokens"), manifest.extra.get("prompt_tokens", 0)
            ),
            "seconds_before": manifest.extra.get("seconds_before"),
        }
        for manifest in manifests
    ]
    member_seconds = [
        {"generation": manifest.generation, "member_id": member, "seconds": seconds}
        for manifest in manifests
        for member, seconds in manifest.extra.get("member_seconds", {}).items()
    ]
    metrics = [
        {"generation": manifest.generation, "stage": manifest.stage, "name": name, "value": value}
        for manifest in manifests
        for name, value in manifest.extra.get("metrics", {}).items()
    ]
    return {"stages": stages, "member_seconds": member_seconds, "metrics": metrics}


def _quotient(count: int | None, over: float) -> float | None:
    return None if count is None or not over else count / over
