"""Commands over run directories that need no Prefect: look into them, ask, compare, take out, prune."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from populora_core.support.errors import EXIT_INTERRUPTED
from populora_core.support.typed import typed
from populora_core.terminal.options import (
    LOOK,
    RUNS,
    Overrides,
    Push,
    RunDir,
    RunDirs,
    Trust,
    expanded,
    run_folder_named,
)

runs_app = typer.Typer()


@runs_app.command(rich_help_panel=RUNS)
def fork(
    directory: RunDir,
    generation: Annotated[int, typer.Option(min=0, help="the last generation to take over")],
    to: Annotated[Path, typer.Option(help="the new run directory", callback=expanded)],
    settings: Overrides = None,
    trust: Trust = None,
) -> None:
    """Start a new run from a generation of an old one, with other settings if you like."""
    from populora_core.commands.training import going_on
    from populora_core.config.load import apply_overrides
    from populora_core.lifecycle.loop import fork as fork_run
    from populora_core.runs.preflight import check_changed, inherited
    from populora_core.runs.run import Run
    from populora_core.terminal.screen import narrated, say
    from populora_core.terminal.trusting import settle

    source = Run.open(directory)
    config = apply_overrides(source.config, settings or [])
    settle(source.name, inherited(config, source.config) if settings else (), trust)
    if settings:
        check_changed(config, source.config, "the settings given with --set")
    with narrated(f"taking over generations 0 to {generation} ..."):
        forked = fork_run(source, generation, to, config)
    say(f"{forked.directory} holds generations 0 to {generation}; {going_on(forked)} goes on from there")


@runs_app.command(rich_help_panel=LOOK)
def inspect(
    directory: RunDir,
    generation: Annotated[
        int | None,
        typer.Option(min=0, help="one generation's stages; or the member as of it (with --member)"),
    ] = None,
    stage: Annotated[str | None, typer.Option(help="one stage's manifest (with --generation)")] = None,
    member: Annotated[
        str | None, typer.Option(help="one member, e.g. S0·g8, or best: ratings, lineage, adapters")
    ] = None,
    problem: Annotated[str | None, typer.Option(help="one problem with its attempts")] = None,
) -> None:
    """Look into a run: overview, generation, stage, member or problem; of a folder of runs a list."""
    from populora_core.commands import inspection
    from populora_core.runs.run import Run

    alone = {"--problem": problem, "--member": member, "--stage": stage}
    asked = [option for option, value in alone.items() if value is not None]
    if problem is not None and generation is not None:
        asked.append("--generation")
    if len(asked) > 1:
        raise typer.BadParameter(f"{' and '.join(asked)} do not go together: look at one after the other")
    if inspection.show_runs(directory):
        return
    opened = Run.open(directory)
    if problem is not None:
        inspection.show_problem(opened, problem)
    elif member is not None:
        inspection.show_member(opened, member, generation)
    elif stage is not None:
        inspection.show_stage(opened, generation, stage)
    elif generation is not None:
        inspection.show_generation(opened, generation)
    else:
        inspection.show_run(opened)


class QueryCommand(TyperCommand):
    """The command `query`. If a run or the question is missing, it shows an example."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if type(error).__name__ == "MissingParameter":
                ctx.fail(
                    typed(
                        'name runs and ask one question, in quotes: populora query runs/demo "FROM problems"'
                    )
                )
            raise


@runs_app.command(rich_help_panel=LOOK, cls=QueryCommand)
def query(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="a run, a folder of runs or a pattern; several are asked as one",
            parser=run_folder_named,
        ),
    ],
    sql: Annotated[str, typer.Argument(metavar="SQL", help="over the views of docs/data-contract.md")],
    format: Annotated[
        Literal["table", "csv", "json", "markdown", "parquet"] | None,
        typer.Option(help="how to write the rows (default: as --output ends, else table)"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the rows to this file", callback=expanded)
    ] = None,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="let the SQL do all that DuckDB can: other files, writing")
    ] = False,
) -> None:
    """Ask runs in SQL (DuckDB). Rows are printed as they come; the column `run` says of which run they are.

    SQL reads only the named runs, unless trusted. docs/analytics.md has queries to start from.
    """
    from populora_core.commands.answers import format_of, print_answer, save_answer
    from populora_core.runs.run import open_runs
    from populora_core.store.catalogue import Catalogue
    from populora_core.terminal.screen import say

    named = [run.directory for run in open_runs(directories)]
    with Catalogue(*named, locked=not trusted) as catalogue:
        answer, chosen = catalogue.query(sql), format_of(format, output)
        if output is None:
            print_answer(answer, chosen)
        else:
            save_answer(answer, chosen, output)
            say(f"{output} is written")


@runs_app.command(rich_help_panel=RUNS)
def prune(
    directory: RunDir,
    keep: Annotated[int, typer.Option(min=1, help="newest generations whose stages can all be redone")] = 3,
    every: Annotated[
        int, typer.Option(min=0, help="keep what a fork starts from every so many generations; 0: never")
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be removed and stop")] = False,
) -> None:
    """Keep a long run small: remove weights and optimiser states that going on does not need.

    Every table stays, so the report, the lineage and all questions do too; so does each member's newest adapter.
    What was removed does not come back: older generations can then not be redone, forked, evaluated or exported.
    """
    from populora_core.commands.inspection import show_plan
    from populora_core.lifecycle import pruning
    from populora_core.runs.run import Run
    from populora_core.terminal.screen import narrated

    opened = Run.open(directory)
    with narrated("looking for what going on does not need ..."):
        chosen = (pruning.plan if dry_run else pruning.prune)(opened, keep, every)
    show_plan(opened, chosen, dry_run)


@runs_app.command(rich_help_panel=LOOK)
def report(
    directories: RunDirs,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="default: report.html in the run, of several comparison.html here",
            callback=expanded,
        ),
    ] = None,
) -> None:
    """Write what a run did as one HTML page that opens offline, or compare several runs with the first.

    A run's own report.html is also brought up to date after every generation.
    """
    from populora_core.report.write import REPORT, write_report
    from populora_core.terminal.screen import narrated, say

    default = directories[0] / REPORT if len(directories) == 1 else Path("comparison.html")
    with narrated("writing the report ..."):
        written = write_report(directories, output or default)
    say(f"{written} is written; open it in any browser")


@runs_app.command(rich_help_panel=LOOK)
def evaluate(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="a run directory, or the beginning of its name; or the PEFT folder of an adapter, with --base",
            parser=run_folder_named,
        ),
    ],
    suite: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="a suite file, or bundled:NAME of configs/suites/; yardstick: the run's own first and newest "
            "problems; validity: the newest prompts of its teachers",
            show_default="evaluate.suite",
        ),
    ] = "",
    members: Annotated[
        str, typer.Option(help="all, solvers, teachers, best (fittest of each role by play), or one member")
    ] = "all",
    generation: Annotated[
        int | None,
        typer.Option(min=0, help="the members as they were after this generation (default: the newest)"),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="of the draws (default: the suite's)")] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="problems of each benchmark (default: all of the reported half)")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_FOLDER", help="the adapter's base (default: the bundled one that it names)"
        ),
    ] = None,
    dialect: Annotated[
        str | None, typer.Option(help="the dialect that the adapter learnt in (default: what fits its base)")
    ] = None,
    trust: Trust = None,
) -> None:
    """Measure members and the base model on a suite: scores with intervals, every answer kept.

    What is finished stays when this is interrupted or killed; the same command goes on from there. An adapter is scored
    beside its base, and nothing is kept.
    """
    from populora_core.commands.scores import show_adapter, show_evaluation
    from populora_core.lifecycle.adapter_evaluation import is_adapter
    from populora_core.lifecycle.progress import suite_for
    from populora_core.terminal.trusting import trusted_run

    if is_adapter(directory):
        if members != "all" or generation is not None:
            raise typer.BadParameter("an adapter has no members and no generations: leave them out")
        show_adapter(directory, base, suite, seed, sample, dialect)
        return
    if base is not None or dialect is not None:
        raise typer.BadParameter(
            "a run has a base already, and a dialect; --base and --dialect are an adapter's"
        )
    run = trusted_run(directory, trust)
    try:
        show_evaluation(run, suite_for(run, suite, seed, sample), members, generation)
    except KeyboardInterrupt:
        print("interrupted: finished shards stay, the same command goes on from there")
        raise typer.Exit(EXIT_INTERRUPTED) from None


@runs_app.command(rich_help_panel=LOOK)
def export(
    directory: RunDir,
    member: Annotated[
        str,
        typer.Argument(
            metavar="MEMBER",
            help="a member's id or short name, e.g. S0·g8, or best: the fittest student, by play",
        ),
    ],
    to: Annotated[Path, typer.Option(metavar="OUT", help="a new folder", callback=expanded)],
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
    from populora_core.report.history import earlier_history
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
    for line in earlier_history(run, done.generation):
        say(typed(line))
    say(f"from Python:  see {done.folder / CARD}")
    say(f"with vLLM:    {done.command}")
    pushed(done.folder, push)
