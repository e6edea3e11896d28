"""The questions of docs/analytics.md over ten million attempts on two cores, and what publishing a catalogue costs.

    populora bench analytics --json

A synthetic run of 501 generations is written by the real stage writer into a temporary folder (some 4 GB, removed at
the end), and its blocks are made as training makes them. The questions are asked in turn, each of a catalogue that
was just opened; a question's figure is the median of its rounds. Wall-clock seconds, since a person waits for them.
Then the catalogue is published a hundred times while one reader is in the middle of an answer.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import tempfile
from pathlib import Path

from bench.harness import BenchRow, median, single, wall_seconds
from made_runs.repeated import ATTEMPTS, MEMBERS, PROPOSED, VALID, SyntheticRun
from made_runs.scaled import ScaledRun
from populora_core.store.blocks import compact
from populora_core.store.catalogue import Catalogue, publish
from populora_core.support.aliases import Say
from populora_core.support.shipped import REPOSITORY

COOKBOOK = REPOSITORY / "docs" / "analytics.md"
CORES = 2
ROWS = 10_000_000
ROUNDS = 3
PUBLISHES = 100


def run(samples: int, say: Say) -> list[BenchRow]:
    """The figures that have goals, and each question's."""
    return measure(-(-ROWS // ATTEMPTS), max(ROUNDS, samples // 5), say)


def measure(generations: int, rounds: int, say: Say) -> list[BenchRow]:
    """The same over a run of any length."""
    allowed = os.sched_getaffinity(0)
    folder = Path(tempfile.mkdtemp(prefix="populora-analytics-"))
    try:
        os.sched_setaffinity(0, sorted(allowed)[:CORES])
        run_dir = folder / "synthetic"
        run_dir.mkdir()
        pattern = ScaledRun(folder / "pattern", MEMBERS, per_type=PROPOSED, valid=VALID)
        pattern.close()
        SyntheticRun(run_dir, pattern).write(generations, say)
        compacting = wall_seconds(lambda: compact(run_dir))
        publish(run_dir)
        asked = _ask(run_dir, rounds, say)
        published, errors = _publish(run_dir, say)
    finally:
        os.sched_setaffinity(0, allowed)
        shutil.rmtree(folder)
    return [
        median("median_seconds", list(asked.values()), "s", "<= 1"),
        single("worst_seconds", max(asked.values()), "s", "<= 3"),
        median("publish_seconds", published, "s", "<= 0.5"),
        single("reader_errors", errors, f"of {PUBLISHES}", "<= 0"),
        single("attempts", generations * ATTEMPTS, "rows"),
        single("compact_seconds_per_generation", compacting / generations, "s"),
        *(single(f"seconds.{title}", seconds, "s") for title, seconds in asked.items()),
    ]


def questions(page: Path = COOKBOOK) -> dict[str, str]:
    """The page's queries by the headings that they stand under."""
    pattern = r"^## ([^\n]+)$(?:(?!^## ).)*?^```sql\n(.*?)^```$"
    return dict(re.findall(pattern, page.read_text(), re.MULTILINE | re.DOTALL))


def _ask(run_dir: Path, rounds: int, say: Say) -> dict[str, float]:
    taken: dict[str, list[float]] = {title: [] for title in questions()}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for title, sql in questions().items():
            with Catalogue(run_dir) as catalogue:
                taken[title].append(wall_seconds(lambda: catalogue.query(sql).arrow()))  # noqa: B023, called at once
    return {title: statistics.median(seconds) for title, seconds in taken.items()}


def _publish(run_dir: Path, say: Say) -> tuple[list[float], int]:
    """Seconds of each publish, and how many of them a reader could not go on across."""
    say(f"publishing {PUBLISHES} times under a reader")
    seconds, errors = [], 0
    with Catalogue(run_dir) as catalogue:
        batches = catalogue.query("SELECT attempt_id, prompt FROM attempts").batches()
        for _ in range(PUBLISHES):
            seconds.append(wall_seconds(lambda: publish(run_dir)))
            try:
                errors += next(batches).num_rows == 0
            except Exception as error:  # whatever a reader may meet is what is counted
                say(f"the reader met {error!r}")
                errors += 1
    return seconds, errors
