"""A run of two histories in words: a resume that made stages again was broken off before the newest generation."""

from __future__ import annotations

from populora_core.runs.run import Run
from populora_core.stages.following import newest_following, newest_generation
from populora_core.support.errors import PopuloraError
from populora_core.support.typed import shown


def earlier_history(run: Run, generation: int | None = None) -> list[str]:
    """A sentence where the newest generations do not follow from those before as they are now; else empty.

    Args:
        generation: only where it is one of the newest; None for any.
    """
    try:
        last, newest = newest_following(run), newest_generation(run)
    except PopuloraError:
        return []  # not begun, or damaged: resume and fork say so
    if last == newest or (generation is not None and generation <= last):
        return []
    later = f"Generations {last + 1} to {newest} were" if newest > last + 1 else f"Generation {newest} was"
    return [
        f"{later} not made of what lies there now: "
        f"populora resume {shown(run.directory)} makes again what has to be."
    ]
