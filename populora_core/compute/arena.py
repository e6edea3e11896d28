"""Members at play outside a run: with a person, and where the base model's card is measured.

The same sampler, dialect and sandbox as the stages, without their files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from populora_core.compute.work import Prompt, Worker
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.problems.dialects import dialect
from populora_core.problems.grading import (
    AttemptJudgement,
    CutAnswers,
    ProposalCheck,
    Proposed,
    check_proposals,
    judge_attempts,
)
from populora_core.problems.model import Problem
from populora_core.sampler.spec import ModelSpec
from populora_core.sandbox.jobs import Sandbox
from populora_core.sandbox.verify import verify_or_raise
from populora_core.store.rows import SampledRow
from populora_core.support import ids

if TYPE_CHECKING:
    from populora_core.model.state import MemberState


@dataclass(frozen=True, slots=True)
class SamplingRules:
    """Rules by which completions are drawn."""

    temperature: float = 1.0
    top_p: float = 1.0
    proposal_tokens: int = 160
    answer_tokens: int = 96


class Arena:
    """One worker with some resident members, and a sandbox to judge what they write; None is the bare base."""

    def __init__(
        self,
        folder: Path,
        dialect_name: str,
        sandbox: Sandbox,
        *,
        rank: int = 8,
        alpha: float = 16.0,
        threads: int = 1,
        dtype: Literal["float32", "bfloat16"] = "float32",
        device: Literal["cpu", "cuda"] = "cpu",
        bits: Literal[16, 8, 4] = 16,
        inputs: int = 1,
    ) -> None:
        from populora_core.model.base import base_digest

        base = BaseSection(path=str(folder), dialect=dialect_name, dtype=dtype, device=device, bits=bits)
        spec = ModelSpec(base, AdapterSection(rank=rank, alpha=alpha), base_digest(folder))
        self.worker = Worker(spec, threads)
        self.sandbox, self.dialect = sandbox, dialect(dialect_name, inputs)

    def newborn(self, seed: int) -> MemberState:
        """A member that equals the base."""
        from populora_core.model.state import MemberState

        return MemberState.newborn(self.worker.layout.init_row(ids.generator(seed)))

    def load(self, states: Mapping[str, MemberState]) -> None:
        """Make these members resident."""
        self.worker.stacked.load({member: state.weights for member, state in states.items()})

    def propose(
        self,
        member: str | None,
        asked: Sequence[tuple[str, Sequence[Problem]]],
        seed: int,
        rules: SamplingRules = SamplingRules(),
    ) -> tuple[list[SampledRow], list[ProposalCheck]]:
        """One proposal for each (problem type, references), with what the verifier says of it."""
        texts = [self.dialect.propose_prompt(kind, references) for kind, references in asked]
        rows = self.complete(
            self._prompts(member, texts, ids.draw_seed(seed, "propose"), rules, rules.proposal_tokens)
        )
        proposed = [
            Proposed(problem_type=kind, completion=row["completion"], finish_reason=row["finish_reason"])
            for row, (kind, _) in zip(rows, asked, strict=True)
        ]
        checks = check_proposals(
            self.dialect, lambda jobs: verify_or_raise(self.sandbox, jobs, determinism=True), proposed
        )
        return rows, checks

    def solve(
        self,
        member: str | None,
        problems: Sequence[Problem],
        attempts: int,
        seed: int,
        rules: SamplingRules = SamplingRules(),
        cut_answers: CutAnswers = "refuse",
    ) -> tuple[list[SampledRow], list[AttemptJudgement]]:
        """`attempts` answers to each problem, problem by problem, with their judgements."""
        asked = [problem for problem in problems for _ in range(attempts)]
        texts = [self.dialect.solve_prompt(problem) for problem in asked]
        draw = ids.draw_seed(seed, "solve")
        rows = self.complete(self._prompts(member, texts, draw, rules, rules.answer_tokens))
        judged = judge_attempts(
            self.dialect,
            lambda jobs: verify_or_raise(self.sandbox, jobs, determinism=False),
            list(zip(asked, rows, strict=True)),
            cut_answers,
        )
        return rows, judged

    def complete(self, prompts: Sequence[Prompt]) -> list[SampledRow]:
        """One completion a prompt, in order, from resident members: the columns that stages keep of it."""
        requests = self.worker.requests(prompts)
        completions = self.worker.sampler.generate(requests)
        return [self.worker.row(*each) for each in zip(prompts, requests, completions, strict=True)]

    @staticmethod
    def _prompts(
        member: str | None, texts: Sequence[str], seed: int, rules: SamplingRules, max_tokens: int
    ) -> list[Prompt]:
        return [
            Prompt(member, text, ids.draw_seed(seed, index), rules.temperature, rules.top_p, max_tokens)
            for index, text in enumerate(texts)
        ]
