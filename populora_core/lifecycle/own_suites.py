"""Suites of a run's own rows: whether its problems got harder and its solvers better, and whether its teachers still
write valid ones. Members answer beside the base, which never changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from populora_core.benchmarks.benchmark import benchmark
from populora_core.benchmarks.items import sample_of
from populora_core.benchmarks.scores import FIRST, NEWEST, PROMPTS
from populora_core.benchmarks.suite import VALIDITY, YARDSTICK, Entry, Suite
from populora_core.config.load import Config
from populora_core.config.sections import ProposeSection, SolveSection
from populora_core.lifecycle.run_evaluation import SOLVERS, TEACHERS, RunEvaluation
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.store.manifest import stage_dir
from populora_core.store.rows import StageTables
from populora_core.support.ids import ANCHOR

ATTEMPTS = 2  # more problems tell more than more attempts at each
PROBLEMS = 80  # of each benchmark, where no one says how many
LONGEST_ERA = 5  # generations, as long as the report's "at first" and "now"

ItemRows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class OwnSuite:
    """A suite that a run is for itself.

    Attributes:
        players: the group of members that answer it.
        entries: its benchmarks, asked as the run's own stages ask.
        rows: the rows of each benchmark after a generation; some of them empty where there is nothing to ask yet.
        needs: what has to be there.
    """

    players: str
    entries: Callable[[Config], tuple[Entry, ...]]
    rows: Callable[[Run, int], Sequence[ItemRows]]
    needs: str


def own_suite(run: Run, name: str, problems: int | None = None) -> Suite:
    """The suite of a name in `OWN_SUITES`; it draws by the run's seed, so that a later one compares with it."""
    own, configured = OWN_SUITES[name], getattr(run.config.evaluate, name)
    return Suite(
        suite=name,
        seed=run.config.run.seed,
        sample=problems or configured or PROBLEMS,
        benchmarks=own.entries(run.config),
    )


def own_evaluation(session: Session, suite: Suite, generation: int) -> RunEvaluation | None:
    """The evaluation on a sample of the run's own rows; None where there are none yet."""
    own = OWN_SUITES[suite.suite]
    asked = []
    for entry, rows in zip(suite.benchmarks, own.rows(session.run, generation), strict=True):
        if not rows:
            return None
        asked.append((entry, sample_of(benchmark(entry.benchmark).load(rows), suite.sample or PROBLEMS)))
    return RunEvaluation(session, suite, own.players, generation, asked)


def _as_attempted(config: Config) -> tuple[Entry, ...]:
    return tuple(_entry(name, config.solve, ATTEMPTS) for name in (FIRST, NEWEST))


def _as_proposed(config: Config) -> tuple[Entry, ...]:
    return (_entry(PROMPTS, config.propose),)


def _entry(name: str, drawn: ProposeSection | SolveSection, attempts: int = 1) -> Entry:
    return Entry(
        benchmark=name,
        dataset="run",
        attempts=attempts,
        temperature=drawn.temperature,
        top_p=drawn.top_p,
        max_tokens=drawn.max_tokens,
    )


def _eras(run: Run, generation: int) -> Sequence[ItemRows]:
    """The problems of the first and of the newest generations.

    An era is a third of the generations, five at most; so until the 15th the first one grows, and its sample with it.
    The base never changes, so what it solves tells how hard the problems are. Founders begin as the base (B = 0).
    """
    if generation < 2:
        return [], []
    era = max(1, min(LONGEST_ERA, generation // 3))
    return _problems(run, range(1, era + 1)), _problems(run, range(generation - era + 1, generation + 1))


def _problems(run: Run, generations: Sequence[int]) -> ItemRows:
    return [
        row
        for number in generations
        for row in StageTables(stage_dir(run.directory, number, "verify")).rows("problems")
        if row["teacher_id"] != ANCHOR
    ]


def _prompts(run: Run, generation: int) -> Sequence[ItemRows]:
    """The prompts of the generation's proposals, each with the references that its teacher was shown."""
    if generation == 0:
        return ([],)
    tables = StageTables(stage_dir(run.directory, generation, "propose"))
    # One input, the rule, is not named: the digests of such prompts stay as they are.
    inputs = {"inputs": count} if (count := run.config.propose.inputs) != 1 else {}
    return ([row | inputs for row in tables.rows("proposals", "proposal_id", "problem_type", "prompt")],)


OWN_SUITES: Mapping[str, OwnSuite] = {
    YARDSTICK: OwnSuite(
        SOLVERS,
        _as_attempted,
        _eras,
        needs="valid problems in its first and in its newest generations, two at least",
    ),
    VALIDITY: OwnSuite(TEACHERS, _as_proposed, _prompts, needs="a generation in which teachers wrote"),
}
