"""`populora study`: makes what is left of a study, telling how far it is, and its report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from populora_core.commands.typed import typed

if TYPE_CHECKING:
    from populora_core.study.conduct import StudyPlan
    from populora_core.study.play import Assignment, Told
    from populora_core.support.errors import PopuloraError

study_app = typer.Typer(help="Many runs that answer a question: arms and seeds, claims and verdicts.")


@study_app.callback(invoke_without_command=True)
def study(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(help="a study's file; see configs/levers/")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what is left, and stop")] = False,
) -> None:
    """Make every run of a study that is not there yet, with a summary of each, the verdicts and the report.

    Killed anywhere, the same command goes on from there.
    """
    if context.invoked_subcommand is not None:
        return
    if config is None:
        raise typer.BadParameter("name the study's file with --config, or ask for `report`")
    from populora_core.study.conduct import conduct, plan
    from populora_core.study.report import write_report
    from populora_core.support.errors import EXIT_INTERRUPTED, StudyError

    planned = plan(config)
    say_plan(planned)
    if dry_run:
        return
    try:
        conduct(planned, Lines(planned))
    except StudyError:
        write_report(planned.study.results)
        raise
    except KeyboardInterrupt:
        again = typed(f"populora study --config {config}")
        print(f"interrupted: everything committed stays; {again} goes on from there")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    print(f"{write_report(planned.study.results)} is written; open it in any browser")


@study_app.command()
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="the study's folder of results")],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="default: report.html in the folder")
    ] = None,
) -> None:
    """Write what a study found as one HTML page that opens offline."""
    from populora_core.study.report import write_report

    print(f"{write_report(directory, output)} is written; open it in any browser")


def say_plan(planned: StudyPlan) -> None:
    """What is done, what does not count any more and why, what is left."""
    print(f"study {planned.study.name}: {len(planned.done)} of {planned.runs} runs are done")
    for name, reason in planned.void.items():
        print(f"  {name} does not count any more and goes to void/: {reason}")
    left = sum(run.generations for run in planned.left)
    if left:
        print(
            f"  {len(planned.left)} runs are left, together {left} generations, {planned.study.processes} at a time;"
            f"\n  run directories in {planned.study.runs}, results in {planned.study.results}"
        )


class Lines:
    """One line a generation, with how long the rest will take."""

    def __init__(self, planned: StudyPlan) -> None:
        from populora_core.study.conduct import Clock

        self._planned, self._clock = planned, Clock(planned)
        self._done = len(planned.done)

    def told(self, assignment: Assignment, told: Told) -> None:
        from populora_core.report.text import seconds

        self._clock.told(assignment, told)
        line = f"{assignment.name:<24} {told.generation:>3}/{assignment.generations} "
        line += f"{told.doing if not told.seconds else f'{told.seconds:.0f} s'}"
        left = self._clock.seconds_left()
        if told.seconds and left is not None:
            line += f"   {self._done}/{self._planned.runs} runs done, about {seconds(left)} left"
        print(line, flush=True)

    def finished(self, assignment: Assignment) -> None:
        self._done += 1
        self._clock.at[assignment.name] = assignment.generations
        print(f"{assignment.name:<24} finished: {assignment.summary}", flush=True)

    def failed(self, assignment: Assignment, error: PopuloraError) -> None:
        print(f"{assignment.name:<24} failed: {error}", flush=True)
