"""Commands that put to use what a run made: its members, its problems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from populora_core.terminal.options import LOOK, Push, RunDir, RunDirs, Trust

outcomes_app = typer.Typer()

SolveRates = Annotated[
    tuple[float, float], typer.Option(metavar="LEAST MOST", help="solve rates of the problems to take")
]
Levels = Annotated[
    tuple[float, float],
    typer.Option(
        "--level", metavar="LEAST MOST", help="their levels: statements beyond def and return that matter"
    ),
]
StatementCounts = Annotated[
    tuple[int, int], typer.Option(metavar="LEAST MOST", help="statements of their programs")
]
Novelty = Annotated[float, typer.Option(min=0, max=1, help="least novelty of their programs")]


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
) -> None:
    """Take a member out of a run: a PEFT adapter, or with --merge a whole checkpoint, each with a model card.

    Both load in transformers, PEFT and vLLM. A new run can start from exported adapters: `[adapters.start_from]`.
    """
    from populora_core.lifecycle.export import CARD, export_member
    from populora_core.lifecycle.run_evaluation import BEST, best_solver
    from populora_core.runs.run import Run
    from populora_core.terminal.screen import narrated, pushed

    run = Run.open(directory)
    name = best_solver(run, generation) if member == BEST else member
    with narrated(f"exporting {name} ..."):
        done = export_member(run, name, to, generation=generation, merge=merge, base_name=base_name)
    what = "merged checkpoint" if merge else "PEFT adapter"
    print(f"{done.folder} holds {done.member_id} after generation {done.generation}: {what}, model card")
    print(f"from Python:  see {done.folder / CARD}")
    print(f"with vLLM:    {done.command}")
    pushed(done.folder, push)


@outcomes_app.command(rich_help_panel=LOOK)
def assemble(
    directories: RunDirs,
    suite: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="a suite file, half of which is for validation (default: evaluate.suite)"
        ),
    ] = None,
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
    trust: Trust = None,
) -> None:
    """Make one model of a run's members: best member, soup, majority vote or route.

    What wins is chosen on the validation half of the suite, and reported on the other half beside base and members.
    Of several runs it is the table alone, for each and for all together.
    """
    from populora_core.benchmarks.suite import load_suite, named_suite
    from populora_core.commands.assemble import assemble_runs, suite_of_runs, write
    from populora_core.runs.preflight import places
    from populora_core.runs.run import open_runs
    from populora_core.support.durable import require_free
    from populora_core.support.errors import RunDirectoryError
    from populora_core.terminal.screen import pushed
    from populora_core.terminal.trusting import settle

    if to is not None:
        require_free(to)
    if to is None and push:
        raise RunDirectoryError("--push needs --to", fix="add --to OUT, a new folder")
    runs = open_runs(directories)
    if to is not None and len(runs) > 1:
        raise RunDirectoryError("--to needs one run", got=", ".join(run.name for run in runs))
    for run in runs:
        settle(run.name, places(run.config), trust)
    chosen = named_suite(suite) if suite else load_suite(suite_of_runs(runs))
    found = assemble_runs(runs, chosen.sampled(sample) if sample else chosen, generation)
    if to is not None:
        write(found[0], how, to, merge, base_name)
        pushed(to, push)


@outcomes_app.command(rich_help_panel=LOOK)
def problems(
    directories: RunDirs,
    to: Annotated[Path, typer.Option(metavar="OUT", help="a new folder")],
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

    `datasets.load_dataset(OUT)` loads the problems, with "supervised" or "preferences" as a second argument the others.
    A problem that several runs have is one row. Problems of the bundled held-out suites are never in it.
    """
    from populora_core.lifecycle.curriculum import Filters, write_curriculum
    from populora_core.runs.run import open_runs
    from populora_core.terminal.screen import narrated, pushed

    filters = Filters(*solve_rate, *statements, novelty, *level)
    with narrated("writing the problems ..."):
        runs = [run.directory for run in open_runs(directories)]
        done = write_curriculum(runs, to, filters, test_share)
    counts = ", ".join(f"{rows} rows of {name}" for name, rows in done.rows.items())
    print(f"{done.folder} holds {counts}, and a card")
    if done.held_out:
        print(f"left out, as a held-out suite has them: {done.held_out} problems")
    print(f"from Python:  datasets.load_dataset({str(done.folder)!r})")
    pushed(done.folder, push, "dataset")


@outcomes_app.command(rich_help_panel=LOOK)
def environment(
    directories: RunDirs,
    to: Annotated[Path, typer.Option(metavar="OUT", help="a new folder")],
    live: Annotated[
        bool, typer.Option("--live", help="an endless source: the run's teachers write as they are asked")
    ] = False,
    teacher: Annotated[
        str | None, typer.Option(help="who writes, with --live (default: another each time)")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of what is drawn, with --live")] = 0,
    solve_rate: SolveRates = (0.0, 1.0),
    level: Levels = (0.0, 1_000_000.0),
    statements: StatementCounts = (0, 1_000_000),
    novelty: Novelty = 0.0,
) -> None:
    """Write a run's problems as an environment for other trainers: a package for the library `verifiers`.

    Programs in answers are judged in our sandbox. With --live every problem is verified before it is handed out.
    """
    from populora_core.lifecycle.curriculum import Filters
    from populora_core.lifecycle.environment import write_environment
    from populora_core.runs.run import Run
    from populora_core.terminal.screen import narrated

    filters = Filters(*solve_rate, *statements, novelty, *level)
    with narrated("writing the environment ..."):
        runs = [Run.open(directory) for directory in directories]
        done = write_environment(runs, to, filters, live=live, teacher=teacher, seed=seed)
    count = "problems without end" if done.problems is None else f"{done.problems} problems"
    print(f"{done.folder} holds the package {done.package}: {count}")
    print(f"pip install -e {done.folder}, then see {done.folder / 'README.md'}")


@outcomes_app.command(rich_help_panel=LOOK)
def serve(
    directory: RunDir,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="keep the key here (default: another key at every start)"),
    ] = None,
    length: Annotated[int, typer.Option(min=1, help="tokens of a prompt with its completion")] = 8192,
    waiting: Annotated[int, typer.Option(min=1, help="completions that may wait; more are refused")] = 512,
    trust: Trust = None,
) -> None:
    """Serve a run's living members behind an OpenAI-compatible endpoint, until Ctrl-C.

    Each member is a model, and so are `best`, `vote`, `route` and `base`. /metrics is for Prometheus.
    """
    from populora_core.runs.run import Run
    from populora_core.serving.endpoint import serve_fleet
    from populora_core.serving.fleet import open_fleet
    from populora_core.support.keys import kept_key, new_key
    from populora_core.support.registry import is_place
    from populora_core.terminal.screen import narrated
    from populora_core.terminal.trusting import settle

    run = Run.open(directory)
    settle(run.name, filter(is_place, [run.config.base.dialect]), trust)
    with narrated("loading the members ..."):
        fleet = open_fleet(run, length)
    key = new_key() if key_file is None else kept_key(key_file)
    print(f"models: {', '.join(fleet.models)}")
    print(f"export OPENAI_BASE_URL=http://{host}:{port}/v1 OPENAI_API_KEY={key}", flush=True)
    try:
        serve_fleet(fleet, key, host, port, waiting=waiting)
    except KeyboardInterrupt:
        print("stopped")
