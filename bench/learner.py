"""Cost of an update of many adapters against one, and against PEFT.

    populora bench learner --json

The tiny base, rank 8 on all linear layers, one thread, process CPU seconds. Every variant trains on the same
tokens: problems of eight attempts each, cut into equal shares for P members. The single adapter of PEFT runs
the same rows in padded batches of the same budget of tokens, its loss on the same positions, with torch's
`foreach` AdamW; switching gives each of eight adapters its share in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bench.adapters import by_peft, ours, trained, training_rows
from bench.harness import CLOSE, BenchRow, interleaved, ratio
from populora_core.config.sections import UpdateSection
from populora_core.learner.rows import TrainingRow, UpdateRules
from populora_core.learner.update import update_members
from populora_core.model.state import MemberState
from populora_core.support.aliases import Say

PROBLEMS, ATTEMPTS = 64, 8
PROMPT_TOKENS, COMPLETION_TOKENS = (20, 60), (4, 24)
SETTINGS = UpdateSection(token_budget=1024)
RULES = UpdateRules(SETTINGS)


def run(samples: int, say: Say) -> list[BenchRow]:
    """The ratios that have goals."""
    torch.set_num_threads(1)
    base, stacked = ours()

    def drawn(members: int) -> list[TrainingRow]:
        vocabulary = len(base.tokenizer)
        return training_rows(members, vocabulary, PROBLEMS, ATTEMPTS, PROMPT_TOKENS, COMPLETION_TOKENS)

    def update(members: int) -> Callable[[], object]:
        rows = drawn(members)
        states = {
            str(member): MemberState.newborn(trained(stacked.layout, member)) for member in range(members)
        }
        return lambda: update_members(stacked, states, rows, RULES)

    ours_alone = {"p1": update(1), "p8": update(8), "p32": update(32)}
    peft = {
        "peft": peft_update(by_peft(1), drawn(1)),
        "switching": peft_update(by_peft(8), drawn(8)),
    }
    close = interleaved(ours_alone, CLOSE * samples, say)
    taken = interleaved(ours_alone | peft, samples, say)
    return [
        ratio("update_p8_over_p1", close["p8"], close["p1"], "<= 1.05"),
        ratio("update_p32_over_p1", close["p32"], close["p1"], "<= 1.15"),
        ratio("update_p1_over_peft_single", taken["p1"], taken["peft"], "<= 1"),
        ratio("update_p8_over_peft_single", taken["p8"], taken["peft"]),
        ratio("update_p8_over_peft_switching", taken["p8"], taken["switching"], "<= 0.8"),
    ]


def peft_update(model: Any, rows: Sequence[TrainingRow]) -> Callable[[], object]:
    """One step of every adapter, in turn, as one would write it with PEFT and torch."""
    shares: dict[str, list[TrainingRow]] = {}
    for row in rows:
        shares.setdefault(row.member_id, []).append(row)
    optimisers = {}
    for member in shares:
        model.set_adapter(member)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimisers[member] = torch.optim.AdamW(
            parameters, lr=SETTINGS.learning_rate, betas=SETTINGS.betas, foreach=True
        )

    def step() -> None:
        for member, share in shares.items():
            model.set_adapter(member)
            optimiser = optimisers[member]
            optimiser.zero_grad(set_to_none=False)
            tokens = sum(len(row.completion_ids) for row in share)
            for batch in _batches(share):
                _peft_loss(model, batch, tokens).backward()
            torch.nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], SETTINGS.grad_clip)
            optimiser.step()

    return step


def _batches(rows: Sequence[TrainingRow]) -> list[list[TrainingRow]]:
    """Rows of like length together, as many as the budget of tokens holds with padding."""
    batches: list[list[TrainingRow]] = [[]]
    for row in sorted(rows, key=_length):
        if batches[-1] and (len(batches[-1]) + 1) * _length(row) > SETTINGS.token_budget:
            batches.append([])
        batches[-1].append(row)
    return batches


def _length(row: TrainingRow) -> int:
    return len(row.prompt_ids) + len(row.completion_ids)


def _peft_loss(model: Any, rows: Sequence[TrainingRow], tokens: int) -> Tensor:
    """The learner's loss, with logits at the completions' positions only."""
    longest = max(map(_length, rows))
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    where: list[int] = []
    targets: list[int] = []
    old: list[float] = []
    advantages: list[float | None] = []
    for index, row in enumerate(rows):
        ids[index, : _length(row)] = torch.tensor(row.prompt_ids + row.completion_ids)
        start = index * longest + len(row.prompt_ids) - 1
        where += range(start, start + len(row.completion_ids))
        targets += row.completion_ids
        old += row.old_logprobs
        advantages += [row.advantage] * len(row.completion_ids)
    body = model.get_base_model()
    hidden = body.model(input_ids=ids, use_cache=False).last_hidden_state.flatten(0, 1)
    logits = body.lm_head(hidden[torch.tensor(where)])
    logprobs = torch.log_softmax(logits, -1).gather(1, torch.tensor(targets)[:, None])[:, 0]
    ratios = torch.exp(logprobs - torch.tensor(old))
    gain = torch.tensor(advantages)
    clipped = ratios.clamp(1 - SETTINGS.clip, 1 + SETTINGS.clip)
    return -torch.minimum(ratios * gain, clipped * gain).sum() / tokens
