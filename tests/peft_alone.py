"""One member trained on its own by PEFT and torch.optim, with a loss written out: what ours must equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import PreTrainedModel

from populora_core.config.sections import UpdateSection
from populora_core.learner.rows import TrainingRow
from populora_core.learner.update import EPS
from populora_core.model.layout import AdapterLayout


@dataclass(frozen=True)
class Step:
    """After one optimiser step: the clipped gradient [D] that it took, and the weights [D]."""

    gradient: Tensor
    weights: Tensor


def train_alone(
    model: PreTrainedModel,
    layout: AdapterLayout,
    weights: Tensor,
    rows: Sequence[TrainingRow],
    rules: UpdateSection,
    steps: int,
    batch_size: int = 1,
) -> Iterator[Step]:
    """Train PEFT's all-linear adapter over `model`, every step on all rows, `batch_size` rows at a time.

    Args:
        model: a fresh one: PEFT changes it.
        weights: [D], where training begins; the adapter has their dtype.
        rules: of this member.
    """
    config = LoraConfig(r=layout.rank, lora_alpha=int(layout.alpha), target_modules="all-linear")
    peft_model = get_peft_model(model, config, autocast_adapter_dtype=False).eval()
    parameters = {}
    for name, parameter in peft_model.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.to(weights.dtype)
            parameters[name.replace(".default", "")] = parameter.requires_grad_()
    with torch.no_grad():
        for name, values in layout.to_peft(weights).items():
            parameters[name].copy_(values)
    optimiser = torch.optim.AdamW(
        parameters.values(),
        lr=rules.learning_rate,
        betas=rules.betas,
        eps=EPS,
        weight_decay=rules.weight_decay,
    )
    rows = [row for row in rows if row.advantage is not None]
    sampled, texts = (
        sum(len(row.completion_ids) for row in rows if row.supervised is kind) for kind in (False, True)
    )
    share = rules.corpus_share if texts else 0.0

    def vector(of: dict[str, Tensor]) -> Tensor:
        result = torch.zeros_like(weights)
        for name, target in layout.to_peft(result).items():
            target.copy_(of[name].detach())
        return result

    for _ in range(steps):
        optimiser.zero_grad()
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            of_batch = _losses(peft_model, batch, rules.clip, rules.kl)
            weights_of = [share / texts if row.supervised else (1.0 - share) / sampled for row in batch]
            sum(loss * weight for loss, weight in zip(of_batch, weights_of, strict=True)).backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), rules.grad_clip)
        gradient = vector({name: parameter.grad for name, parameter in parameters.items()})
        optimiser.step()
        yield Step(gradient, vector(parameters))


def _losses(model: PeftModel, rows: Sequence[TrainingRow], clip: float, kl: float) -> list[Tensor]:
    """Each row's sum over its completion tokens; rows are padded on the right, where causal attention never looks."""
    ids = torch.zeros(
        len(rows), max(len(row.prompt_ids + row.completion_ids) for row in rows), dtype=torch.long
    )
    for index, row in enumerate(rows):
        ids[index, : len(row.prompt_ids + row.completion_ids)] = torch.tensor(
            row.prompt_ids + row.completion_ids
        )
    logits = model(input_ids=ids, use_cache=False).logits
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    with torch.no_grad(), model.disable_adapter():
        bare = model(input_ids=ids, use_cache=False).logits.to(logits.dtype)
    losses = []
    for index, row in enumerate(rows):
        start, count = len(row.prompt_ids) - 1, len(row.completion_ids)
        logprobs = torch.log_softmax(logits[index, start : start + count] / row.temperature, -1)
        taken = logprobs[range(count), row.completion_ids]
        if row.supervised:
            losses.append(-taken.sum())
            continue
        ratio = torch.exp(taken - torch.tensor(row.old_logprobs, dtype=logits.dtype))
        clipped = ratio.clamp(1 - clip, 1 + clip)
        losses.append(-torch.minimum(ratio * row.advantage, clipped * row.advantage).sum())
        if kl:
            base = torch.log_softmax(bare[index, start : start + count] / row.temperature, -1)
            losses[-1] = losses[-1] + kl * F.kl_div(base, logprobs, reduction="sum", log_target=True)
    return losses
