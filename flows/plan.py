"""What --dry-run prints: the resolved configuration and the work that it asks for."""

from __future__ import annotations

import json
from pathlib import Path

from flows.console import console
from populora_core.config import Config
from populora_core.stages.table import FOUND, LOOP


def print_plan(config: Config, run_dir: Path) -> None:
    """Print every resolved setting, the stages, and the counts of one generation. Starts nothing."""
    console.print(f"[bold]{run_dir}[/] would be made with this configuration:")
    for section, settings in config.as_json().items():
        console.print(f"\n[bold]\\[{section}][/]")
        for key, value in settings.items():
            console.print(f"  {key} = {json.dumps(value)}", highlight=False)

    console.print("\n[bold]the stages of a generation[/], and what each is redone for when it changes:")
    for stage in (FOUND, *LOOP):
        sections = ", ".join(f"\\[{section}]" for section in stage.config)
        needs = ", ".join(stage.needs) or "nothing"
        console.print(f"  [bold]{stage.name:<8}[/] {needs} -> {', '.join(stage.gives)}", soft_wrap=True)
        console.print(f"           {sections}" + (", the base model" if stage.base else ""), soft_wrap=True)

    proposals = config.population.proposers * len(config.propose.types) * config.propose.per_type
    attempts = proposals * config.solve.attempts
    console.print(
        f"\n{config.run.generations} generations, each of {proposals} proposals and at most {attempts} attempts; "
        f"{config.compute.shards} shards of {config.compute.threads} thread(s). Nothing was started."
    )
