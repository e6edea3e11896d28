"""The `populora` command. Heavy packages are imported inside the commands, so that --help is instant."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

import flows  # sets Prefect's environment before anything imports it
from populora_core.commands.machine import machine_app
from populora_core.commands.options import MACHINES, RUNS, SCIENCE, Overrides, Prefixed, RunDir
from populora_core.commands.runs import runs_app
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
    cls=Prefixed,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Co-evolve LoRA teachers and students on one frozen base model.\n\n"
    + typed(
        "Start with `populora run --config configs/demo.toml --run-dir runs/demo`, "
        "then `populora inspect runs/demo`. The beginning of a command's name is enough."
    ),
)

app.add_typer(runs_app)
app.add_typer(machine_app)
app.add_typer(stores_app)
app.add_typer(suite_app, name="suite", rich_help_panel=SCIENCE)
app.add_typer(study_app, name="study", rich_help_panel=SCIENCE)

Generations = Annotated[
    int | None, typer.Option(min=1, help="go on to this generation (default: the config's)")
]
Plain = Annotated[bool, typer.Option("--plain", help="run without Prefect; results are the same")]


def _version(asked: bool) -> None:
    if asked:
        print(f"populora {version('populora-core')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="say which version this is", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Keeps what holds for every command."""


SHARED = "POPULORA_SHARED"
"""Set where other users of the machine may read what commands write: prompts, parameters, logs, the database."""


@app.command(rich_help_panel=RUNS)
def run(
    config: Annotated[Path, typer.Option(help="a TOML file; see configs/")],
    run_dir: Annotated[Path, typer.Option(help="a new directory for everything the run makes")],
    generations: Generations = None,
    settings: Overrides = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the resolved plan and stop")] = False,
    plain: Plain = False,
) -> None:
    """Start a run: found a population and train it."""
    from populora_core.runs.preflight import load_runnable
    from populora_core.runs.run import begin

    overrides = list(settings or [])
    if generations is not None:
        overrides.append(f"run.generations={generations}")
    loaded = load_runnable(config, overrides)
    if dry_run:
        from populora_core.commands.plan import print_plan

        print_plan(loaded, run_dir)
        return
    _train(begin(run_dir, loaded), loaded.run.generations, plain)


@app.command(rich_help_panel=RUNS)
def resume(directory: RunDir, generations: Generations = None, plain: Plain = False) -> None:
    """Go on with a run: finished stages stay, missing or damaged ones are made again."""
    from populora_core.runs.run import Run

    opened = Run.open(directory)
    _train(opened, generations or opened.config.run.generations, plain)


@app.command(rich_help_panel=RUNS)
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
    from populora_core.commands.console import narrated
    from populora_core.lifecycle.loop import rerun as rerun_stage
    from populora_core.runs.run import Run

    opened = Run.open(directory)
    with _watched(opened, opened.config.run.generations) as session, narrated() as say:
        say(f"making {stage} of generation {generation} again ...")
        results = rerun_stage(session, generation, stage, seed=seed, truncate=truncate)
    for result in results:
        print(f"{result.stage:<8} {'unchanged' if result.reused else f'made in {result.seconds:.1f} s'}")
    if all(result.reused for result in results):
        print(f"{stage} came out as it was, since its inputs and its seed are the same; --seed N draws again")
    print(typed(f"populora resume {directory} goes on from here"))


@app.command(rich_help_panel=RUNS)
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


@app.command(rich_help_panel=MACHINES)
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

    def say(address: str, index: str) -> None:
        print(f"{address}/deployments starts, resumes and schedules runs; Ctrl-C here stops everything")
        print(f"{address}/runs?hide-subflows=true lists them without their generations")
        print(f"{index} lists the runs in runs/ with their reports")
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
    closing(console, opened)


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
    if not os.environ.get(SHARED):
        os.umask(0o077)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end)
    try:
        app()
    except PopuloraError as error:
        error.remedy = typed(error.remedy)
        _fail(str(error))
    except (OSError, UnicodeError) as error:  # a name that no file can have, a folder that may not be read
        _fail(f"{type(error).__name__}: {error}")
    except RecursionError:
        _fail("what was given is nested too deeply")


def _fail(said: str) -> NoReturn:
    print("populora:", said.encode(errors="backslashreplace").decode(), file=sys.stderr)
    sys.exit(EXIT_ERROR)


if __name__ == "__main__":
    main()
