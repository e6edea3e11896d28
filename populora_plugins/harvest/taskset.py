"""The problems of a package as a taskset of `verifiers` 0.4 and later, and a harness that asks once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import verifiers.v1 as vf
from openai import AsyncOpenAI
from verifiers.v1.runtimes import ProgramResult
from verifiers.v1.utils.loaders import resolve_env_config

from populora_core.problems.model import Problem
from populora_core.problems.verdicts import AttemptVerdict
from populora_plugins.harvest.grader import Grader

grader_of = cache(Grader)
"""One sandbox for all tasks of a process."""


class ProblemData(vf.TaskData):
    """A problem as it travels with its rollout; a model sees the prompt alone."""

    folder: str
    dialect: str | None
    problem_type: str
    program: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    message: str


class ProblemTask(vf.Task[ProblemData]):
    """A problem, and what an answer is worth."""

    @property
    def key(self) -> str:
        return str(self.data.id)

    @vf.reward
    async def student_reward(self, trace: vf.Trace) -> float:
        """See `Grader.reward`."""
        return await asyncio.to_thread(self._grader.reward, *self._answered(trace))

    @vf.metric
    async def correct(self, trace: vf.Trace) -> float:
        """1 for a correct answer, else 0."""
        verdict = await asyncio.to_thread(self._grader.verdict, *self._answered(trace))
        return float(verdict is AttemptVerdict.CORRECT)

    @property
    def _grader(self) -> Grader:
        return grader_of(Path(self.data.folder), self.data.dialect)

    def _answered(self, trace: vf.Trace) -> tuple[Problem, str, bool]:
        data, said = self.data, trace.assistant_messages
        problem = Problem(
            str(data.id), data.problem_type, data.program, data.inputs, data.outputs, data.message
        )
        # Not `last_reply`, which strips: in some dialects a line break opens the answer.
        return problem, str(said[-1].content or "") if said else "", not trace.is_truncated


class ProblemsConfig(vf.TasksetConfig):
    """Settings under `--env.taskset.`."""

    dialect: str | None = None
    """The dialect of prompts and answers: `instruct` for chat models; None is the run's own."""
    split: str | None = None
    """The split whose problems are asked, `train` or `test`; None is both."""


class ProblemTaskset(vf.Taskset[ProblemTask, ProblemsConfig]):
    """The problems of one package.

    Attributes:
        FOLDER: of the package.
    """

    FOLDER: ClassVar[Path]

    def load(self) -> Iterator[ProblemTask]:
        grader = grader_of(self.FOLDER, self.config.dialect)
        for problem in grader.problems(self.config.split):
            yield ProblemTask(
                ProblemData(
                    id=problem.problem_id,
                    prompt=grader.prompt(problem),
                    folder=str(self.FOLDER),
                    dialect=self.config.dialect,
                    problem_type=problem.problem_type,
                    program=problem.program,
                    inputs=problem.inputs,
                    outputs=problem.outputs,
                    message=problem.message,
                ),
                self.config.task,
            )


class ProblemHarness(vf.Harness[vf.HarnessConfig]):
    """A harness that asks the model once and keeps what it says: no program is run for that."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> ProgramResult:
        _, prompt = self.resolve_text_prompt(data)
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, timeout=None, max_retries=0) as client:
            await client.chat.completions.create(
                model=ctx.model, messages=[{"role": "user", "content": prompt or ""}]
            )
        return ProgramResult(0, "", "")


def environment_of(package: str, **settings: Any) -> vf.Env:
    """The environment of an installed package, its harness in this process.

    Args:
        settings: of its taskset, see `ProblemsConfig`.
    """
    return vf.load_environment(
        resolve_env_config(
            {"taskset": {"id": package, **settings}, "agent": {"runtime": {"type": "subprocess"}}}
        )
    )
