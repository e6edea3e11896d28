"""Trains the frontier base from nothing, in one process: one pass over a corpus that is generated first.

Positions jump at random in training (`jumping_positions`), so that a length that was never trained is nothing
new to the rotary embedding; at inference they are plain.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import Qwen2ForCausalLM

from base_model.corpus import generate_shard, padded_batch, plan_batches
from base_model.optimizer import MuonAdamW
from base_model.steps.documents import Corpus
from base_model.steps.words import tokenizer
from base_model.tokenizer import EOS, PAD
from base_model.train import initialise, model_config, rate_scale, weighted_loss

JUMPING_DOCUMENTS = 0.7
JUMP_PROBABILITY = 0.06
LONGEST_JUMP = 16


@dataclass(frozen=True, slots=True)
class StepsTraining:
    """Settings of a training run.

    Attributes:
        tokens: training tokens, padding not counted.
        seed: of the corpus, the initial weights, the jumps and the order of batches.
        batch_tokens: tokens of a step, padding counted.
        constant_share: share of the tokens after which the learning rate falls, linearly to `last_rate`.
    """

    tokens: int
    seed: int = 0
    layers: int = 4
    width: int = 128
    heads: int = 4
    feed_forward: int = 344
    batch_tokens: int = 2048
    matrix_rate: float = 0.02
    other_rate: float = 4e-3
    clip_norm: float = 1.0
    warmup_steps: int = 20
    constant_share: float = 0.6
    last_rate: float = 0.02
    corpus: Corpus = field(default_factory=Corpus)


def jumping_positions(generator: torch.Generator, rows: int, columns: int) -> Tensor:
    """Rising positions (rows, columns), in most rows with rare jumps of 1 to `LONGEST_JUMP`."""
    jumps = torch.randint(1, LONGEST_JUMP + 1, (rows, columns), generator=generator)
    jumps *= torch.rand(rows, columns, generator=generator) < JUMP_PROBABILITY
    jumps *= torch.rand(rows, 1, generator=generator) < JUMPING_DOCUMENTS
    return torch.arange(columns) + jumps.cumsum(1)


def train(
    training: StepsTraining,
    folder: Path,
    start: Path | None = None,
    report: Callable[[str], None] = print,
) -> None:
    """Train, and save the checkpoint, in bf16, with its record in the folder.

    Args:
        start: the checkpoint to go on from, with fresh optimizer states; None: from nothing.
    """
    torch.set_num_threads(1)
    started = time.monotonic()
    generator = torch.Generator().manual_seed(training.seed)
    model = newborn(training, generator) if start is None else loaded(start)
    curve = fit(
        model, training, generator, lambda text: report(f"[{time.monotonic() - started:6.0f} s] {text}")
    )
    save(model, folder)
    record = {"training": asdict(training), "seconds": round(time.monotonic() - started), "curve": curve}
    (folder / "training.json").write_text(json.dumps(record, indent=1) + "\n")


def newborn(training: StepsTraining, generator: torch.Generator) -> Qwen2ForCausalLM:
    """A model with random weights."""
    shape = (training.layers, training.width, training.heads, training.feed_forward)
    model = Qwen2ForCausalLM(model_config(len(tokenizer()), *shape))
    initialise(model, generator)
    return model


def loaded(folder: Path) -> Qwen2ForCausalLM:
    """The model of a checkpoint, in fp32."""
    return Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)


def fit(
    model: Qwen2ForCausalLM,
    training: StepsTraining,
    generator: torch.Generator,
    report: Callable[[str], None],
) -> list[dict[str, float]]:
    """One pass over the corpus; the loss, weighted and smoothed, every 50 steps."""
    model.set_attn_implementation("eager")
    rng = np.random.default_rng(training.seed)
    shard = generate_shard(rng, tokenizer(), training.tokens, write=training.corpus.write)
    batches = plan_batches(rng, shard, training.batch_tokens)
    report(f"{len(shard.lengths)} documents, {len(batches)} steps")
    parameters = list(model.parameters())
    schedule = training.warmup_steps, training.constant_share, training.last_rate
    optimizer = MuonAdamW(model.named_parameters(), training.matrix_rate, training.other_rate)
    seen, smooth = 0, 0.0
    curve: list[dict[str, float]] = []
    for step, documents in enumerate(batches):
        ids, weights = map(torch.from_numpy, padded_batch(shard, documents))
        positions = jumping_positions(generator, ids.shape[0], ids.shape[1] - 1)
        loss = weighted_loss(model, ids, weights, positions)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, training.clip_norm)
        optimizer.step(rate_scale(step, seen / training.tokens, *schedule))
        model.zero_grad()
        seen += int(shard.lengths[documents].sum())
        smooth = loss.item() if step == 0 else 0.95 * smooth + 0.05 * loss.item()
        if step % 50 == 49 or step == len(batches) - 1:
            curve.append({"tokens": seen, "loss": round(smooth, 4)})
            report(f"{seen / 1e6:.2f} M tokens  loss {smooth:.4f}")
    return curve


def save(model: Qwen2ForCausalLM, folder: Path) -> None:
    """An ordinary transformers checkpoint."""
    model.generation_config.pad_token_id, model.generation_config.eos_token_id = PAD, EOS
    model.bfloat16().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
