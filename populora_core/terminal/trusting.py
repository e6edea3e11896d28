"""The question before a run's code, service, base or file is used: asked once, by name, and remembered here."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import typer

from populora_core.runs.preflight import places
from populora_core.runs.run import Run, sources
from populora_core.support import trust
from populora_core.support.visible import visible


def trusted_run(directory: Path, given: Sequence[str] | None) -> Run:
    """Open a run for a command that runs code; see `settle`."""
    run = Run.open(directory)
    settle(run.name, [*places(run.config), *sources(run.config)], given)
    return run


def settle(name: str, named: Iterable[str], given: Sequence[str] | None) -> None:
    """Have the user let what a run of this name names be imported or used, or refuse.

    Args:
        named: places of code, and sources (`support.trust`).
        given: those that --trust named; a terminal is asked about others.

    Raises:
        ConfigError: one is refused, or no one is there to ask.
    """
    trust.trust(given or ())
    for place in dict.fromkeys(named):
        if not trust.is_trusted(place) and _allowed(name, place):
            trust.trust([place])
        trust.require_trusted(place)


def _allowed(name: str, place: str) -> bool:
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        return False
    if trust.is_source(place):
        return _yes(f"The run {name} names {place}. Use it, now and from now on?")
    trust.require_installed(place)
    return _yes(
        f"The run {name} names code: {place}, in {trust.lies_in(place)}. Import and run it, now and from now on?"
    )


def _yes(asked: str) -> bool:
    """Ask a person, for whom Ctrl-D and Ctrl-C are a no."""
    try:
        return typer.confirm(visible(asked).replace("\n", "␊"), err=True)
    except typer.Abort:
        print(file=sys.stderr)
        return False
