"""Problems as prompts and verdicts on answers, for trainers that are not ours: their code knows no sandbox."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import count
from pathlib import Path
from threading import Lock

import pyarrow.parquet as pq

from populora_core.benchmarks.heldout import held_out, kept_out
from populora_core.config.sections import GradeSection
from populora_core.problems.dialects import dialect, stops_of
from populora_core.problems.grading import judge_attempts
from populora_core.problems.model import Problem
from populora_core.problems.rewards import student_reward
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.runs.run import Run, suites
from populora_core.sampler.stops import first_stop
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits, Sandbox
from populora_core.sandbox.verify import verify_or_raise
from populora_core.support.errors import ConfigError, RunDirectoryError, SandboxUnavailable
from populora_core.support.finish import FinishReason
from populora_core.support.trust import require_trusted
from populora_plugins.harvest.curriculum import SPLITS
from populora_plugins.harvest.environment import PROBLEMS, read_settings
from populora_plugins.harvest.play_table import TRIES, PlayTable

WORKERS = 2
KNOWN = 4096
"""Verdicts that are remembered: reward and metric ask for the same one."""
FRUITLESS = 20
"""Number of teachers that are asked in a row before a live environment ends where none writes a new problem."""


class Grader:
    """The problems of a package that `populora environment` wrote, and what their answers are worth.

    The sandbox, with the limits and the Python of the run, starts with the first program and ends with the process.
    Threads may share one grader.

    Args:
        folder: of the package.
        speech: a dialect's name, in place of the run's own.
    """

    def __init__(self, folder: Path, speech: str | None = None) -> None:
        self._folder, self._settings = folder, read_settings(folder)
        self._dialect = dialect(speech or self._settings["dialect"])
        self._lock = Lock()
        self.verdict = lru_cache(KNOWN)(self._verdict)

    @property
    def live(self) -> bool:
        """True if its problems have no end."""
        return self._settings["live"] is not None

    def problems(self, split: str | None = None) -> Iterator[Problem]:
        """Yield the package's problems; if live, without end, those that teachers write and the sandbox verified.

        Problems of the bundled suites, and of the run's own, are never among them.

        Args:
            split: `train` or `test`; None for both, and with a live package.

        Raises:
            ConfigError: there is no such split.
            RunDirectoryError: teachers write nothing that can be asked.
        """
        live = self._settings["live"]
        if split is not None and (live or split not in SPLITS):
            expected = "none with a live package" if live else f"one of {', '.join(SPLITS)}, or none"
            raise ConfigError("there is no such split", expected=expected, got=split)
        if live is None:
            rows = pq.read_table(self._folder / PROBLEMS).to_pylist()
            several = len({row["run"] for row in rows}) > 1  # whose problems have the same names
            for row in (row for row in rows if split in (None, row.get("split"))):
                name = f"{row['run']}/{row['problem_id']}" if several else row["problem_id"]
                yield replace(Problem.of(row), problem_id=name)
            return
        run = Run.open(live["run"])
        for own in suites(run.config):
            require_trusted(own)
        known = held_out(kept_out(run.config))
        table = PlayTable(run, self._sandbox, live["teacher"], None, live["seed"])
        last = 0
        for number in count():
            with self._lock:
                asked = table.ask()
            if asked is not None and not known.holds(asked.problem.program, asked.problem.inputs):
                name, last = f"{asked.teacher_id}-{live['seed']}-{number}", number
                yield replace(asked.problem, problem_id=name)
            elif number - last >= FRUITLESS:
                raise RunDirectoryError(
                    f"the teachers of {run.name} write no valid problem now",
                    got=f"{FRUITLESS * TRIES} proposals in a row of which none can be asked",
                    fix="choose another teacher or run: populora environment --live --teacher T",
                )

    def prompt(self, problem: Problem) -> str:
        """The prompt of a student: the text of one user's message."""
        return self._dialect.solve_prompt(problem)

    def reward(self, problem: Problem, answer: str, ended: bool) -> float:
        """Reward an answer as students are by default: 1 if correct, -0.5 if wrong, -1 where the grammar finds none.

        Args:
            ended: whether the model ended its answer itself.

        Raises:
            SandboxUnavailable: the sandbox failed; the answer is worth nothing, and is not wrong.
        """
        paid = student_reward(self.verdict(problem, answer, ended), GradeSection())
        assert paid is not None, "infrastructure raises"
        return paid

    def _verdict(self, problem: Problem, answer: str, ended: bool) -> AttemptVerdict:
        stop = first_stop(answer, stops_of(self._dialect, self.prompt(problem)))
        if stop is not None:  # a server that knows no stop text of the dialect's lets the model go on
            answer, ended = answer[: stop[1]], True
        reason = FinishReason.STOP if ended else FinishReason.LENGTH
        with self._lock:
            (judged,) = judge_attempts(
                self._dialect,
                lambda jobs: verify_or_raise(self._sandbox, jobs, determinism=False) if jobs else [],
                [(problem, {"completion": answer, "finish_reason": reason})],
            )
        if judged.verdict is AttemptVerdict.INFRASTRUCTURE:  # raised, so that it is not remembered
            raise SandboxUnavailable("the sandbox could not judge an answer", fix="try the rollout again")
        return judged.verdict

    @cached_property
    def _sandbox(self) -> Sandbox:
        limits = Limits(**self._settings["limits"])
        sandbox = open_sandbox("auto", limits, WORKERS, python=self._settings["python"])
        atexit.register(sandbox.close)
        return sandbox
