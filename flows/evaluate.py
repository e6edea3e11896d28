"""Evaluate: many runs on one suite, as a Prefect flow; the nightly deployment runs it over all that changed.

Each run is one task. The scores and the trend appear as table artifacts, and the flow ends in a failed state with a
message when a role has fallen below the base by the guard's rule (`report.guard`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from prefect import get_run_logger, runtime, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed, Failed, State

from flows.choices import CHOICES, FOLDERS, GROUPS
from flows.forms import chosen_runs, launched, separate, titled
from flows.train import as_task
from flows.trend import evaluated_generations, trend
from populora_core.benchmarks.scores import NOTHING, headline_rows, tells_nothing, unjudged
from populora_core.benchmarks.suite import OWN, Part, load_suite
from populora_core.lifecycle.progress import evaluation_of, is_current, suite_for
from populora_core.report.guard import Fall, falls
from populora_core.report.scored import WHOLE
from populora_core.report.text import percent, signed
from populora_core.report.write import refresh, report_address
from populora_core.runs.run import RECORD, Run
from populora_core.runs.session import attach
from populora_core.stages.following import newest_generation
from populora_core.support.errors import PopuloraError, RunDirectoryError, RunInUse
from tasks.show import artifact_key


def _named(given: dict[str, Any]) -> str:
    """Name of the flow run: the suite and the runs that it measures."""
    return f"evaluate {Path(given['suite'] or 'own suite').stem}: " + ", ".join(
        Path(place).name for place in separate(given["run_dirs"])
    )


@launched(_named)
def evaluate(
    run_dirs: Annotated[list[str] | str, titled("Run folders", **{CHOICES: FOLDERS})],
    suite: Annotated[str, titled("Suite")] = "",
    members: Annotated[str, titled("Members", **{CHOICES: GROUPS})] = "all",
) -> State[Any]:
    """Measure runs on the reported half of a suite.

    Args:
        run_dirs: Run directories, or folders of them; of a folder only runs that changed since they were evaluated.
            Typed, with commas between them.
        suite: A suite file, for instance configs/suites/tiny.toml; or yardstick, for the run's own first and newest
            problems; or validity, for the newest prompts of its teachers. Empty: each run's own evaluate.suite.
        members: all, solvers, teachers, best (the fittest of each role by play), or a member's id.

    Returns:
        A failed state that names every role that fell below the base and every run that could not be evaluated.
    """
    name = suite if suite in OWN else load_suite(suite).suite if suite else "their own suites"
    failures: list[str] = []
    done: list[str] = []
    busy: list[str] = []
    for directory in _runs(chosen_runs(run_dirs), suite, members):
        run = Path(directory).name
        try:
            fallen = evaluate_run(directory, suite, members)
        except RunInUse:
            busy.append(run)
            continue
        except PopuloraError as error:  # one run that is damaged must not hide the others
            get_run_logger().error("%s: %s", run, error)
            failures.append(f"{run} could not be evaluated: {error.problem}")
            continue
        done.append(run)
        failures += [f"{run}: {fall}" for fall in fallen]
    if failures:
        return Failed(message="; ".join(failures))
    message = f"{len(done)} run{'s' * (len(done) != 1)} evaluated on {name}" + (
        "" if name in OWN or members not in WHOLE else ", none below the base twice in a row"
    )
    return Completed(message=message + (f"; at work, so left for later: {', '.join(busy)}" if busy else ""))


def _task_name() -> str:
    """RUN and SUITE."""
    asked = runtime.task_run.parameters
    return f"{Path(asked['directory']).name} on {Path(asked['suite'] or 'its own suite').stem}"


@task(name="evaluate run", task_run_name=_task_name, cache_policy=NO_CACHE, persist_result=False)
def evaluate_run(directory: str, suite: str, members: str) -> list[Fall]:
    """Evaluate one run, show its scores and its trend, and tell which roles have fallen below the base."""
    with attach(directory) as session:
        chosen = suite_for(session.run, suite)
        asked = evaluation_of(session, chosen, members)
        get_run_logger().info(
            "%d completions to make, generation %d", asked.exam.completions, asked.generation
        )
        found = asked.run(as_task)
        # A run's own suites ask something else after each generation, so their scores have no trend.
        points = [] if suite in OWN else trend(session.run, chosen, asked.members)
        nothing = suite not in OWN and tells_nothing(found.rows, chosen)
        refresh(session.run.directory)
    name = artifact_key(Path(directory).name, chosen.suite)
    shown = ("member_id", "n", "n_correct", "score", "low", "high", "delta", "delta_low", "delta_high")
    create_table_artifact(
        key=f"scores-{name}",
        table=[
            {column: _shown(column, dict(row)[column]) for column in shown}
            for row in headline_rows(found.rows, chosen)
        ],
        description=f"{chosen.suite} after generation {found.generation} of {directory}, judged in {found.judged_in}; "
        + (f"**{NOTHING}**; " if nothing else "")
        + "".join(f"in no score: {name} ({why}); " for name, why in unjudged(found.items(), chosen).items())
        + f"[its report]({report_address(Path(directory))})",
    )
    if points:
        create_table_artifact(
            key=f"trend-{name}",
            table=[
                {
                    "generation": point.generation,
                    "members": point.members,
                    "mean": percent(point.mean.value),
                    "low": percent(point.mean.low),
                    "high": percent(point.mean.high),
                    "change": _points(point.change.value) if point.change else None,
                    "change_low": _points(point.change.low) if point.change else None,
                    "change_high": _points(point.change.high) if point.change else None,
                }
                for point in points
            ],
            description=f"population mean on {chosen.suite}, {directory}",
        )
    if suite in OWN or asked.members not in WHOLE:  # a few say nothing of their role
        return []
    whole = {each for group in WHOLE for each in evaluated_generations(session.run, chosen, group)}
    every = falls(Path(directory), Part.TEST, chosen.suite, whole)
    return [fall for fall in every if fall.now.generation == found.generation]


def _runs(places: Sequence[str], suite: str, members: str) -> list[str]:
    """The run directories among the places, and those in folders that have changed since they were evaluated."""
    found = []
    for place in map(Path, places):
        if (place / RECORD).exists() or not place.is_dir():
            found.append(place)
        else:
            inside = [path.parent for path in sorted(place.glob(f"*/{RECORD}"))]
            found += [path for path in inside if _changed(path, suite, members)]
    return [str(path.resolve()) for path in found]


def _changed(directory: Path, suite: str, members: str) -> bool:
    """True if these members of a run's newest generation, as it is now, are yet to be evaluated."""
    try:
        newest_generation(Run.open(directory))
    except RunDirectoryError:
        return False  # not begun, or not readable: there is nothing to measure
    try:
        with attach(directory) as session:
            return not is_current(session, suite_for(session.run, suite), members)
    except PopuloraError:
        return True  # it is at work, or its own suite cannot be had, which its evaluation says


def _shown(column: str, value: Any) -> Any:
    """A score as a share, a difference from the base in points; counts and names as they are."""
    if not isinstance(value, float):
        return value
    return _points(value) if column.startswith("delta") else percent(value)


def _points(difference: float) -> str:
    return f"{signed(100 * difference, 1)} points"
