"""Packages of others that grade: missed before anything is sampled, and recorded with every result."""

from __future__ import annotations

import importlib.metadata

from populora_core.support.errors import BenchmarkError


def version_of(package: str, extra: str) -> str:
    """The installed version of a package that grades.

    Args:
        extra: of ours that brings it.

    Raises:
        BenchmarkError: it is not installed.
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise BenchmarkError(
            f"{package}, which grades this benchmark, is not installed",
            expected=f"the extra `{extra}`",
            fix=f"pip install -e '.[{extra}]'",
        ) from error
