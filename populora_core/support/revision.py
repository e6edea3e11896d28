"""Revisions of the running code, ours and that of packages."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

from populora_core.support.shipped import IN_CLONE, REPOSITORY


@cache
def code_revision() -> str:
    """The git revision of the running code, with `+changes` where it differs; `unknown` without git.

    A repository that merely holds the folder of the code is somebody else's: an installed package has its version,
    and a clone without its own `.git` is `unknown`. A clone may be another user's, from git 2.38 on.
    """
    if not IN_CLONE:
        return version_of("populora-core") or "unknown"

    ours = ("-c", f"safe.directory={REPOSITORY}", "-C", str(REPOSITORY))

    def git(*arguments: str) -> str:
        return subprocess.run(
            # Without its optional locks git is in no one's way who works in the repository meanwhile.
            ["git", "--no-optional-locks", *ours, *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != REPOSITORY:
            return "unknown"
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def version_of(package: str) -> str | None:
    """The version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
