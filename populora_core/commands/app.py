"""The `populora` command. Heavy packages are imported inside the commands, so that --help is instant."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import sys
import warnings
from importlib.metadata import version
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from populora_core.commands.plugged import add_plugged
from populora_core.commands.runs import runs_app
from populora_core.commands.training import going_on, has_prefect, prefect_part, train, trainer, watched
from populora_core.support.errors import EXIT_ERROR, PopuloraError
from populora_core.support.shipped import shipped
from populora_core.support.typed import shown, typed, working_folder
from populora_core.support.visible import visible
from populora_core.terminal.options import MACHINES, RUNS, Overrides, Prefixed, RunDir, Trust, expanded

app = typer.Typer(
    name="populora",
    cls=Prefixed,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Co-evolve LoRA teachers and students on one frozen base model.\n\n"
    + typed(
        "Start with `populora run --preset quick`, then `populora inspect runs/quick`. "
        "The beginning of a command's name is enough."
    ),
)

app.add_typer(runs_app)

Generations = Annotated[
    int | None, typer.Option(min=1, help="go on to this generation (default: the config's)")
]
Prefect = Annotated[
    bool | None,
    typer.Option(
        "--prefect/--plain",
        help="each generation as a flow of Prefect, or without Prefect; results are the same (default: with it where "
        "a server is configured or `populora ui` is running)",
        show_default=False,
    ),
]


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
    """Hold the options of every command."""


SIZED = {"compact": "quick", "assert": "real", "instruct": "paper-7b"}
"""The preset whose lengths fit a base of the dialect, where `--base` is all that was said."""
SIZED_ON_CPU = SIZED | {"instruct": "quick-instruct"}
"""The same where no GPU is: one that can finish."""
SHARED = "POPULORA_SHARED"
"""Set where other users of the machine may read what commands write: prompts, parameters, logs, the database."""


@app.command(rich_help_panel=RUNS)
def run(
    config: Annotated[Path | None, typer.Option(help="a TOML file; see configs/", callback=expanded)] = None,
    preset: Annotated[
        str | None, typer.Option(help="one of ours in place of a file: quick, frontier, demo, paper-7b ...")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_FOLDER",
            help="any base: a name of the hub, a folder, a GGUF file, qwen2.5-coder-0.5b, smollm2-135m, tiny or "
            "frontier; dialect, device and dtype follow from it",
        ),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            help="a new directory for everything the run makes (default: runs/ and the preset's name)",
            callback=expanded,
        ),
    ] = None,
    generations: Generations = None,
    settings: Overrides = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the resolved plan and stop")] = False,
    hours: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="most hours the run may take on a CPU: estimated in some ten seconds, and refused if it needs more",
        ),
    ] = None,
    prefect: Prefect = None,
) -> None:
    """Start a run: found a population and train it."""
    from populora_core.runs.preflight import load_runnable
    from populora_core.runs.run import begin, refuse_occupied

    if dry_run and hours is not None:
        raise typer.BadParameter("a plan tells the time by itself: leave --hours or --dry-run out")
    overrides = list(settings or [])
    if generations is not None:
        overrides.append(f"run.generations={generations}")
    if base is not None:
        from populora_core.runs.any_base import base_settings

        found = base_settings(base, weights=not dry_run)
        overrides = [f"base.{key}={json.dumps(value)}" for key, value in found.items()] + overrides
        if config is None and preset is None:
            preset = (SIZED_ON_CPU if found["device"] == "cpu" else SIZED)[found["dialect"]]
            if found["device"] != "cpu":  # more take a GPU each, and are asked for by --set
                overrides = ["compute.shards=1", *overrides]
    file = _configuration(config, preset)
    loaded = load_runnable(file, overrides, plan=dry_run)
    folder = run_dir or _free(Path("runs", file.stem))
    if dry_run:
        from populora_core.commands.plan import print_plan

        refuse_occupied(folder.resolve())
        print_plan(loaded, folder)
        return
    if hours is not None:
        from populora_core.commands.plan import announce

        announce(loaded, folder, hours)
    chosen = trainer(prefect)
    train(begin(folder, loaded), loaded.run.generations, chosen)


def _configuration(config: Path | None, preset: str | None) -> Path:
    if (config is None) == (preset is None):
        raise typer.BadParameter("give --config FILE or --preset NAME", param_hint="--config / --preset")
    if config is not None:
        return config
    known = {
        file.stem: file for file in shipped("configs").glob("*.toml") if not file.stem.startswith("study")
    }
    if preset not in known:
        raise typer.BadParameter(f"{preset!r} is no preset; there are: {', '.join(sorted(known))}")
    return known[preset]


def _free(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3, ... that is not there yet."""
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return folder if not folder.exists() else next(each for each in numbered if not each.exists())


@app.command(rich_help_panel=RUNS)
def resume(
    directory: RunDir, generations: Generations = None, prefect: Prefect = None, trust: Trust = None
) -> None:
    """Go on with a run: finished stages stay, missing or damaged ones are made again."""
    from populora_core.terminal.trusting import trusted_run

    opened = trusted_run(directory, trust)
    train(opened, generations or opened.config.run.generations, trainer(prefect))


@app.command(rich_help_panel=RUNS)
def rerun(
    directory: RunDir,
    generation: Annotated[int, typer.Option(min=0, help="the generation of the stage")],
    stage: Annotated[
        str,
        typer.Option(
            help="match, propose, verify, solve, grade, update, evaluate, evolve, evaluate:SUITE or assemble:SUITE"
        ),
    ],
    seed: Annotated[int | None, typer.Option(min=0, help="draw again, with this seed")] = None,
    truncate: Annotated[
        bool,
        typer.Option("--truncate", help="move later generations to superseded/ if they no longer follow"),
    ] = False,
    trust: Trust = None,
) -> None:
    """Make one stage again, and what follows from it in its generation."""
    from populora_core.lifecycle.loop import rerun as rerun_stage
    from populora_core.terminal.screen import say
    from populora_core.terminal.trusting import trusted_run

    opened = trusted_run(directory, trust)
    say(f"making {stage} of generation {generation} again ...")
    again = f"populora rerun {shown(directory)} --generation {generation} --stage {shlex.quote(stage)}"
    again += (f" --seed {seed}" if seed is not None else "") + " --truncate" * truncate
    with watched(opened, opened.config.run.generations, again) as session:
        results = rerun_stage(session, generation, stage, seed=seed, truncate=truncate)
    for result in results:
        say(f"{result.stage:<8} {'unchanged' if result.reused else f'made in {result.seconds:.1f} s'}")
    if all(result.reused for result in results):
        say(f"{stage} came out as it was, since its inputs and its seed are the same; --seed N draws again")
    say(f"{going_on(opened)} goes on from here")


@app.command(rich_help_panel=RUNS)
def reap(directory: RunDir) -> None:
    """End what a killed run left: workers, sandboxes, temporary files, its lock, flow runs that stayed Running.

    A run that is at work is left alone. `resume` clears up by itself.
    """
    from populora_core.runs.reap import reap as reap_run
    from populora_core.runs.run import Run
    from populora_core.terminal.screen import say

    left = prefect_part().crash_left if has_prefect() else lambda _: []
    for line in reap_run(Run.open(directory), left) or ["nothing was left behind"]:
        say(line)


@app.command(rich_help_panel=MACHINES)
def ui(
    port: Annotated[
        int, typer.Option(min=1, max=65534, help="of the Prefect UI; reports are on the next one")
    ] = 4200,
    limit: Annotated[int, typer.Option(min=1, help="runs at the same time; others wait")] = 2,
) -> None:
    """Prefect's server, a worker and the deployments on this machine, until Ctrl-C."""
    prefect_part().ui(port, limit)


LEFT_OUT = add_plugged(app)  # once all of ours are there
"""Sentences on packages whose commands would replace ours."""


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """End in order, so that what was started ends too; a second signal must not cut that short."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def _warned(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Show a warning of the project by its message; the line of code that raised it helps no one here."""
    if category.__module__.startswith(("populora_core.", "populora_plugins.")):
        _say_aside(typed(str(message)))
    else:
        _SHOW(message, category, *place, **more)


def _say_aside(sentence: str) -> None:
    print("populora:", visible(sentence), file=sys.stderr)


_SHOW = warnings.showwarning


def main() -> None:
    """Entry point: errors of the project's own tree are printed for a person, not as tracebacks."""
    warnings.showwarning = _warned
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without a box or an arrow shows a question mark
            stream.reconfigure(errors="replace")
    if not os.environ.get(SHARED):
        os.umask(0o077)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end)
    for sentence in LEFT_OUT:
        _say_aside(sentence)
    try:
        app()
    except PopuloraError as error:
        error.fix = typed(error.fix)
        _fail(str(error))
    except (OSError, UnicodeError) as error:  # a name that no file can have, a folder that may not be read
        nowhere = isinstance(error, FileNotFoundError) and error.filename is None and not working_folder()
        gone = "the working folder is removed\nFix: change to a folder that exists, and try again"
        _fail(gone if nowhere else f"{type(error).__name__}: {error}")
    except RecursionError:
        _fail("what was given is nested too deeply")


def _fail(said: str) -> NoReturn:
    print("populora:", visible(said).encode(errors="backslashreplace").decode(), file=sys.stderr)
    sys.exit(EXIT_ERROR)
