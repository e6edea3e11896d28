"""Arguments and options that several commands have, and the groups that `--help` shows commands in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunDir = Annotated[Path, typer.Argument(metavar="DIR", help="a run directory")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a setting, e.g. run.seed=7")
]

RUNS, LOOK, MACHINES, SCIENCE = "Run a population", "Look into runs", "Machines", "Science"
