"""`populora export`: takes a member out of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from populora_core.terminal.options import LOOK, Push, RunDir, Trust

outcomes_app = typer.Typer()


@outcomes_app.command(rich_help_panel=LOOK)
def export(
    directory: RunDir,
    member: Annotated[
        str,
        typer.Argument(
            metavar="MEMBER",
            help="a member's id or short name, e.g. S0·g8, or best: the fittest student, by play",
        ),
    ],
    to: Annotated[Path, typer.Option(metavar="OUT", help="a new folder")],
    generation: Annotated[
        int | None, typer.Option(min=0, help="as it was after this generation (default: the newest)")
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="a checkpoint of base and adapter, instead of the adapter alone")
    ] = False,
    base_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="how others find the base model, e.g. Qwen/Qwen2.5-7B (default: its name on the hub, or bundled:NAME)",
        ),
    ] = None,
    push: Push = None,
    trust: Trust = None,
) -> None:
    """Take a member out of a run: a PEFT adapter, or with --merge a whole checkpoint, each with a model card.

    Both load in transformers, PEFT and vLLM. A new run can start from exported adapters: `[adapters.start_from]`.
    """
    from populora_core.lifecycle.export import CARD, export_member
    from populora_core.runs.run import Run, bases
    from populora_core.terminal.screen import narrated, pushed, say
    from populora_core.terminal.trusting import settle

    run = Run.open(directory)
    if merge:
        settle(run.name, bases(run.config), trust)
    with narrated(f"exporting {member} ..."):
        done = export_member(run, member, to, generation=generation, merge=merge, base_name=base_name)
    what = "merged checkpoint" if merge else "PEFT adapter"
    say(f"{done.folder} holds {done.member_id} after generation {done.generation}: {what}, model card")
    say(f"from Python:  see {done.folder / CARD}")
    say(f"with vLLM:    {done.command}")
    pushed(done.folder, push)
