"""The command that tries a base before any training."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from populora_core.terminal.options import SCIENCE, expanded

app = typer.Typer()


@app.command("try", rich_help_panel=SCIENCE)
def try_(
    base: Annotated[
        str,
        typer.Option(
            metavar="NAME_OR_FOLDER",
            help="as for `populora run`: a name of the hub, a folder, a GGUF file, qwen2.5-coder-0.5b ...",
        ),
    ],
    kind: Annotated[
        Literal["code_o", "code_i", "code_f"] | None,
        typer.Option("--type", help="the problem type to try (default: code_o; all with --full)"),
    ] = None,
    dialect: Annotated[
        str | None,
        typer.Option(help="assert, chat, repl, repl-thoughts or instruct (default: what fits the base)"),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="300 proposals and attempts of each type: hours on a CPU")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="also append the measures to this file, a line of JSON a type", callback=expanded),
    ] = None,
    threads: Annotated[int, typer.Option(min=0, help="of the sampler; 0: one a core")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="seed of every draw")] = 0,
) -> None:
    """Check in two minutes whether a base can play: what it proposes and answers before any training.

    Each share has its interval. Exit status 1 where the base cannot play.
    """
    from populora_plugins.trial.report import TYPES, try_base
    from populora_plugins.trial.trial import Ability

    kinds = (kind,) if kind else TYPES if full else ("code_o",)
    if try_base(base, dialect, kinds, full, threads or os.cpu_count() or 1, seed, output) is Ability.CANNOT:
        raise typer.Exit(1)
