"""The question before code runs that a run names: asked once, by name, and remembered on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import typer

from populora_core.runs.preflight import places
from populora_core.runs.run import Run
from populora_core.support import trust


def trusted_run(directory: Path, given: Sequence[str] | None) -> Run:
    """Open a run for a command that runs code; see `settle`."""
    run = Run.open(directory)
    settle(run.name, places(run.config), given)
    return run


def settle(name: str, named: Iterable[str], given: Sequence[str] | None) -> None:
    """Have the user let places that a run of this name names be imported, or refuse.

    Args:
        given: places that --trust named; a terminal is asked about others.

    Raises:
        ConfigError: a place is refused, or no one is there to ask.
    """
    trust.trust(given or ())
    for place in dict.fromkeys(named):
        if not trust.is_trusted(place) and _allowed(name, place):
            trust.trust([place])
        trust.require_trusted(place)


def _allowed(name: str, place: str) -> bool:
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        return False
    trust.require_installed(place)
    asked = f"The run {name} names code: {place}, in {trust.lies_in(place)}. Import and run it, now and from now on?"
    return typer.confirm(asked, err=True)
