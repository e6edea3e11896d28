"""`populora study`: makes what is left of a study, telling how far it is, and its report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from populora_core.support.typed import shown, typed
from populora_core.terminal.options import SCIENCE, Prefixed, expanded

app = typer.Typer()
study_app = typer.Typer(
    cls=Prefixed, help="Many runs that answer a question: arms and seeds, claims and verdicts."
)
app.add_typer(study_app, name="study", rich_help_panel=SCIENCE)


@study_app.callback(invoke_without_command=True)
def study(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option(help="a study's file; see configs/levers/", callback=expanded)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what is left, and stop")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="set aside and make again what other code or settings made")
    ] = False,
) -> None:
    """Make every run of a study that is not there yet, with a summary of each, the verdicts and the report.

    Killed anywhere, the same command goes on from there. Runs that other code or settings made do not count; without
    --again they stay, and nothing is made.
    """
    if context.invoked_subcommand is not None:
        if config is not None or dry_run or again:
            raise typer.BadParameter(
                f"options stand behind `{context.invoked_subcommand}`, which has its own"
            )
        return
    if config is None:
        raise typer.BadParameter("name the study's file with --config, or ask for `report` or `release`")
    from populora_core.support.errors import EXIT_INTERRUPTED, StudyError
    from populora_core.terminal.screen import say
    from populora_plugins.study.conduct import conduct, plan, require_current
    from populora_plugins.study.report import write_report

    planned = plan(config)
    say("\n".join(planned.lines()))
    if dry_run:
        return
    if not again:
        require_current(planned)
    try:
        conduct(planned, say)
    except StudyError:
        write_report(planned.study.results)
        raise
    except KeyboardInterrupt:
        command = typed(f"populora study --config {shown(config)}")
        say(f"interrupted: everything committed stays; {command} goes on from there")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    say(f"{write_report(planned.study.results)} is written; open it in any browser")


@study_app.command()
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="the study's folder of results")],
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="default: report.html in the folder", callback=expanded),
    ] = None,
) -> None:
    """Write what a study found as one HTML page that opens offline."""
    from populora_core.terminal.screen import narrated, say
    from populora_plugins.study.report import write_report

    with narrated("writing the report ..."):
        written = write_report(directory, output)
    say(f"{written} is written; open it in any browser")


@study_app.command()
def release(
    config: Annotated[Path, typer.Option(metavar="FILE", help="the study's file", callback=expanded)],
    to: Annotated[
        Path,
        typer.Option(metavar="OUT", help="a folder: an adapter a subfolder, and a table", callback=expanded),
    ],
    arm: Annotated[list[str] | None, typer.Option(help="of this arm alone; may be repeated")] = None,
    base_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="how others find the base model (default: its name on the hub, or bundled:NAME)",
        ),
    ] = None,
) -> None:
    """Export what a user takes home from every arm: each run is made again, and compared with its summary.

    An adapter with its card goes to OUT/ARM, a table of them to OUT/README.md. Killed anywhere, the same command goes
    on from there.
    """
    from populora_core.terminal.screen import say
    from populora_plugins.study.release import plan_release, release

    table = release(plan_release(config, to, arm or ()), base_name, say)
    say(f"{table} says what was released")
