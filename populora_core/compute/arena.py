"""Members at play outside a run: what benchmarks and the base model's card measure with.

The same sampler, dialect, sandbox and learner as the stages, without their files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from populora_core.compute.work import Prompt, Worker
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.learner.rows import TrainingRow
from populora_core.problems.dialects import dialect
from populora_core.problems.grading import (
    AttemptJudgement,
    ProposalCheck,
    check_proposals,
    judge_attempts,
)
from populora_core.problems.model import Problem
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sampler.spec import ModelSpec
from populora_core.sandbox.jobs import Sandbox
from populora_core.sandbox.verify import verify_or_raise
from populora_core.support import ids
from populora_core.support.aliases import Row

if TYPE_CHECKING:
    from populora_core.model.state import MemberState


@dataclass(frozen=True, slots=True)
class SamplingRules:
    """How completions are drawn."""

    temperature: float = 1.0
    top_p: float = 1.0
    proposal_tokens: int = 160
    answer_tokens: int = 96


class Arena:
    """One worker with some resident members, and a sandbox to judge what they write."""

    def __init__(
        self,
        folder: Path,
        dialect_name: str,
        sandbox: Sandbox,
        *,
        rank: int = 8,
        alpha: float = 16.0,
        threads: int = 1,
    ) -> None:
        from populora_core.model.base import base_digest

        base = BaseSection(path=str(folder), dialect=dialect_name)
        spec = ModelSpec(base, AdapterSection(rank=rank, alpha=alpha), base_digest(folder))
        self.worker = Worker(spec, threads)
        self.sandbox, self.dialect = sandbox, dialect(dialect_name)

    def newborn(self, seed: int) -> MemberState:
        """A member that equals the base."""
        from populora_core.model.state import MemberState

        return MemberState.newborn(self.worker.layout.init_row(ids.generator(seed)))

    def load(self, states: Mapping[str, MemberState]) -> None:
        """Make these members resident."""
        self.worker.stacked.load({member: state.weights for member, state in states.items()})

    def propose(
        self,
        member: str,
        asked: Sequence[tuple[str, Sequence[Problem]]],
        seed: int,
        rules: SamplingRules = SamplingRules(),
    ) -> tuple[list[Row], list[ProposalCheck]]:
        """One proposal for each (problem type, references), with what the verifier says of it."""
        texts = [self.dialect.propose_prompt(kind, references) for kind, references in asked]
        rows = self.complete(
            self._prompts(member, texts, ids.draw_seed(seed, "propose"), rules, rules.proposal_tokens)
        )
        rows = [row | {"problem_type": kind} for row, (kind, _) in zip(rows, asked, strict=True)]
        checks = check_proposals(
            self.dialect, lambda jobs: verify_or_raise(self.sandbox, jobs, determinism=True), rows
        )
        return rows, checks

    def solve(
        self,
        member: str,
        problems: Sequence[Problem],
        attempts: int,
        seed: int,
        rules: SamplingRules = SamplingRules(),
    ) -> tuple[list[Row], list[AttemptJudgement]]:
        """`attempts` answers to each problem, problem by problem, with their judgements."""
        return self.solve_each([member], problems, attempts, seed, rules)[member]

    def solve_each(
        self,
        members: Sequence[str],
        problems: Sequence[Problem],
        attempts: int,
        seed: int,
        rules: SamplingRules = SamplingRules(),
    ) -> dict[str, tuple[list[Row], list[AttemptJudgement]]]:
        """Several members on the same problems with the same random numbers: equal members answer alike."""
        asked = [problem for problem in problems for _ in range(attempts)]
        texts = [self.dialect.solve_prompt(problem) for problem in asked]
        draw = ids.draw_seed(seed, "solve")
        prompts = [
            prompt
            for member in members
            for prompt in self._prompts(member, texts, draw, rules, rules.answer_tokens)
        ]
        rows = self.complete(prompts)
        judged = judge_attempts(
            self.dialect,
            lambda jobs: verify_or_raise(self.sandbox, jobs, determinism=False),
            list(zip(asked * len(members), rows, strict=True)),
        )
        share = len(asked)
        return {
            member: (rows[start : start + share], judged[start : start + share])
            for member, start in zip(members, range(0, len(rows), share), strict=True)
        }

    def complete(self, prompts: Sequence[Prompt]) -> list[Row]:
        """One completion a prompt, in order, from resident members: the columns that stages keep of it."""
        requests = self.worker.requests(prompts)
        completions = self.worker.sampler.generate(requests)
        return [self.worker.row(*each) for each in zip(prompts, requests, completions, strict=True)]

    @staticmethod
    def _prompts(
        member: str, texts: Sequence[str], seed: int, rules: SamplingRules, max_tokens: int
    ) -> list[Prompt]:
        return [
            Prompt(member, text, ids.draw_seed(seed, index), rules.temperature, rules.top_p, max_tokens)
            for index, text in enumerate(texts)
        ]


def solve_rates(judged: Sequence[AttemptJudgement], attempts: int) -> list[float | None]:
    """The share of correct attempts at each problem; None where infrastructure failed them all."""
    rates: list[float | None] = []
    for start in range(0, len(judged), attempts):
        verdicts = [j.verdict for j in judged[start : start + attempts]]
        counted = [v for v in verdicts if v is not AttemptVerdict.INFRASTRUCTURE]
        rates.append(sum(v is AttemptVerdict.CORRECT for v in counted) / len(counted) if counted else None)
    return rates


def training_rows(member: str, rows: Sequence[Row], advantages: Sequence[float | None]) -> list[TrainingRow]:
    """What a member learns from its completions, one advantage each."""
    return [
        TrainingRow(
            member, tuple(row["prompt_ids"]), tuple(row["completion_ids"]), tuple(row["logprobs"]), advantage
        )
        for row, advantage in zip(rows, advantages, strict=True)
    ]
