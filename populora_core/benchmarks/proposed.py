"""Prompts that a run's teachers were given: an answer is right if the verifier takes it for a valid proposal.

It may repeat an earlier problem, which would cost a teacher its pay: that depends on who was asked before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from populora_core.benchmarks.benchmark import Item, ItemScore, Response, Schema, check_rows
from populora_core.problems.dialects import dialect
from populora_core.problems.grading import ProposalCheck, Proposed, check_proposals
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.sandbox.jobs import Sandbox
from populora_core.sandbox.verify import verify_or_raise

SCHEMA: Schema = {"proposal_id": (str,), "problem_type": (str,), "prompt": (str,)}


class NewestPrompts:
    """Prompts of one generation, as rows of the table `proposals`."""

    name = "newest_prompts"
    version = 1
    schema = SCHEMA
    votes = False
    limits = None
    by_dialect = True

    def load(self, rows: Iterable[Mapping[str, Any]]) -> list[Item]:
        checked = check_rows(rows, SCHEMA, self.name)
        return [Item(row["proposal_id"], self.name, row, row["problem_type"]) for row in checked]

    def prompt(self, item: Item, family: str) -> str:
        prompt: str = item.fields["prompt"]
        return prompt

    def template(self, family: str) -> str:
        return f"{family}/propose {dialect(family).digest[:12]}"

    def grade(
        self, items: Sequence[Item], responses: Sequence[Response], family: str, sandbox: Sandbox
    ) -> list[ItemScore]:
        proposed = [
            Proposed(
                problem_type=item.fields["problem_type"],
                completion=response.text,
                finish_reason=response.finish_reason,
            )
            for item, response in zip(items, responses, strict=True)
        ]
        spoken = dialect(family, items[0].fields.get("inputs", 1) if items else 1)
        checks = check_proposals(
            spoken, lambda jobs: verify_or_raise(sandbox, jobs, determinism=True), proposed
        )
        return [_score(check) for check in checks]


def _score(check: ProposalCheck) -> ItemScore:
    program = check.draft.program if check.draft else None
    if check.verdict is ProposalVerdict.VALID:
        return ItemScore(AttemptVerdict.CORRECT, program)
    verdict = AttemptVerdict(check.verdict) if check.verdict in set(AttemptVerdict) else AttemptVerdict.WRONG
    return ItemScore(verdict, program, ": ".join(filter(None, (check.verdict, check.detail))))
