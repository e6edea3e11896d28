"""Conduct of a study: which runs are still to be made, and making them, some at a time."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, zip_longest
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event

from populora_core.benchmarks.items import suite_digest, suite_items
from populora_core.benchmarks.strata import level_of
from populora_core.benchmarks.suite import Part, Suite, named_suite
from populora_core.config.load import Config
from populora_core.config.measuring import EvaluateSection
from populora_core.model.base import base_digest, require_files
from populora_core.runs.heartbeat import Beat, Life
from populora_core.support.aliases import Say
from populora_core.support.children import begin, end, with_models
from populora_core.support.durable import sweep
from populora_core.support.errors import ConfigError, PopuloraError, StudyError, WorkerLost
from populora_core.support.typed import shown
from populora_plugins.study.config import StudyConfig, load_study
from populora_plugins.study.heldout import BANDS, sampled_suite
from populora_plugins.study.play import Assignment, serve
from populora_plugins.study.reckoning import costs
from populora_plugins.study.summary import RECORD, SUMMARIES, origin_of, read_summary, recorded_by, why_void
from populora_plugins.study.verdicts import VERDICTS, write_verdicts

VOID = "void"
Play = Callable[[Assignment, Say, Event], object]
EXIT_SECONDS = 45.0  # for a run's process to end its workers and sandbox


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """Plan of a study: the runs that are done, void and left.

    Attributes:
        done: names of the runs whose summaries count.
        void: name -> why its summary does not count any more.
        left: the runs to make, in order: those that decide come first.
    """

    study: StudyConfig
    done: tuple[str, ...]
    void: Mapping[str, str]
    left: tuple[Assignment, ...]

    @property
    def runs(self) -> int:
        return len(self.done) + len(self.left)

    def lines(self) -> Iterator[str]:
        """Lines for a person: the runs that are done, those that do not count any more and why, those that are left."""
        yield f"study {self.study.name}: {len(self.done)} of {self.runs} runs are done"
        for name, reason in self.void.items():
            yield f"  {name} does not count any more: {reason}"
        if self.left:
            generations = sum(run.generations for run in self.left)
            yield f"  {len(self.left)} runs of {generations} generations are left, {self.study.processes} at a time"
            yield f"  run directories in {self.study.runs}, results in {self.study.results}"
        finished = [read_summary(self.study.results / f"{name}.parquet") for name in self.done]
        reckoned = list(costs(self.study, finished))
        yield from (f"  {cost}" for cost in reckoned)
        if reckoned:
            yield f"  {sum(cost.hours for cost in reckoned):.1f} core hours in all"


def plan(path: str | Path) -> StudyPlan:
    """Read a study's file and see which of its runs are done.

    Raises:
        ConfigError: the study or an arm cannot be used.
        BaseModelError: a base model is incomplete.
        StudyError: the study is over, and its results are a record; or it began in another folder.
    """
    study, configs = load_study(path)
    _refuse_elsewhere(Path(path), study)
    return plan_of(study, configs)


def plan_of(study: StudyConfig, configs: Mapping[str, Config]) -> StudyPlan:
    """The same for a study that was read, and the resolved configuration of each of its arms."""
    _refuse_record(study)
    suite = named_suite(EvaluateSection(suite=study.suite).file())
    sampled = sampled_suite(suite, study.sampled) if study.sampled else None
    if study.copies_at:
        _require_copies(study, suite, configs[study.population].population.students)
    others = ([suite_digest(sampled)] if sampled else []) + [study.members] * (study.members != "all")
    others += ["average"] * study.average + [f"copies-{study.copies_at}"] * (study.copies_at > 0)
    asked = " ".join([suite_digest(suite), *others])
    digests: dict[Path, str] = {}
    for config in configs.values():
        folder = config.base.folder()
        if folder not in digests:
            require_files(folder)
            digests[folder] = base_digest(folder)
    if len(set(digests.values())) > 1:
        raise StudyError(
            "the arms have different base models, whose scores are not compared",
            expected="base.path of one base in every arm",
            got=", ".join(sorted(map(str, digests))),
            fix="make a study of each base",
        )
    done, void, left = [], {}, []
    for name, seed in _ordered(study):
        config = configs[name]
        config = config.model_copy(update={"run": config.run.model_copy(update={"seed": seed})})
        origin = origin_of(name, seed, config, digests[config.base.folder()], asked, study.evaluate_every)
        summary = study.results / f"{origin.name}.parquet"
        reason = why_void(summary, origin)
        if reason is None:
            done.append(origin.name)
            continue
        if reason:
            void[origin.name] = reason
        directory = study.runs / origin.name
        left.append(
            Assignment(
                origin,
                config,
                suite,
                sampled,
                study.members,
                directory,
                summary,
                study.keep_runs,
                study.average,
                study.copies_at if name == study.population else 0,
            )
        )
    planned = {*done, *(run.name for run in left)}
    for summary in sorted(study.results.glob(SUMMARIES)):
        if summary.stem not in planned:
            void[summary.stem] = "the study has no such arm or seed"
    return StudyPlan(study, tuple(done), void, tuple(left))


def require_current(planned: StudyPlan) -> None:
    """Raise StudyError where conducting the study would set finished runs aside and make them again."""
    if planned.void:
        raise StudyError(
            f"{len(planned.void)} finished runs of the study {planned.study.name} do not count any more",
            got="; ".join(dict.fromkeys(planned.void.values())),
            fix="go on with the code that made them (git worktree add; its revision is in "
            f"{planned.study.results / VERDICTS}), or add --again, which moves them to {VOID}/ and makes them again",
        )


def conduct(planned: StudyPlan, say: Say, play: Play | None = None) -> None:
    """Make all runs that are left, `processes` at a time, and bring the verdicts up to date after each.

    One run that fails does not stop the others.

    Args:
        say: called with each run's progress, from the thread that makes it.
        play: makes one run; the Prefect flow takes the place of `play_apart`.

    Raises:
        StudyError: some runs failed; the same command tries them again.
    """
    make, stop = play or play_apart, Event()
    failures: dict[str, PopuloraError] = {}
    done = len(planned.done)

    def told(run: Assignment, line: str) -> None:
        say(f"{run.name:<24} {line}")

    prepare(planned)
    with ThreadPoolExecutor(planned.study.processes) as pool:
        asked = {pool.submit(make, run, partial(told, run), stop): run for run in planned.left}
        try:
            for future in as_completed(asked):
                run = asked[future]
                try:
                    future.result()
                except PopuloraError as error:
                    failures[run.name] = error
                    told(run, f"failed: {error}")
                else:
                    write_verdicts(planned.study)
                    done += 1
                    told(run, f"finished: {run.summary}; {done} of {planned.runs} runs are done")
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    if failures:
        first = next(iter(failures))
        raise StudyError(
            f"{len(failures)} runs of the study could not be finished: {', '.join(failures)}",
            got=f"{first}: {failures[first].problem}",
            fix="fix the cause; the same command goes on with these runs and keeps all others",
        )


def prepare(planned: StudyPlan) -> None:
    """Set void summaries aside, so that the folder holds what counts alone, and bring the verdicts up to date."""
    results = planned.study.results
    sweep(results)
    for name in planned.void:
        aside = results / VOID
        aside.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # another conductor was faster
            (results / f"{name}.parquet").replace(_free(aside, name))
    if not planned.study.keep_runs:
        for name in planned.done:
            directory = planned.study.runs / name
            beat = Beat.read(directory)
            if beat is None or beat.life is not Life.ALIVE:  # another conductor may be at it
                shutil.rmtree(directory, ignore_errors=True)
    write_verdicts(planned.study)


def _free(aside: Path, name: str) -> Path:
    """The first place for a summary that none has that was set aside before."""
    names = chain([name], (f"{name}-{number}" for number in count(1)))
    return next(path for each in names if not (path := aside / f"{each}.parquet").exists())


def play_apart(run: Assignment, say: Say, stop: Event) -> None:
    """Make a run in a process of its own, which ends when this one does, however that goes.

    Args:
        stop: once set, the process is ended and the run left for another time.

    Raises:
        PopuloraError: what the run raised; WorkerLost if its process ended without a word.
    """
    if stop.is_set():
        return
    context = with_models(run.config.base.device)
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, run), name=f"populora-{run.name}")
    begin(process)
    theirs.close()
    try:
        for message in _messages(ours, stop):
            if message is None:
                return
            if isinstance(message, PopuloraError):
                raise message
            say(message)
        if not stop.is_set():
            process.join(1.0)
            raise WorkerLost(
                f"the process of {run.name} ended before the run was finished",
                got=f"exit code {process.exitcode}",
                fix="look for memory shortage (exit code -9); populora study goes on with the run",
            )
    finally:
        ours.close()
        process.join(1.0)
        if process.is_alive():
            end(process, EXIT_SECONDS)


def _messages(pipe: Connection, stop: Event) -> Iterator[str | PopuloraError | None]:
    """Yield the messages that `serve` sends through the pipe, until its other end is closed or `stop` is set."""
    while not stop.is_set():
        try:
            if pipe.poll(0.5):
                yield pipe.recv()
        except (EOFError, OSError):
            return


def _refuse_elsewhere(path: Path, study: StudyConfig) -> None:
    """Raise StudyError where the study has results in a folder above its file, and none here: it would begin again."""
    above = (folder for folder in path.resolve().parents if (folder / study.results / VERDICTS).is_file())
    if not study.results.exists() and (began := next(above, None)) is not None:
        raise StudyError(
            f"the study {study.name} has results in another folder, and would begin again here",
            expected=f"{began} as the working folder, where {study.results} lies",
            got=f"{Path.cwd()}",
            fix=f"cd {shown(began)} and go on from there; to make its runs again, give a copy of its file other "
            "folders for `runs` and `results`",
        )


def _refuse_record(study: StudyConfig) -> None:
    revision = recorded_by(study.results)
    if revision is not None:
        raise StudyError(
            f"the results of the study {study.name} are a record, made by revision {revision}",
            got=f"{study.results / RECORD}",
            fix=f"populora study report {shown(study.results)} shows them; to make its runs again, give a "
            "copy of its file other folders for `runs` and `results`",
        )


def _require_copies(study: StudyConfig, suite: Suite, students: int) -> None:
    """Raise ConfigError where no student would be copied, or copies not scored over all their levels."""
    strata = {item.stratum for _, items in suite_items(suite, Part.TEST) for item in items}
    levels = sorted(level for stratum in strata if (level := level_of(stratum)) is not None)
    if students < 2 or not set(BANDS["levels_2_5"]) <= set(levels):
        raise ConfigError(
            f"the study {study.name} cannot score copies of its students, which copies_at asks for",
            expected=f"two students or more in {study.population}, and a suite with problems of levels 2 to 5",
            got=f"students: {students}; levels: {', '.join(map(str, levels)) or 'none'}",
            fix="leave copies_at out, or change the arm or the suite",
        )


def _ordered(study: StudyConfig) -> Iterator[tuple[str, int]]:
    """Arms and seeds: first the arms that decide, seed by seed, so that what is there is balanced; then arm by arm."""
    deciding = [arm for arm in study.arms if arm.name in study.compared]
    rounds = zip_longest(*([(arm.name, seed) for seed in arm.seeds] for arm in deciding))
    yield from (run for together in rounds for run in together if run is not None)
    yield from ((arm.name, seed) for arm in study.arms if arm not in deciding for seed in arm.seeds)
