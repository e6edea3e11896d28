"""Play a run from Python, and ask what came of it.

    python examples/run_from_python.py [FOLDER [SECTION.KEY=VALUE ...]]    # by default runs/from-python

The run is the same as `populora run --plain` makes: every stage is committed to disk, so that a killed run goes on
where it was, and `populora inspect`, `report` and `resume` know it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from populora_core import Run, Session, begin, load_config, open_run, train

CONFIGS = Path(__file__).resolve().parent.parent / "configs"


def play(directory: Path, *settings: str, generations: int = 2) -> Run:
    """Start a run in a new directory, or go on with the one that is there."""
    started = (directory / "run.json").exists()
    run = Run.open(directory) if started else begin(directory, load_config(CONFIGS / "quick.toml", settings))
    with Session(run) as session:  # holds the lock, starts workers and the sandbox, and ends both
        train(session, generations)
    return run


if __name__ == "__main__":  # every worker imports this file again, and must not begin a run itself
    folder, *settings = sys.argv[1:] or ["runs/from-python"]
    made = play(Path(folder), *settings)
    with open_run(made.directory) as catalogue:
        print(catalogue.query("FROM figures_generation ORDER BY generation").df())
