"""Commands that put to use what a run made: its members to play with or as one model, its problems as a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from populora_core.support.typed import shown
from populora_core.terminal.options import LOOK, Push, RunDir, RunDirs, Trust, expanded

app = typer.Typer()

SolveRates = Annotated[
    tuple[float, float], typer.Option(metavar="LEAST MOST", help="solve rates of the problems to take")
]
Levels = Annotated[
    tuple[float, float],
    typer.Option(
        "--level",
        metavar="LEAST MOST",
        help="their levels: statements beyond def and return; with verify.slack, those that matter",
    ),
]
StatementCounts = Annotated[
    tuple[int, int], typer.Option(metavar="LEAST MOST", help="statements of their programs")
]
Novelty = Annotated[float, typer.Option(min=0, max=1, help="least novelty of their programs")]


@app.command(rich_help_panel=LOOK)
def assemble(
    directories: RunDirs,
    suite: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="a suite file, half of which is for validation (default: evaluate.suite)"
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="a new folder (default: only the table)", callback=expanded),
    ] = None,
    how: Annotated[
        Literal["best", "soup", "vote", "route"] | None,
        typer.Option(help="what to write (default: what wins on validation)"),
    ] = None,
    generation: Annotated[
        int | None,
        typer.Option(min=0, help="the members as they were after this generation (default: the newest)"),
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="problems of each benchmark's half (default: all)")
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="write best or soup as a whole checkpoint, not as an adapter")
    ] = False,
    base_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="how others find the base model")
    ] = None,
    push: Push = None,
    trust: Trust = None,
) -> None:
    """Make one model of a run's members: best member, soup, majority vote or route.

    What wins is chosen on the validation half of the suite, and reported on the other half beside base and members.
    With several runs it only prints the table, for each and for all.
    """
    from populora_core.benchmarks.suite import load_suite, named_suite
    from populora_core.lifecycle.export import require_mergeable
    from populora_core.runs.preflight import places
    from populora_core.runs.run import open_runs, sources
    from populora_core.support.durable import require_free
    from populora_core.support.errors import RunDirectoryError
    from populora_core.terminal.screen import pushed
    from populora_core.terminal.trusting import settle
    from populora_plugins.harvest.assembled import require_one_model
    from populora_plugins.harvest.assembling import assemble_runs, suite_of_runs, write

    if to is not None:
        require_free(to)
    of_a_folder = {"--push": push, "--how": how, "--merge": merge, "--base-name": base_name}
    if to is None and (idle := [option for option, given in of_a_folder.items() if given]):
        raise RunDirectoryError(f"{idle[0]} needs --to", fix="add --to OUT, a new folder")
    if merge and how is not None:
        require_one_model(how)
    runs = open_runs(directories)
    if to is not None and len(runs) > 1:
        raise RunDirectoryError("--to needs one run", got=", ".join(run.name for run in runs))
    for run in runs:
        if merge:
            require_mergeable(run)
        settle(run.name, [*places(run.config), *sources(run.config)], trust)
    chosen = named_suite(suite) if suite else load_suite(suite_of_runs(runs))
    found = assemble_runs(runs, chosen.sampled(sample) if sample else chosen, generation)
    if to is not None:
        write(found[0], how, to, merge, base_name)
        pushed(to, push)


@app.command(rich_help_panel=LOOK)
def problems(
    directories: RunDirs,
    to: Annotated[Path, typer.Option(metavar="OUT", help="a new folder", callback=expanded)],
    solve_rate: SolveRates = (0.0, 1.0),
    level: Levels = (0.0, 1_000_000.0),
    statements: StatementCounts = (0, 1_000_000),
    novelty: Novelty = 0.0,
    test_share: Annotated[
        float, typer.Option(min=0, max=1, help="share of the programs that go to the split `test`")
    ] = 0.1,
    push: Push = None,
) -> None:
    """Write the verified problems of runs as a data set: problems, right answers, preference pairs, a card.

    `datasets.load_dataset(OUT)` loads the problems; a second argument, "supervised" or "preferences", loads the others.
    A problem that several runs have is one row. The data set never contains problems of the bundled suites, nor
    CRUXEval's where a run's own suite asks them.
    """
    from populora_core.runs.run import open_runs
    from populora_core.terminal.screen import narrated, pushed, say
    from populora_plugins.harvest.curriculum import Filters, write_curriculum

    filters = Filters(*solve_rate, *statements, novelty, *level)
    with narrated("writing the problems ..."):
        runs = [run.directory for run in open_runs(directories)]
        done = write_curriculum(runs, to, filters, test_share)
    counts = ", ".join(f"{rows} rows of {name}" for name, rows in done.rows.items())
    say(f"{done.folder} holds {counts}, and a card")
    if done.held_out:
        say(
            f"{done.held_out} problems were left out because a held-out suite has them, or because this Python could "
            "not read them"
        )
    say(f"from Python:  datasets.load_dataset({str(done.folder)!r})")
    pushed(done.folder, push, "dataset")


@app.command(rich_help_panel=LOOK)
def environment(
    directories: RunDirs,
    to: Annotated[Path, typer.Option(metavar="OUT", help="a new folder", callback=expanded)],
    live: Annotated[
        bool, typer.Option("--live", help="an endless source: the run's teachers write as they are asked")
    ] = False,
    teacher: Annotated[
        str | None, typer.Option(help="who writes, with --live (default: another each time)")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="seed of the draws, with --live")] = 0,
    solve_rate: SolveRates = (0.0, 1.0),
    level: Levels = (0.0, 1_000_000.0),
    statements: StatementCounts = (0, 1_000_000),
    novelty: Novelty = 0.0,
) -> None:
    """Write a run's problems as an environment for other trainers: a package for the library `verifiers`.

    Programs in answers are judged in our sandbox. With --live every problem is verified before it is handed out.
    """
    from populora_core.runs.run import open_runs
    from populora_core.support.errors import RunDirectoryError
    from populora_core.terminal.screen import narrated, say
    from populora_plugins.harvest.curriculum import Filters
    from populora_plugins.harvest.environment import write_environment

    filters = Filters(*solve_rate, *statements, novelty, *level)
    if live and filters != Filters():
        raise RunDirectoryError(
            "--live takes whatever its teachers write",
            fix="leave out --solve-rate, --level, --statements and --novelty",
        )
    if not live and (teacher is not None or seed):
        raise RunDirectoryError("--teacher and --seed need --live", fix="add --live, or leave them out")
    with narrated("writing the environment ..."):
        done = write_environment(open_runs(directories), to, filters, live=live, teacher=teacher, seed=seed)
    count = "problems without end" if done.problems is None else f"{done.problems} problems"
    say(f"{done.folder} holds the package {done.package}: {count}")
    say(f"pip install -e {shown(done.folder)}, then see {done.folder / 'README.md'}")


@app.command(rich_help_panel=LOOK)
def play(
    directory: RunDir,
    teacher: Annotated[
        str | None, typer.Option(help="who asks, or best (default: another each time)")
    ] = None,
    student: Annotated[
        str | None, typer.Option(help="who answers for you, or best (default: another each time)")
    ] = None,
    type: Annotated[str | None, typer.Option(help="a problem type (default: any of the run's)")] = None,
    seed: Annotated[int, typer.Option(min=0, help="seed of every draw")] = 0,
    trust: Trust = None,
) -> None:
    """Play with a run's members: a teacher asks, you or a student answers, the verifier decides.

    Nothing is written to the run.
    """
    from populora_core.terminal.trusting import trusted_run
    from populora_plugins.harvest.play import play as play_run

    play_run(trusted_run(directory, trust), teacher, student, type, seed)
