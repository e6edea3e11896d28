"""Cleanup after a process that was killed: what it started, and what it left half-written."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from populora_core.runs.heartbeat import HEARTBEAT, Beat, Life
from populora_core.runs.lock import LOCK, lock
from populora_core.runs.run import Run
from populora_core.store.artifacts import GIVEN_UP_SECONDS, sweep
from populora_core.support import durable, leftovers
from populora_core.support.errors import RunDirectoryError, SandboxUnavailable
from populora_core.support.processes import Owner

END_SECONDS = 30.0


def clear(directory: Path) -> list[str]:
    """End the workers and remove the temporary files of an earlier process. Only under the run's lock.

    Returns:
        What was done, a line each.

    Raises:
        ArtifactError: the directory cannot be written.
    """
    beat = Beat.read(directory)
    done = _end_workers(beat) if beat is not None and beat.life is Life.DEAD else []
    return done + [f"removed {path.relative_to(directory)}, half-written" for path in sweep(directory)]


def reap(run: Run, also: Callable[[Path], list[str]] = lambda directory: []) -> list[str]:
    """End all that a dead run left on this machine: its workers, sandboxes, temporary files and lock.

    Containers of other processes that have ended go too: they are no one's.

    Args:
        also: does more under the run's lock, and says what.

    Returns:
        What was done, a line each; nothing where nothing was left.

    Raises:
        RunDirectoryError: the run is alive, here or elsewhere.
        ArtifactError: the directory cannot be written.
    """
    directory = run.directory
    left = (directory / LOCK).exists()
    with lock(directory):
        beat = Beat.read(directory)  # not before: until then its writer may end in order
        if beat is not None and beat.life is Life.ALIVE:
            raise RunDirectoryError(
                f"{directory} is at work, so nothing was touched",
                got=str(beat),
                fix="wait for it, or end that process; then repeat this command",
            )
        done = clear(directory) + leftovers.sweep() + _remove_sandboxes() + also(directory)
        if left:
            done.append(f"removed {LOCK}, which no one held")
        if beat is not None and beat.life is Life.DEAD:
            done.insert(0, f"the process that worked here was killed: {beat}")
            if beat.writer is None and beat.own_children and beat.age < GIVEN_UP_SECONDS:  # the only record
                done.append(f"run populora reap on {beat.host} to end the workers that it left there")
            else:
                with durable.writing(directory / HEARTBEAT):
                    (directory / HEARTBEAT).unlink()
    return done


def _end_workers(beat: Beat) -> list[str]:
    """Kill the workers of a dead process that are still there; they would end by themselves, unless they hang."""
    owners = [owner for owner in map(Owner.parse, beat.own_children) if owner is not None and owner.visible]
    living = [owner for owner in owners if not owner.is_gone()]
    for owner in living:
        with suppress(ProcessLookupError):
            os.kill(owner.pid, signal.SIGKILL)
    deadline = time.monotonic() + END_SECONDS
    while not all(owner.is_gone() for owner in living) and time.monotonic() < deadline:
        time.sleep(0.01)
    return [
        f"{'ended' if owner.is_gone() else 'could not end'} its worker process {owner.pid}"
        for owner in living
    ]


def _remove_sandboxes() -> list[str]:
    """Remove containers of ended processes; without a Docker daemon there are none to remove."""
    from populora_core.sandbox.containers import Failure, connect_daemon
    from populora_core.sandbox.containers import sweep as sweep_sandboxes

    try:
        return sweep_sandboxes(connect_daemon())
    except (SandboxUnavailable, *Failure):
        return []
