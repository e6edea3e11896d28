"""Likeness of machines: what must be the same on all of them, since it decides results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from populora_core.support.errors import ClusterUnavailable
from populora_core.support.shipped import REPOSITORY

CODE = "code of populora"
"""Key of `code_digest` among the versions of a machine."""
_PACKAGES = ("populora_core", "populora_plugins")
_SOURCES = {".py", ".txt"}  # modules, and the templates of prompts
_BESIDE = {"tests", "shipped"}  # a wheel has no tests; the bases and the sandbox have digests of their own


@cache
def code_digest() -> str:
    """The digest of the source files that a worker runs, alike in a clone and in an installed package."""
    digest = hashlib.sha256()
    for file in sorted(_sources()):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{file.relative_to(REPOSITORY).as_posix()} {content}\n".encode())
    return digest.hexdigest()[:16]


def require_alike(host: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> None:
    """Raise ClusterUnavailable, which names what differs, unless a host has our versions."""
    differing = [name for name in ours if theirs.get(name) != ours[name]]
    if differing:
        raise ClusterUnavailable(
            f"{host} has other versions than this machine, so that its results could differ",
            expected=", ".join(f"{name} {ours[name]}" for name in differing),
            got=", ".join(f"{name} {theirs.get(name, 'unsaid')}" for name in differing),
            fix="install the same environment and the same revision of the code on every machine of the cluster",
        )


def _sources() -> Iterator[Path]:
    for package in _PACKAGES:
        for file in (REPOSITORY / package).rglob("*"):
            within = file.relative_to(REPOSITORY).parts
            if file.suffix in _SOURCES and _BESIDE.isdisjoint(within) and file.is_file():
                yield file
