"""Estimate of a run's time on this machine, by some seconds of its own work on its own base."""

from __future__ import annotations

import math
import os
import time
from bisect import bisect
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from populora_core.benchmarks.items import suite_items
from populora_core.benchmarks.suite import Part, Suite, load_suite
from populora_core.compute.work import Worker
from populora_core.config.load import Config
from populora_core.learner.rows import TrainingRow, UpdateRules
from populora_core.learner.update import update_members
from populora_core.lifecycle.own_suites import ATTEMPTS
from populora_core.model.base import base_digest
from populora_core.model.state import MemberState
from populora_core.problems.dialects import Dialect, dialect, seeds_of
from populora_core.report.text import seconds
from populora_core.runs.precision import choose_dtype
from populora_core.sampler.requests import Request
from populora_core.sampler.spec import ModelSpec
from populora_core.support import ids
from populora_core.support.errors import ConfigError

SECONDS = 10.0
"""Seconds that measuring takes, about; loading the base comes on top."""
ROWS, PROMPTS = 16, 4
"""Completions under way at once, and how many different prompts they have."""
LEAST_STEPS = 3
LEARNED = 64
"""Tokens of the prompt, and as many of the completion, of the update that is timed."""
WRITTEN = 0.5
"""Share of max_tokens that a completion has on average."""
MEMBER = "measured"


class _Enough(Exception):
    """The exception that ends sampling that is timed."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Measured speed of this machine.

    Attributes:
        reading: seconds of a prompt's token.
        step: seconds of a step that draws a token for each of `ROWS` completions.
        learning: seconds of a token of an update.
        proposing, solving: tokens of a prompt.
    """

    reading: float
    step: float
    learning: float
    proposing: int
    solving: int

    def seconds(self, config: Config, generations: int | None = None) -> float:
        """A run's sampling, learning and scores; matching, the sandbox and starting are seconds beside them."""
        count = config.run.generations if generations is None else generations
        asked, needed = config.evaluate, count * self._generation(config)
        if asked.every:
            needed += count // asked.every * self._evaluation(config)
        if asked.report_every:
            needed += (count // asked.report_every + 1) * self._report(config)
        return needed / _side_by_side(config)

    def generations(self, config: Config, limit: float) -> int:
        """Number of the run's generations that fit into so many seconds; at most all of them."""
        return bisect(range(1, config.run.generations + 1), limit, key=partial(self.seconds, config))

    def _generation(self, config: Config) -> float:
        proposals, attempts = config.most_proposals, config.attempts
        problems = attempts / config.solve.most_attempts
        proposed = WRITTEN * config.propose.max_tokens * proposals
        answered = WRITTEN * config.solve.max_tokens * attempts
        prompts = proposals * self.proposing + problems * self.solving
        sampling = self.reading * prompts + self.step * (proposed + answered) / ROWS
        return sampling + self.learning * (prompts + proposed + answered)

    def _evaluation(self, config: Config) -> float:
        guarded = config.evaluate.guard != "off"
        suite = load_suite(config.evaluate.file())
        return self._exam(suite, Part.VALIDATION, _solvers(config) + guarded)

    def _report(self, config: Config) -> float:
        asked, players = config.evaluate, _solvers(config) + 1
        eras = 2 * ATTEMPTS * asked.yardstick * players
        written = asked.validity * (config.population.proposers + 1)
        return (
            self._exam(load_suite(asked.file()).sampled(asked.report_problems), Part.TEST, players)
            + self._completions(eras, self.solving, config.solve.max_tokens)
            + self._completions(written, self.proposing, config.propose.max_tokens)
        )

    def _exam(self, suite: Suite, part: Part, players: int) -> float:
        return sum(
            self._completions(len(items) * entry.attempts * players, self.solving, entry.max_tokens)
            for entry, items in suite_items(suite, part)
        )

    def _completions(self, count: int, prompt: int, most: int) -> float:
        return count * (self.reading * prompt + self.step * WRITTEN * most / ROWS)


def _solvers(config: Config) -> int:
    return config.population.students + config.population.solo


def _side_by_side(config: Config) -> int:
    """Number of shards that compute at a time: one after another inline, and no more than the cores carry."""
    if config.compute.backend == "inline":
        return 1
    if not config.compute.here:
        return config.compute.shards
    return min(config.compute.shards, max(1, (os.cpu_count() or 1) // config.compute.threads))


def measured(config: Config) -> Pace:
    """The pace of this machine's CPUs with as many threads as a shard of the run has."""
    base = config.base.model_copy(
        update={"dtype": choose_dtype(config.base.dtype, config.base.path, config.base.device)}
    )
    spec = ModelSpec(base, config.adapters, base_digest(base.folder()), members=config.members)
    worker = Worker(spec, config.compute.threads)
    worker.stacked.load({})
    proposing, solving = _prompts(config, worker)
    requests = [
        Request(None, _turned(proposing, place % PROMPTS), seed=place, max_tokens=config.propose.max_tokens)
        for place in range(ROWS)
    ]
    began, steps = time.perf_counter(), list[float]()

    def drawn(places: Sequence[int], tokens: Sequence[int], logprobs: Sequence[float]) -> None:
        steps.append(time.perf_counter())
        if len(steps) > LEAST_STEPS and steps[-1] - began > SECONDS / 2:
            raise _Enough

    with suppress(_Enough):
        worker.sampler.generate(requests, drawn=drawn)
    read = sum(len(requests[place].prompt_ids) for place in range(PROMPTS))
    step = (steps[-1] - steps[0]) / max(1, len(steps) - 1)
    return Pace(
        reading=max(0.0, steps[0] - began - step) / read,
        step=step,
        learning=_learning(worker, config, proposing),
        proposing=len(proposing),
        solving=len(solving),
    )


def _turned(prompt: tuple[int, ...], by: int) -> tuple[int, ...]:
    """Another prompt of as many tokens: equal ones are read once."""
    return prompt[by:] + prompt[:by]


def _prompts(config: Config, worker: Worker) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A prompt of each kind, in tokens."""
    spoken: Dialect = dialect(config.base.dialect)
    tokenizer, kind = worker.vocabulary.tokenizer, config.propose.types[0]
    shown = seeds_of(spoken, kind)[: config.propose.references[1]]
    proposing = tuple(spoken.encode(tokenizer, spoken.propose_prompt(kind, shown)))
    if not shown:
        return proposing, proposing
    return proposing, tuple(spoken.encode(tokenizer, spoken.solve_prompt(shown[0])))


def _learning(worker: Worker, config: Config, prompt: tuple[int, ...]) -> float:
    tokens = (prompt * 2 * LEARNED)[: 2 * LEARNED]
    row = TrainingRow(MEMBER, tokens[:LEARNED], tokens[LEARNED:], (-1.0,) * LEARNED, 1.0)
    newborn = MemberState.newborn(worker.layout.init_row(ids.generator(0)))
    began = time.perf_counter()
    update_members(worker.learn(), {MEMBER: newborn}, [row], UpdateRules(config.update))
    return (time.perf_counter() - began) / len(tokens)


def require_time(config: Config, pace: Pace, hours: float) -> float:
    """The seconds that the run will take.

    Raises:
        ConfigError: they are more than these hours.
    """
    needed = pace.seconds(config)
    if needed <= 3600 * hours:
        return needed
    enough = math.ceil(needed / 3600)
    fitting = " ".join(f"--set {key}={value}" for key, value in _fitting(config, pace, 3600 * hours).items())
    raise ConfigError(
        "this machine cannot hold the run in the time that --hours gives it; nothing was started",
        expected=f"at most {seconds(3600 * hours)}",
        got=f"about {seconds(needed)} for {config.run.generations} generations, as measured here just now",
        fix=(f"populora run ... {fitting}" if fitting else "a smaller base")
        + f"; or more time, --hours {enough} (make real HOURS={enough})",
    )


def _fitting(config: Config, pace: Pace, limit: float) -> dict[str, int]:
    """Settings with which the run fits: fewer generations, then also smaller ones and fewer problems scored."""
    changed: dict[str, int] = {}
    while not (count := pace.generations(config, limit)):
        # a lone proposal of a type teaches its teacher nothing
        if config.propose.per_type < (2 if config.update.roles == "students" else 4):
            return {}
        changed = {
            "propose.per_type": config.propose.per_type // 2,
            "evaluate.report_problems": max(1, config.evaluate.report_problems // 2),
        }
        config = config.model_copy(
            update={
                "propose": config.propose.model_copy(update={"per_type": changed["propose.per_type"]}),
                "evaluate": config.evaluate.model_copy(
                    update={"report_problems": changed["evaluate.report_problems"]}
                ),
            }
        )
    return {"run.generations": count} | changed
