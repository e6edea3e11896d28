"""Names that a run may name: code "package.module:name", services, bases and files that this user named first.

A configuration of the user's own names them by itself. What a run, an adapter or an environment says is data, since
somebody may have sent it: a place of it is imported only where the user named it on this machine, and its code lies
where it lay then. Nothing lets a run name code that lies in a run or in the working folder. The address of a store or
another service, the folder of a base and other files and folders are sources: for these, only the permission to use
them is kept.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from populora_core.support.durable import write_atomically
from populora_core.support.entries import declared_packages, put_there
from populora_core.support.errors import ConfigError, PopuloraError
from populora_core.support.owner import folder
from populora_core.support.shipped import REPOSITORY

VARIABLE = "POPULORA_TRUST"  # the environment variable that names places, with commas between
_KEPT = "trusted.json"  # {"package.module:name": where its top package lies, "source": USED}
_USED = "used"

_OURS = {REPOSITORY / name for name in ("populora_core", "base_model", *declared_packages())}
"""Packages that may be named though the clone is the working folder."""
_IN_PYTHON = ("built-in", "frozen", _USED)
_here: dict[str, str] = {}
"""The same of this process, and of the workers that it starts: also where there is no home to write to."""


def remember(places: Iterable[str]) -> None:
    """Note that a configuration of the user's own names these places and sources."""
    _write({place: where for place in places if (where := _stands(place)) and not is_trusted(place)})


def trust(places: Iterable[str]) -> None:
    """Note that the user lets a run name these places.

    Raises:
        ConfigError: there is no such code, or it lies where a run or an archive may have put it.
    """
    for place in places:
        if not is_source(place):
            require_installed(place)
        _write({place: _stands(place)})


def named() -> tuple[str, ...]:
    """Every place that may be imported here: what a process that this one starts must `take`."""
    return tuple(
        place for place, where in _known().items() if not is_source(place) and where == lies_in(place) != ""
    )


def take(places: Iterable[str]) -> None:
    """Let this process use these, as the one that started it may; nothing of it is kept on disk."""
    _here.update((place, _stands(place)) for place in places)


def forget() -> None:
    """Forget what this process itself was told, as a new process begins; what lies on disk stays."""
    _here.clear()


def is_trusted(place: str) -> bool:
    """True if the user named the place, and its code is where it was then; or named the source."""
    names = [place, unquote(urlsplit(place).path)] if place.startswith("file://") else [place]
    return any(_known().get(name, "") == _stands(name) != "" for name in names)


def is_source(name: str) -> bool:
    """True for the address of a service and for a file or folder, which no place of code is."""
    return "/" in name


def require_trusted(place: str) -> None:
    """Raise ConfigError unless `is_trusted`."""
    if is_trusted(place):
        return
    if is_source(place):
        raise ConfigError(
            f"a run names a service, a base or a file that you have not named yourself: {place}",
            expected="one that a configuration of yours named on this machine",
            got="a name that came with a run",
            fix=f"if you know it, give --trust {place} to the command, or set {VARIABLE}={place}",
        )
    require_installed(place)
    raise ConfigError(
        f"a run names code that you have not named yourself: {place}",
        expected="a place that a configuration of yours named on this machine",
        got=f"a name that came with a run; {lies_in(place)} would be imported",
        fix=f"read that code; if you trust it, give --trust {place} to a command that runs it, "
        f"or set {VARIABLE}={place}",
    )


def require_installed(place: str) -> None:
    """Raise ConfigError where a place is no code, or lies in a run or in the working folder."""
    where = lies_in(place)
    if not where:
        raise ConfigError(
            f"a run names code that is not installed here: {place}",
            expected="a place package.module:name of an installed package",
            fix="install that package, if you trust it; to look at the run it is not needed",
        )
    if holder := _stray(where):
        raise ConfigError(
            f"a run names code that you have not named yourself, and it lies in {holder}: {place}",
            expected="code of an installed package",
            got=where,
            fix="nothing is imported from there because a run says so; install it from a source that you trust, "
            "or name it in a configuration of your own",
        )


def lies_in(place: str) -> str:
    """The file of the place's top package, or its folders, found without importing anything; empty for none."""
    top = place.partition(":")[0].partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return ""
    if spec is None:
        return ""
    return os.pathsep.join(spec.submodule_search_locations or ()) if spec.origin is None else spec.origin


def _stands(name: str) -> str:
    """The note that is kept of a name; empty for a place that is not there."""
    return _USED if is_source(name) else lies_in(name)


def _stray(where: str) -> str | None:
    """The run or the working folder in which code lies that no one installed; None elsewhere."""
    if where in _IN_PYTHON:
        return None
    for path in map(Path, filter(None, where.split(os.pathsep))):
        top = path.parent if path.name == "__init__.py" else path
        if top not in _OURS and (holder := put_there(top.parent)):
            return holder
    return None


def _known() -> dict[str, str]:
    try:
        kept = json.loads((folder() / _KEPT).read_text())
    except (OSError, ValueError):
        kept = {}
    known = {str(key): str(value) for key, value in kept.items()} if isinstance(kept, dict) else {}
    known |= _here
    asked = [place for place in os.environ.get(VARIABLE, "").split(",") if place]
    new = {place: where for place in asked if (where := _stands(place)) and _stray(where) is None}
    if any(known.get(place) != where for place, where in new.items()):
        _write(new)  # named again after its code moved: that code is meant
    return known | new


def _write(new: dict[str, str]) -> None:
    if not new:
        return
    _here.update(new)
    path = folder() / _KEPT
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(path.with_suffix(".lock"), "a") as lock:  # another command may be writing what it was told
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept = json.loads(path.read_text()) if path.is_file() else {}
            if kept | new != kept:
                write_atomically(path, json.dumps(kept | new, indent=1, sort_keys=True) + "\n")
    except (OSError, ValueError, TypeError, PopuloraError):  # no home to write to: the question comes again
        return
