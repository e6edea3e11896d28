"""Members' published folders, each a PEFT adapter with its optimiser's moments: whole or not.

Beside each lies a probe: the learner's own log-probabilities of a fixed text under that adapter.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from populora_core.store.manifest import Manifest, pruned
from populora_core.support.digest import file_sha256
from populora_core.support.durable import fsync, write_atomically, writing
from populora_core.support.errors import AdapterError
from populora_core.support.received import below, read_json

if TYPE_CHECKING:
    from populora_core.store.artifacts import StageWriter

WEIGHTS = "adapter_model.safetensors"
MOMENTS = "moments.safetensors"  # of the optimiser: Adam's two moments and the count of steps
STATE_FILES = (WEIGHTS, MOMENTS)  # what a member is; a stage records the sha256 of both
ADAPTER_FILES = (WEIGHTS, "adapter_config.json")
PROBE = "probe.json"


@dataclass(frozen=True, slots=True)
class Probe:
    """Log-probabilities of a fixed text under one adapter, by the learner's own forward pass.

    Written beside the weights by who wrote them, so that whoever serves the adapter can be held to it without
    a learner at hand.

    Attributes:
        sha256: of the weights file that it belongs to.
        dtype: that the learner computed in.
        prompt_ids, completion_ids: the text.
        logprobs: of each completion token under softmax(logits) with the adapter.
        base_logprobs: the same under the bare base.
    """

    sha256: str
    dtype: str
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    base_logprobs: tuple[float, ...]


def write_probe(folder: Path, probe: Probe) -> None:
    """Write the probe into an adapter's folder, with a digest that tells when it is damaged."""
    record = asdict(probe)
    write_atomically(folder / PROBE, json.dumps(record | {"digest": _digest(record)}) + "\n")


def read_probe(folder: Path) -> Probe:
    """The probe of an adapter's folder.

    Raises:
        AdapterError: it is missing or damaged.
    """
    try:
        record = read_json(folder / PROBE)
        if record.pop("digest") != _digest(record):
            raise ValueError("its digest is not that of its content")
        fields: dict[str, Any] = {
            name: tuple(item) if isinstance(item, list) else item for name, item in record.items()
        }
        return Probe(**fields)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise AdapterError(
            f"{folder / PROBE} cannot be read",
            expected="what the learner recorded when it wrote the adapter",
            got="no such file"
            if isinstance(error, FileNotFoundError)
            else f"{type(error).__name__}: {error}",
            fix="populora resume makes a damaged adapter again",
        ) from error


def adapter_whole(folder: Path, sha256: str) -> bool:
    """True if the folder holds an adapter whose weights file has the recorded sha256."""
    weights, config = (folder / name for name in ADAPTER_FILES)
    return config.is_file() and weights.is_file() and file_sha256(weights) == sha256


def what_is_wrong(folder: Path) -> dict[str, str]:
    """The `got` and `fix` of an error about an adapter that is not whole."""
    if pruned(folder / WEIGHTS):
        return {
            "got": "nothing: populora prune removed the weights",
            "fix": "choose a later generation; what was pruned does not come back",
        }
    there = all((folder / name).is_file() for name in ADAPTER_FILES)
    return {
        "got": "other weights" if there else "missing files",
        "fix": "populora resume makes a damaged adapter again",
    }


def state_intact(folder: Path, hashes: Mapping[str, str]) -> bool:
    """True if a run's own folder is whole, the probe of these very weights included; pruned files count as whole.

    Args:
        hashes: file name -> sha256, of `STATE_FILES`.
    """
    try:
        probed = read_probe(folder).sha256 == hashes.get(WEIGHTS)
    except AdapterError:
        return False
    return (
        probed
        and all((folder / name).is_file() for name in ADAPTER_FILES if name != WEIGHTS)
        and all(_recorded(folder / name, sha256) for name, sha256 in hashes.items())
    )


def _recorded(path: Path, sha256: str) -> bool:
    return pruned(path) or (path.is_file() and file_sha256(path) == sha256)


def staged_adapters(writer: StageWriter) -> Path:
    """The folder in which a stage's new members wait for its commit, each in a folder of its name."""
    return writer.scratch / "adapters"


def staged_adapter(writer: StageWriter, path: str) -> Path:
    """The folder of one of them; `path` is its place below the run directory."""
    return below(staged_adapters(writer), Path(path).parent.name)


def place_adapters(run_dir: Path, writer: StageWriter, manifest: Manifest) -> None:
    """Move a stage's members to members/. An older one is never overwritten: it goes to superseded/.

    Raises:
        ArtifactError: the disk refused, or a place leads out of the run.
    """
    from populora_core.store.artifacts import supersede  # here: who serves adapters alone needs no Parquet

    for path, hashes in manifest.extra.get("adapters", {}).items():
        final = below(run_dir, path)
        if final.exists():
            if state_intact(final, hashes):
                continue
            supersede(run_dir, final)
        with writing(final):
            final.parent.mkdir(parents=True, exist_ok=True)
            os.rename(staged_adapter(writer, path), final)
            fsync(final.parent)


def _digest(record: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
