"""Paths of the files that come with the modules: bases, presets, suites, the sandbox's runner.

In a clone they lie at the repository's top; in an installed package in its folder `shipped`.
"""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_INSTALLED = Path(__file__).resolve().parents[1] / "shipped"
IN_CLONE = not _INSTALLED.is_dir()


def shipped(*parts: str) -> Path:
    """The path of a file or folder by its parts from the repository's top."""
    return (REPOSITORY if IN_CLONE else _INSTALLED).joinpath(*parts)
