"""The `populora` command. Heavy packages are imported inside the commands, so that --help is instant."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

import flows  # sets Prefect's environment before anything imports it
from populora_core.commands.machine import machine_app
from populora_core.commands.stores import stores_app
from populora_core.commands.studies import study_app
from populora_core.commands.suite import suite_app
from populora_core.commands.typed import shown, typed
from populora_core.support.errors import EXIT_ERROR, EXIT_INTERRUPTED, PopuloraError

if TYPE_CHECKING:
    from populora_core.runs.run import Run
    from populora_core.runs.session import Session

app = typer.Typer(
    name="populora",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Co-evolve LoRA teachers and students on one frozen base model.\n\n"
    "Start with `populora run --config configs/demo.toml --run-dir runs/demo`, "
    "then `populora inspect runs/demo`.",
)

app.add_typer(machine_app)
app.add_typer(stores_app)
app.add_typer(suite_app, name="suite")
app.add_typer(study_app, name="study")

RunDir = Annotated[Path, typer.Argument(metavar="DIR", help="a run directory")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a setting, e.g. run.seed=7")
]
Generations = Annotated[
    int | None, typer.Option(min=1, help="go on to this generation (default: the config's)")
]
Plain = Annotated[bool, typer.Option("--plain", help="run without Prefect; results are the same")]


@app.command()
def run(
    config: Annotated[Path, typer.Option(help="a TOML file; see configs/")],
    run_dir: Annotated[Path, typer.Option(help="a new directory for everything the run makes")],
    generations: Generations = None,
    settings: Settings = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the resolved plan and stop")] = False,
    plain: Plain = False,
) -> None:
    """Start a run: found a population and train it."""
    from populora_core.config.load import load_config
    from populora_core.runs.run import begin

    overrides = list(settings or [])
    if generations is not None:
        overrides.append(f"run.generations={generations}")
    loaded = load_config(config, overrides)
    if dry_run:
        from populora_core.commands.plan import print_plan

        print_plan(loaded, run_dir)
        return
    _train(begin(run_dir, loaded), loaded.run.generations, plain)


@app.command()
def resume(directory: RunDir, generations: Generations = None, plain: Plain = False) -> None:
    """Go on with a run: finished stages stay, missing or damaged ones are made again."""
    from populora_core.runs.run import Run

    opened = Run.open(directory)
    _train(opened, generations or opened.config.run.generations, plain)


@app.command()
def rerun(
    directory: RunDir,
    generation: Annotated[int, typer.Option(min=0, help="the generation of the stage")],
    stage: Annotated[
        str, typer.Option(help="match, propose, verify, solve, grade, update, evaluate or evolve")
    ],
    seed: Annotated[int | None, typer.Option(help="draw anew with this seed")] = None,
    truncate: Annotated[
        bool,
        typer.Option("--truncate", help="move later generations to superseded/ if they no longer follow"),
    ] = False,
) -> None:
    """Make one stage again, and what follows from it in its generation."""
    from populora_core.lifecycle.loop import rerun as rerun_stage
    from populora_core.runs.run import Run

    opened = Run.open(directory)
    with _watched(opened, opened.config.run.generations) as session:
        results = rerun_stage(session, generation, stage, seed=seed, truncate=truncate)
    for result in results:
        print(f"{result.stage:<8} {'unchanged' if result.reused else f'made in {result.seconds:.1f} s'}")
    print(typed(f"populora resume {directory} goes on from here"))


@app.command()
def fork(
    directory: RunDir,
    generation: Annotated[int, typer.Option(min=0, help="the last generation to take over")],
    to: Annotated[Path, typer.Option(help="the new run directory")],
    settings: Settings = None,
) -> None:
    """Start a new run from a generation of an old one, with other settings if you like."""
    from populora_core.config.load import apply_overrides
    from populora_core.lifecycle.loop import fork as fork_run
    from populora_core.runs.run import Run

    source = Run.open(directory)
    forked = fork_run(source, generation, to, apply_overrides(source.config, settings or []))
    print(
        f"{forked.directory} holds generations 0 to {generation}; "
        + typed(f"populora resume {to} goes on from there")
    )


@app.command()
def reap(directory: RunDir) -> None:
    """End what a killed run left: workers, sandboxes, temporary files, its lock, flow runs that stayed Running.

    A run that is at work is left alone. `resume` clears up by itself.
    """
    from populora_core.runs.reap import reap as reap_run
    from populora_core.runs.run import Run

    def flow_runs(directory: Path) -> list[str]:
        if find_spec("prefect") is None:
            return []
        from prefect.settings import PREFECT_API_URL

        from flows.server import answers, crash_left_flow_runs

        if not PREFECT_API_URL.value():
            return []
        return crash_left_flow_runs(directory) if answers() else ["Prefect's server does not answer"]

    for line in reap_run(Run.open(directory), flow_runs) or ["nothing was left behind"]:
        print(line)


@app.command()
def inspect(
    directory: RunDir,
    generation: Annotated[int | None, typer.Option(min=0, help="one generation's stages")] = None,
    stage: Annotated[str | None, typer.Option(help="one stage's manifest (with --generation)")] = None,
    member: Annotated[str | None, typer.Option(help="one member: ratings, lineage, adapters")] = None,
    problem: Annotated[str | None, typer.Option(help="one problem with its attempts")] = None,
) -> None:
    """Look into a run: overview, generation, stage, member or problem."""
    from populora_core.commands import inspection
    from populora_core.runs.run import Run

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


@app.command()
def query(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="one run, or several to ask as one")
    ],
    sql: Annotated[str, typer.Argument(metavar="SQL", help="over the views of docs/data-contract.md")],
    format: Annotated[Literal["table", "csv", "json"], typer.Option(help="how to print the rows")] = "table",
) -> None:
    """Ask runs in SQL (DuckDB). Rows are printed as they come; the column `run` says of which run they are.

    docs/analytics.md has queries to start from.
    """
    from populora_core import open_run
    from populora_core.commands.answers import print_answer

    with open_run(*directories) as catalogue:
        print_answer(catalogue.query(sql), format)


@app.command()
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
    from populora_core.commands.inspection import show_plan
    from populora_core.lifecycle import pruning
    from populora_core.runs.run import Run

    opened = Run.open(directory)
    chosen = (pruning.plan if dry_run else pruning.prune)(opened, keep, every)
    show_plan(opened, chosen, dry_run)


@app.command()
def report(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="one run, or several to compare")
    ],
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="default: report.html in the run, of several comparison.html here"),
    ] = None,
) -> None:
    """Write what a run did as one HTML page that opens offline; of several runs a comparison with the first.

    A run's own report.html is also brought up to date after every generation.
    """
    from populora_core.report.write import REPORT, write_report

    default = directories[0] / REPORT if len(directories) == 1 else Path("comparison.html")
    print(f"{write_report(directories, output or default)} is written; open it in any browser")


@app.command()
def export(
    directory: RunDir,
    member: Annotated[str, typer.Argument(metavar="MEMBER", help="a member's id, e.g. student-00-g0000")],
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
) -> None:
    """Take a member out of a run: a PEFT adapter, or with --merge a whole checkpoint, each with a model card.

    Both load in transformers, PEFT and vLLM. A new run can start from exported adapters: `[adapters.start_from]`.
    """
    from populora_core.lifecycle.export import CARD, export_member
    from populora_core.runs.run import Run

    done = export_member(
        Run.open(directory), member, to, generation=generation, merge=merge, base_name=base_name
    )
    what = "merged checkpoint" if merge else "PEFT adapter"
    print(f"{done.folder} holds {done.member_id} after generation {done.generation}: {what}, model card")
    print(f"from Python:  see {done.folder / CARD}")
    print(f"with vLLM:    {done.command}")


@app.command()
def evaluate(
    directory: RunDir,
    suite: Annotated[Path, typer.Option(help="a suite file; see configs/suites/")],
    members: Annotated[str, typer.Option(help="all, best (fittest of each role by play), or an id")] = "all",
    generation: Annotated[int | None, typer.Option(min=0, help="after which (default: the newest)")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="of the draws (default: the suite's)")] = None,
) -> None:
    """Measure members and the base model on a suite: scores with intervals, every answer kept.

    What is finished stays when this is interrupted or killed; the same command goes on from there.
    """
    from populora_core.benchmarks.suite import load_suite
    from populora_core.commands.scores import show_evaluation
    from populora_core.runs.run import Run
    from populora_core.stages.evaluation import seeded

    try:
        show_evaluation(Run.open(directory), seeded(load_suite(suite), seed), members, generation)
    except KeyboardInterrupt:
        print("interrupted: finished shards stay, the same command goes on from there")
        raise typer.Exit(EXIT_INTERRUPTED) from None


@app.command()
def ui(
    port: Annotated[
        int, typer.Option(min=1, max=65534, help="of the Prefect UI; reports are on the next one")
    ] = 4200,
    limit: Annotated[int, typer.Option(min=1, help="runs at the same time; others wait")] = 2,
) -> None:
    """Prefect's server, a worker and the deployments on this machine, until Ctrl-C."""
    from flows.guard import kept_key
    from flows.notify import destination
    from flows.ui import serve

    def say(address: str) -> None:
        print(f"{address}/deployments starts, resumes and schedules runs; Ctrl-C here stops everything")
        key = kept_key(flows.PREFECT_KEY)
        print(f"the page asks once for the key {key}, which is kept in {flows.PREFECT_KEY}")
        print(f"runs that fail or crash are told to {destination()}", flush=True)

    print("starting Prefect, about half a minute ...", flush=True)
    try:
        serve(port, limit, say)
    except KeyboardInterrupt:
        print("stopped; what runs committed stays, and Retry goes on from there")


def _train(opened: Run, generations: int, plain: bool) -> None:
    from populora_core.commands.console import closing, console
    from populora_core.lifecycle.loop import train

    with _watched(opened, generations) as session:
        if plain:
            train(session, generations)
        else:
            flows.quieten_prefect()
            console.print("[dim]starting Prefect, about 20 seconds; --plain runs without it[/]")
            from flows.observed import Observed
            from flows.server import own_server

            with own_server():
                train(session, generations, Observed(partial(console.print, markup=False, soft_wrap=True)))
    closing(console, opened.directory)


@contextmanager
def _watched(opened: Run, generations: int) -> Iterator[Session]:
    """An open session whose progress is drawn, and which an interruption leaves in order."""
    from populora_core.commands.console import ConsoleObserver, console
    from populora_core.runs.session import Session

    observer = ConsoleObserver(console, opened.directory, generations)
    try:
        with Session(opened, observer) as session, observer:
            yield session
    except (KeyboardInterrupt, SystemExit) as ending:
        console.print(
            f"\n[yellow]interrupted[/] in {observer.position}: that stage was given up, everything committed stays.\n"
            f"  [green]{typed(f'populora resume {shown(opened.directory)}')}[/] goes on from there",
            soft_wrap=True,
        )
        if isinstance(ending, SystemExit):
            raise
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """End in order, so that what was started ends too; a second signal must not cut that short."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> None:
    """Entry point: errors of the project's own tree are printed for a person, not as tracebacks."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end)
    try:
        app()
    except PopuloraError as error:
        error.remedy = typed(error.remedy)
        print(f"populora: {error}", file=sys.stderr)
        sys.exit(EXIT_ERROR)


if __name__ == "__main__":
    main()
