"""Members leave a run: as a PEFT adapter, or merged into the base as a whole checkpoint, each with a model card."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from safetensors import SafetensorError

from populora_core.config.sections import BUNDLED
from populora_core.lifecycle.standing import named
from populora_core.report.model_card import Snapshot, model_card, serve_command
from populora_core.runs.run import Run, bases
from populora_core.store.adapters import ADAPTER_FILES, adapter_whole, what_is_wrong
from populora_core.store.catalogue import Catalogue
from populora_core.support.durable import new_folder, require_free
from populora_core.support.errors import AdapterError, ConfigError, RunDirectoryError
from populora_core.support.hub import HUB, NAME_ON_A_HUB
from populora_core.support.plain import read_plain
from populora_core.support.received import below, read_json, validated
from populora_core.support.trust import require_trusted
from populora_core.support.user_cache import GGUF

CARD = "README.md"
_SETTINGS: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


@dataclass(frozen=True, slots=True)
class Exported:
    """A finished export: its folder, its content, and the command that serves it with vLLM."""

    folder: Path
    member_id: str
    generation: int
    command: str


def export_member(
    run: Run,
    member_id: str,
    to: str | Path,
    *,
    generation: int | None = None,
    merge: bool = False,
    base_name: str | None = None,
) -> Exported:
    """Write a member as it was after a generation to a new folder: whole, or not at all.

    Args:
        generation: None for the newest that the member has an adapter of.
        merge: write a checkpoint of base and adapter, in the precision that the run computes in.
        base_name: how users find the base model, a name on a hub, say; None for `known_as`.

    Raises:
        RunDirectoryError: no such member, or it was not there in that generation.
        AdapterError: its adapter is missing or not the one that the run recorded.
        BaseModelError: the base to merge into is missing or not the one that the run began with.
        ConfigError: the base to merge into is a folder that the user has not named, or members learnt over one in
            fewer bits.
        ArtifactError: `to` is not free, or could not be written.
    """
    to = Path(os.path.expanduser(to))
    require_free(to)
    if merge:
        require_mergeable(run)
    snapshot = take(run, member_id, generation)
    base = base_name or known_as(run)
    card = model_card(snapshot, base, Path(to.name), merge)
    with new_folder(to) as new:
        write_adapter(snapshot, base, new, merge)
        (new / CARD).write_text(card, encoding="utf-8")
    command = serve_command(snapshot, base_name or here(run), to, merge)
    return Exported(to, snapshot.member_id, snapshot.generation, command)


def take(run: Run, member_id: str, generation: int | None = None) -> Snapshot:
    """Find a member's adapter after a generation and check that it is what the run recorded.

    Raises:
        RunDirectoryError: no such member, or it was not there in that generation.
        AdapterError: the adapter is missing or damaged.
    """
    with Catalogue(run.directory) as catalogue:
        members = {row["member_id"]: row for row in catalogue.rows("SELECT * FROM members ORDER BY 1")}
        adapters = catalogue.rows("SELECT * FROM adapters ORDER BY generation")
    there = [row for row in adapters if generation in (None, row["generation"])]
    member_id = _meant(run, member_id, {row["member_id"] for row in there}, members, generation)
    found = [row for row in there if row["member_id"] == member_id]
    if not found:
        raise RunDirectoryError(
            f"{member_id} has no adapter of generation {generation}",
            expected=f"a generation in which it lived: {_lifetime(members[member_id], adapters)}",
            got=str(generation),
            fix="choose one of these with --generation, or leave it out for the newest",
        )
    row = found[-1]
    folder = below(run.directory, row["path"])
    if not adapter_whole(folder, row["sha256"]):
        raise AdapterError(
            f"the adapter in {folder} is not the one that the run recorded",
            expected=" and ".join(ADAPTER_FILES) + f", the first with sha256 {row['sha256'][:12]}",
            **what_is_wrong(folder),
        )
    return Snapshot(run, members[member_id], row["generation"], folder, row["sha256"])


def _meant(run: Run, given: str, there: Iterable[str], members: Iterable[str], generation: int | None) -> str:
    """The member that a person means: of a slot whoever was there then, else a member of another time.

    Raises:
        RunDirectoryError: none of them, or several.
    """
    try:
        return named(run, given, there, generation)
    except RunDirectoryError:
        return named(run, given, members, generation)


def _lifetime(member: Mapping[str, Any], adapters: list[dict[str, Any]]) -> str:
    own = [row["generation"] for row in adapters if row["member_id"] == member["member_id"]]
    numbers = own or [member["born_generation"]]
    return f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else str(numbers[0])


def known_as(run: Run) -> str:
    """The name by which others find the base of a run, never its place on this machine.

    It is its name on the hub, `bundled:NAME`, `gguf:NAME@SHA256`, the name that a checkpoint gives itself, or else
    that of its folder.
    """
    base = run.config.base
    if base.path.startswith((HUB, BUNDLED, GGUF)):
        return base.public_name()
    config = base.folder() / "config.json"  # of a run that was copied here without its base it is not there
    told = str(read_json(config).get("_name_or_path")) if config.is_file() else ""
    return told if NAME_ON_A_HUB.fullmatch(told) else base.folder().resolve().name


def here(run: Run) -> str:
    """The base as a command on this machine takes it: a hub's name, or its folder."""
    base = run.config.base
    return base.public_name() if base.path.startswith(HUB) else str(base.folder().resolve())


def write_adapter(snapshot: Snapshot, base: str, folder: Path, merge: bool = False) -> None:
    """Fill a folder with an adapter's own files, or with a checkpoint of base and adapter (see `export_member`)."""
    try:
        _merged(snapshot)(folder) if merge else _write_files(snapshot, base, folder)
    except SafetensorError as error:  # how safetensors tells of a disk that refuses
        raise OSError(str(error)) from error


def _write_files(snapshot: Snapshot, base: str, folder: Path) -> None:
    """The run's own files; only the name of the base is told as the outside knows it."""
    weights, config = ADAPTER_FILES
    shutil.copyfile(snapshot.adapter / weights, folder / weights)
    settings = validated(_SETTINGS, read_plain(snapshot.adapter / config), snapshot.adapter / config)
    settings["base_model_name_or_path"] = base
    (folder / config).write_text(json.dumps(settings, indent=2) + "\n")


def require_mergeable(run: Run) -> None:
    """Raise ConfigError where members learnt over a base in fewer bits."""
    if run.config.base.bits != 16:
        raise ConfigError(
            f"members of {run.directory} learnt over a base in {run.config.base.bits} bits; merged into the whole "
            "base they would be other models",
            expected="base.bits = 16",
            fix="export without --merge, and load the adapter over the base in so many bits",
        )


def _merged(snapshot: Snapshot) -> Callable[[Path], None]:
    """A writer of the base with scale * B A added to each weight, summed in float32."""
    import torch
    from transformers import GenerationConfig

    from populora_core.model.adapter_files import read_weights
    from populora_core.model.base import GENERATION_CONFIG, load_base, quiet_transformers, require_same
    from populora_core.model.layout import AdapterLayout

    run = snapshot.run
    settings, adapters = run.config.base, run.config.adapters
    for source in bases(run.config):
        require_trusted(source)
    base = load_base(settings.folder(), settings.dtype)
    require_same(settings.folder(), base.digest, run.record["base_digest"])
    layout = AdapterLayout.of(base.model, adapters.rank, adapters.alpha)
    row = read_weights(snapshot.adapter, layout)
    with torch.no_grad():
        for name, (a, b) in layout.views(row).items():
            weight = base.model.get_submodule(name).weight
            weight.copy_(weight.float() + layout.scale * (b @ a))
    sampling = settings.folder() / GENERATION_CONFIG
    if sampling.is_file():  # copied below: transformers reads some that it refuses to write
        base.model.generation_config = GenerationConfig()

    def write(folder: Path) -> None:
        with quiet_transformers():
            base.model.save_pretrained(folder)
            base.tokenizer.save_pretrained(folder)
        if sampling.is_file():
            shutil.copyfile(sampling, folder / GENERATION_CONFIG)
        for file in folder.glob("*.safetensors"):  # written for their owner alone
            file.chmod((folder / "config.json").stat().st_mode)

    return write
