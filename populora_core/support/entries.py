"""Entry points: what installed packages, and the clone itself, register by name. Nothing of them is imported here."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from populora_core.support.shipped import IN_CLONE, REPOSITORY
from populora_core.support.typed import working_folder

RECORD = "run.json"
"""The file by which a folder is a run."""
_DISTRIBUTION = "populora-core"


def installed_entries(group: str) -> list[EntryPoint]:
    """The entry points of installed packages; metadata that merely lies in a run or in the working folder is none.

    A clone's own are those of its pyproject.toml: what an earlier revision was installed with says nothing of them.
    """
    found = [entry for entry in entry_points(group=group) if _counts(entry)]
    return [*(EntryPoint(name, place, group) for name, place in _declared().get(group, {}).items()), *found]


def other_package(entry: EntryPoint) -> str:
    """The package of somebody else that an entry point comes with; empty for ours."""
    return "" if entry.dist is None or entry.dist.name == _DISTRIBUTION else entry.dist.name


def how_to_install(entry: EntryPoint) -> str:
    """The command that installs what an entry point needs: of the clone, or of another package."""
    extras, package = ",".join(entry.extras), other_package(entry)
    return f"pip install '{package}[{extras}]'" if package else f"pip install -e '.[{extras}]'"


def declared_packages() -> frozenset[str]:
    """The top packages that the clone's entry points name; empty in an installed package."""
    return frozenset(place.split(".")[0] for group in _declared().values() for place in group.values())


def _counts(entry: EntryPoint) -> bool:
    if entry.dist is None:
        return True
    if IN_CLONE and entry.dist.name == _DISTRIBUTION:
        return False
    return put_there(Path(str(entry.dist.locate_file("")))) is None


@cache
def _declared() -> dict[str, dict[str, str]]:
    """The clone's entry points by group; none in an installed package, whose metadata has them."""
    file = REPOSITORY / "pyproject.toml"
    if not IN_CLONE or not file.is_file():
        return {}
    groups: dict[str, dict[str, str]] = tomllib.loads(file.read_text())["project"].get("entry-points", {})
    return groups


def put_there(path: Path) -> str | None:
    """The run or the working folder in which a path lies; None elsewhere."""
    above = [path.resolve(), *path.resolve().parents]
    if (run := next((folder for folder in above if (folder / RECORD).is_file()), None)) is not None:
        return f"the run {run}"
    here = working_folder()
    return "the working folder" if here and here.resolve() == above[0] else None
