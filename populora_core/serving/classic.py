"""The problems of a package as an environment of `verifiers` 0.1 to 0.3: a data set and a rubric."""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path
from typing import Any

import verifiers as vf
from datasets import Dataset

from populora_core.problems.model import Problem
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.serving.grader import Grader
from populora_core.support.aliases import Row

FIELDS = ("problem_id", "problem_type", "program", "message")
LISTS = ("inputs", "outputs")
LIVE = 256


def environment_of(folder: Path, *, problems: int | None = None, dialect: str | None = None) -> Any:
    """A `SingleTurnEnv` whose rubric is our grader.

    Args:
        problems: so many at most; of a live package 256 where nothing is said, since a data set has an end.
        dialect: of the prompts and the reading of answers: `instruct` for chat models; None is the run's own dialect.
    """
    grader = Grader(folder, dialect)
    most = LIVE if problems is None and grader.live else problems

    async def student_reward(completion: Any, info: Row, state: Any) -> float:
        return await asyncio.to_thread(grader.reward, *_answered(completion, info, state))

    async def correct(completion: Any, info: Row, state: Any) -> float:
        verdict = await asyncio.to_thread(grader.verdict, *_answered(completion, info, state))
        return float(verdict is AttemptVerdict.CORRECT)

    rows = [_row(grader, problem) for problem in islice(grader.problems(), most)]
    rubric = vf.Rubric(funcs=[student_reward, correct], weights=[1.0, 0.0])
    return vf.SingleTurnEnv(dataset=Dataset.from_list(rows), rubric=rubric)


def _row(grader: Grader, problem: Problem) -> Row:
    info = {name: getattr(problem, name) for name in FIELDS}
    info |= {name: list(getattr(problem, name)) for name in LISTS}
    return {
        "prompt": [{"role": "user", "content": grader.prompt(problem)}],
        "answer": problem.outputs[0],
        "info": info,
    }


def _answered(completion: Any, info: Row, state: Any) -> tuple[Problem, str, bool]:
    fields: Row = {name: info[name] for name in FIELDS} | {name: tuple(info[name]) for name in LISTS}
    problem = Problem(**fields)
    said = completion if isinstance(completion, str) else _field(completion[-1], "content")
    return problem, str(said or ""), not state.get("is_truncated", False)


def _field(message: Any, name: str) -> Any:
    return message[name] if isinstance(message, dict) else getattr(message, name)
