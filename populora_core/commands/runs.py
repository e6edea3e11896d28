"""Commands over run directories that need no Prefect: look into them, ask, compare, take out, prune."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from populora_core.commands.options import LOOK, RUNS, Overrides, Push, RunDir, RunDirs, run_folder_named
from populora_core.support.errors import EXIT_INTERRUPTED
from populora_core.support.typed import shown, typed

runs_app = typer.Typer()

SolveRates = Annotated[
    tuple[float, float], typer.Option(metavar="LEAST MOST", help="solve rates of the problems to take")
]
StatementCounts = Annotated[
    tuple[int, int], typer.Option(metavar="LEAST MOST", help="statements of their programs")
]
Novelty = Annotated[float, typer.Option(min=0, max=1, help="least novelty of their programs")]


@runs_app.command(rich_help_panel=RUNS)
def fork(
    directory: RunDir,
    generation: Annotated[int, typer.Option(min=0, help="the last generation to take over")],
    to: Annotated[Path, typer.Option(help="the new run directory")],
    settings: Overrides = None,
) -> None:
    """Start a new run from a generation of an old one, with other settings if you like."""
    from populora_core.commands.console import narrated
    from populora_core.config.load import apply_overrides
    from populora_core.lifecycle.loop import fork as fork_run
    from populora_core.runs.preflight import check_names
    from populora_core.runs.run import Run

    source = Run.open(directory)
    config = apply_overrides(source.config, settings or [])
    check_names(config, "the settings given with --set")
    with narrated(f"taking over generations 0 to {generation} ..."):
        forked = fork_run(source, generation, to, config)
    print(
        f"{forked.directory} holds generations 0 to {generation}; "
        + typed(f"populora resume {shown(to)} goes on from there")
    )


@runs_app.command(rich_help_panel=LOOK)
def inspect(
    directory: RunDir,
    generation: Annotated[int | None, typer.Option(min=0, help="one generation's stages")] = None,
    stage: Annotated[str | None, typer.Option(help="one stage's manifest (with --generation)")] = None,
    member: Annotated[
        str | None, typer.Option(help="one member, e.g. S0·g8: ratings, lineage, adapters")
    ] = None,
    problem: Annotated[str | None, typer.Option(help="one problem with its attempts")] = None,
) -> None:
    """Look into a run: overview, generation, stage, member or problem; of a folder of runs a list."""
    from populora_core.commands import inspection
    from populora_core.runs.run import Run

    if inspection.show_runs(directory):
        return
    opened = Run.open(directory)
    if problem is not None:
        inspection.show_problem(opened, problem)
    elif member is not None:
        inspection.show_member(opened, member)
    elif stage is not None:
        inspection.show_stage(opened, generation, stage)
    elif generation is not None:
        inspection.show_generation(opened, generation)
    else:
        inspection.show_run(opened)


@runs_app.command(rich_help_panel=LOOK)
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
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="write the rows to this file")] = None,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="let the SQL do all that DuckDB can: other files, writing")
    ] = False,
) -> None:
    """Ask runs in SQL (DuckDB). Rows are printed as they come; the column `run` says of which run they are.

    The SQL reads the named runs and nothing else. docs/analytics.md has queries to start from.
    """
    from populora_core.commands.answers import format_of, print_answer, save_answer
    from populora_core.runs.run import open_runs
    from populora_core.store.catalogue import Catalogue

    named = [run.directory for run in open_runs(directories)]
    with Catalogue(*named, locked=not trusted) as catalogue:
        answer, chosen = catalogue.query(sql), format_of(format, output)
        if output is None:
            print_answer(answer, chosen)
        else:
            save_answer(answer, chosen, output)
            print(f"{output} is written")


@runs_app.command(rich_help_panel=RUNS)
def prune(
    directory: RunDir,
    keep: Annotated[int, typer.Option(min=1, help="of the newest generations every stage can be redone")] = 3,
    every: Annotated[
        int, typer.Option(min=0, help="of every so many generations keep what a fork starts from; 0: of none")
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be removed and stop")] = False,
) -> None:
    """Keep a long run small: remove weights and optimiser states that going on does not need.

    Every table stays, so the report, the lineage and all questions do too; so does each member's newest adapter.
    What was removed does not come back: older generations can then not be redone, forked, evaluated or exported.
    """
    from populora_core.commands.console import narrated
    from populora_core.commands.inspection import show_plan
    from populora_core.lifecycle import pruning
    from populora_core.runs.run import Run

    opened = Run.open(directory)
    with narrated("looking for what going on does not need ..."):
        chosen = (pruning.plan if dry_run else pruning.prune)(opened, keep, every)
    show_plan(opened, chosen, dry_run)


@runs_app.command(rich_help_panel=LOOK)
def report(
    directories: RunDirs,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="default: report.html in the run, of several comparison.html here"),
    ] = None,
) -> None:
    """Write what a run did as one HTML page that opens offline; of several runs a comparison with the first.

    A run's own report.html is also brought up to date after every generation.
    """
    from populora_core.commands.console import narrated
    from populora_core.report.write import REPORT, write_report

    default = directories[0] / REPORT if len(directories) == 1 else Path("comparison.html")
    with narrated("writing the report ..."):
        written = write_report(directories, output or default)
    print(f"{written} is written; open it in any browser")


@runs_app.command(rich_help_panel=LOOK)
def export(
    directory: RunDir,
    member: Annotated[str, typer.Argument(metavar="MEMBER", help="a member's id or short name, e.g. S0·g8")],
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
            help="how others find the base model, e.g. Qwen/Qwen2.5-7B (default: its folder here)",
        ),
    ] = None,
    push: Push = None,
) -> None:
    """Take a member out of a run: a PEFT adapter, or with --merge a whole checkpoint, each with a model card.

    Both load in transformers, PEFT and vLLM. A new run can start from exported adapters: `[adapters.start_from]`.
    """
    from populora_core.commands.assemble import pushed
    from populora_core.commands.console import narrated
    from populora_core.lifecycle.export import CARD, export_member
    from populora_core.runs.run import Run

    with narrated(f"exporting {member} ..."):
        done = export_member(
            Run.open(directory), member, to, generation=generation, merge=merge, base_name=base_name
        )
    what = "merged checkpoint" if merge else "PEFT adapter"
    print(f"{done.folder} holds {done.member_id} after generation {done.generation}: {what}, model card")
    print(f"from Python:  see {done.folder / CARD}")
    print(f"with vLLM:    {done.command}")
    pushed(done.folder, push)


@runs_app.command(rich_help_panel=LOOK)
def assemble(
    directories: RunDirs,
    suite: Annotated[Path, typer.Option(help="a suite file, half of which is for validation")],
    to: Annotated[
        Path | None, typer.Option(metavar="OUT", help="a new folder (default: only the table)")
    ] = None,
    how: Annotated[
        Literal["best", "soup", "vote", "route"] | None,
        typer.Option(help="what to write (default: what wins on validation)"),
    ] = None,
    generation: Annotated[int | None, typer.Option(min=0, help="after which (default: the newest)")] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="problems of each benchmark's half (default: all)")
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="of best or soup a checkpoint of base and adapter")
    ] = False,
    base_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="how others find the base model")
    ] = None,
    push: Push = None,
) -> None:
    """Make one model of a run's members: best member, soup, majority vote or route.

    What wins is chosen on the validation half of the suite, and reported on the other half beside base and members.
    Of several runs it is the table alone, for each and for all together.
    """
    from populora_core.benchmarks.suite import load_suite
    from populora_core.commands.assemble import assemble_runs, pushed, write
    from populora_core.runs.run import open_runs
    from populora_core.support.durable import require_free
    from populora_core.support.errors import RunDirectoryError

    if to is not None:
        require_free(to)
    if (to is None and push) or (to is not None and len(directories) > 1):
        raise RunDirectoryError("--push needs --to, and --to one run", remedy="name one run and --to OUT")
    chosen = load_suite(suite)
    runs = open_runs(directories)
    found = assemble_runs(runs, chosen.sampled(sample) if sample else chosen, generation)
    if to is not None:
        write(found[0], how, to, merge, base_name)
        pushed(to, push)


@runs_app.command(rich_help_panel=LOOK)
def problems(
    directories: RunDirs,
    to: Annotated[Path, typer.Option(metavar="OUT", help="a new folder")],
    solve_rate: SolveRates = (0.0, 1.0),
    statements: StatementCounts = (0, 1_000_000),
    novelty: Novelty = 0.0,
    push: Push = None,
) -> None:
    """Write the verified problems of runs as a data set: problems, right answers, preference pairs, a card.

    `datasets.load_dataset(OUT, "problems")` loads it. Problems of the bundled held-out suites are never in it.
    """
    from populora_core.commands.assemble import pushed
    from populora_core.commands.console import narrated
    from populora_core.lifecycle.curriculum import Filters, write_curriculum
    from populora_core.runs.run import Run

    filters = Filters(*solve_rate, *statements, novelty)
    with narrated("writing the problems ..."):
        done = write_curriculum([Run.open(directory).directory for directory in directories], to, filters)
    counts = ", ".join(f"{rows} rows of {name}" for name, rows in done.rows.items())
    print(f"{done.folder} holds {counts}, and a card")
    print(f"from Python:  datasets.load_dataset({str(done.folder)!r}, 'problems')")
    pushed(done.folder, push, "dataset")


@runs_app.command(rich_help_panel=LOOK)
def serve(
    directory: RunDir,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="keep the key here (default: another key at every start)"),
    ] = None,
    waiting: Annotated[int, typer.Option(min=1, help="completions that may wait; more are refused")] = 512,
) -> None:
    """Serve a run's living members behind an OpenAI-compatible endpoint, until Ctrl-C.

    Each member is a model, and so are `best`, `vote` and `base`. /metrics is for Prometheus.
    """
    from populora_core.commands.console import narrated
    from populora_core.runs.run import Run
    from populora_core.serving.endpoint import serve_fleet
    from populora_core.serving.fleet import open_fleet
    from populora_core.support.keys import kept_key, new_key

    with narrated("loading the members ..."):
        fleet = open_fleet(Run.open(directory))
    key = new_key() if key_file is None else kept_key(key_file)
    print(f"models: {', '.join(fleet.models)}")
    print(f"export OPENAI_BASE_URL=http://{host}:{port}/v1 OPENAI_API_KEY={key}", flush=True)
    try:
        serve_fleet(fleet, key, host, port, waiting=waiting)
    except KeyboardInterrupt:
        print("stopped")


@runs_app.command(rich_help_panel=LOOK)
def play(
    directory: RunDir,
    teacher: Annotated[str | None, typer.Option(help="who asks (default: another each time)")] = None,
    student: Annotated[
        str | None, typer.Option(help="who answers for you (default: another each time)")
    ] = None,
    type: Annotated[str | None, typer.Option(help="a problem type (default: any of the run's)")] = None,
    seed: Annotated[int, typer.Option(min=0, help="of every draw")] = 0,
) -> None:
    """Play with a run's members: a teacher asks, you or a student answers, the verifier decides.

    Nothing is written to the run.
    """
    from populora_core.commands.play import play as play_run
    from populora_core.runs.run import Run

    play_run(Run.open(directory), teacher, student, type, seed)


@runs_app.command(rich_help_panel=LOOK)
def evaluate(
    directory: RunDir,
    suite: Annotated[
        Path,
        typer.Option(
            help="a suite file, see configs/suites/; yardstick: the run's own first and newest problems"
        ),
    ],
    members: Annotated[
        str, typer.Option(help="all, solvers, best (fittest of each role by play), or one member")
    ] = "all",
    generation: Annotated[int | None, typer.Option(min=0, help="after which (default: the newest)")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="of the draws (default: the suite's)")] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="problems of each benchmark (default: all of the reported half)")
    ] = None,
) -> None:
    """Measure members and the base model on a suite: scores with intervals, every answer kept.

    What is finished stays when this is interrupted or killed; the same command goes on from there.
    """
    from populora_core.benchmarks.scores import YARDSTICK
    from populora_core.benchmarks.suite import load_suite
    from populora_core.commands.scores import show_evaluation, show_yardstick
    from populora_core.runs.run import Run
    from populora_core.stages.evaluation import seeded

    try:
        if str(suite) == YARDSTICK:
            show_yardstick(Run.open(directory), generation, sample)
            return
        chosen = seeded(load_suite(suite), seed)
        chosen = chosen if sample is None else chosen.sampled(sample)
        show_evaluation(Run.open(directory), chosen, members, generation)
    except KeyboardInterrupt:
        print("interrupted: finished shards stay, the same command goes on from there")
        raise typer.Exit(EXIT_INTERRUPTED) from None
