"""A run's demands on this machine, shown before it starts: `populora run --hours`."""

from __future__ import annotations

from pathlib import Path

from populora_core.config.load import Config
from populora_core.lifecycle.pace import SECONDS, measured, require_time
from populora_core.report.text import seconds
from populora_core.runs.space import GB, disk_needed, free_bytes, whole_run
from populora_core.terminal.screen import narrated, say


def announce(config: Config, folder: Path, hours: float) -> None:
    """Measure this machine, and say what the run takes.

    Raises:
        ConfigError: it takes more hours than these, or cannot be timed.
    """
    with narrated(f"measuring this machine in some {SECONDS:.0f} seconds, once the base is loaded ..."):
        pace = measured(config)
    needed = require_time(config, pace, hours)
    size = whole_run(config, disk_needed(config))
    threads = config.compute.shards * config.compute.threads
    say(
        f"{config.run.generations} generations of {config.proposals} proposals and at most {config.attempts} attempts: "
        f"about {seconds(needed)} here with {threads} thread(s), less where answers are short, and "
        f"{size / GB:.1f} GB of disk at most ({free_bytes(folder) / GB:.0f} GB are free). It can be ended and resumed."
    )
