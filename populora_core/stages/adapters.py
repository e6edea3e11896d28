"""Members' adapters on disk, as a stage finds them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from populora_core.sampler.requests import Served
from populora_core.stages.context import StageContext
from populora_core.store.adapters import MOMENTS, PROBE, STATE_FILES, WEIGHTS, state_intact
from populora_core.store.rows import AdapterRow, RetiredRow
from populora_core.support.errors import ArtifactError
from populora_core.support.typed import shown


def member_folders(ctx: StageContext) -> dict[str, Path]:
    """member_id -> the folder of the member as it was after the previous generation.

    Raises:
        ArtifactError: one is not what the population names.
    """
    rows = ctx.rows("population", "member_id", "adapter_sha256", "moments_sha256")
    return {
        row["member_id"]: _whole(
            ctx, row["member_id"], ctx.generation - 1, row["adapter_sha256"], row["moments_sha256"]
        )
        for row in rows
    }


def earlier_folders(ctx: StageContext, members: Iterable[str]) -> dict[str, Path]:
    """member_id -> the folder of its version before the newest, where that is kept and rounding may hide a fault.

    In float32 the proof at load has shown everything, and nothing is compared again.
    """
    if ctx.config.base.dtype == "float32":
        return {}
    folders = {name: ctx.session.run.adapter_folder(name, ctx.generation - 2) for name in members}
    return {name: folder for name, folder in folders.items() if (folder / WEIGHTS).is_file()}


def updated_folders(ctx: StageContext, rows: Iterable[AdapterRow]) -> dict[str, Path]:
    """member_id -> the folder of the member as this generation's update wrote it, from rows of `adapters`.

    Raises:
        ArtifactError: one is not what the row names.
    """
    return {
        row["member_id"]: _whole(ctx, row["member_id"], ctx.generation, row["sha256"], row["moments_sha256"])
        for row in rows
    }


def past_members(ctx: StageContext, members: Collection[str]) -> dict[str, RetiredRow]:
    """member_id -> its row of `retired`, of past members; nothing is read if there are none."""
    if not members:
        return {}
    return {row["member_id"]: row for row in ctx.rows("retired") if row["member_id"] in members}


def served(ctx: StageContext, members: Collection[str]) -> dict[str, Served]:
    """The members' adapters as they were after the previous generation; a past one's as it was at its end."""
    run, newest = ctx.session.run, ctx.generation - 1
    rows = {row["member_id"]: row for row in ctx.rows("population")}
    past = past_members(ctx, set(members) - rows.keys())
    found = {}
    for name in members:
        if name in past:
            found[name] = _served_again(ctx, past[name])
            continue
        row = rows[name]
        born_now = row["born_generation"] == newest
        before = row["parent_ids"] if born_now else [name]
        found[name] = Served(
            member_id=name,
            folder=run.adapter_folder(name, newest),
            sha256=row["adapter_sha256"],
            earlier=tuple(
                run.adapter_folder(other, newest if born_now else newest - 1) / PROBE for other in before
            ),
        )
    return found


def _served_again(ctx: StageContext, row: RetiredRow) -> Served:
    """A past member's adapter as it was when it was removed, which pruning keeps; from a row of `retired`."""
    run, name, removed = ctx.session.run, row["member_id"], row["generation"]
    return Served(
        member_id=name,
        folder=run.adapter_folder(name, removed),
        sha256=row["adapter_sha256"],
        earlier=(run.adapter_folder(name, removed - 1) / PROBE,),
    )


def _whole(ctx: StageContext, member: str, generation: int, adapter_sha256: str, moments_sha256: str) -> Path:
    folder = ctx.session.run.adapter_folder(member, generation)
    if not state_intact(folder, {WEIGHTS: adapter_sha256, MOMENTS: moments_sha256}):
        raise ArtifactError(
            f"{folder} does not hold {member} as generation {generation} left it",
            expected=" and ".join(STATE_FILES) + " with the recorded sha256",
            got="missing or other files",
            fix=f"populora resume {shown(ctx.session.run.directory)} makes a damaged member again",
        )
    return folder
