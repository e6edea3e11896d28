"""Trains the tiny base from nothing: one pass over a corpus that each process generates for itself.

The processes are data-parallel, one thread each. The schedule counts tokens, so a loaded machine trains the
same model, only later. All arithmetic is fp32: without hardware support bf16 is tens of times slower on a
CPU.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen2Config, Qwen2ForCausalLM

from base_model.corpus import generate_shard, padded_batch, plan_batches
from base_model.optimizer import MuonAdamW
from base_model.tokenizer import EOS, MAX_LENGTH, PAD, build_tokenizer
from populora_core.support.children import end_with_parent


@dataclass(frozen=True, slots=True)
class Training:
    """Settings of a training run.

    Attributes:
        tokens: training tokens over all processes, padding not counted.
        seed: of the corpus, the initial weights and the order of batches.
        processes: data-parallel processes of one thread each.
        layers: of the model, which has 2.3 M parameters with five.
        batch_tokens: tokens of a step in each process, padding counted.
        constant_share: share of the tokens after which the learning rate falls, linearly to 1 %.
    """

    tokens: int
    seed: int = 0
    processes: int = 2
    layers: int = 5
    batch_tokens: int = 1536
    matrix_rate: float = 0.012
    other_rate: float = 3e-3
    clip_norm: float = 1.0
    warmup_steps: int = 40
    constant_share: float = 0.35


def model_config(
    vocabulary: int, layers: int, width: int = 192, heads: int = 6, feed_forward: int = 512
) -> Qwen2Config:
    """The architecture: Qwen2, embeddings tied."""
    return Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        intermediate_size=feed_forward,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=None,
    )


def initialise(model: Qwen2ForCausalLM, generator: torch.Generator) -> None:
    """Draw the weights: small embeddings, matrices of unit gain, half where a layer adds to the residual."""
    for name, parameter in model.named_parameters():
        if "embed" in name:
            nn.init.normal_(parameter, std=0.02, generator=generator)
        elif parameter.ndim == 2:
            gain = 0.5 if "o_proj" in name or "down_proj" in name else 1.0
            nn.init.normal_(parameter, std=gain * parameter.shape[1] ** -0.5, generator=generator)


def weighted_loss(
    model: Qwen2ForCausalLM, ids: Tensor, weights: Tensor, positions: Tensor | None = None
) -> Tensor:
    """Mean next-token loss, weighted by target token; logits are made only where the weight is not zero.

    Args:
        ids: (documents, length), padded on the right, where the causal mask makes padding harmless.
        weights: (documents, length), zero on padding.
        positions: of all but the last token of each document; None: plain ones.
    """
    # Without a mask, transformers would take a jump for the start of another document.
    seen = None if positions is None else torch.ones_like(ids[:, :-1])
    hidden = model.model(
        input_ids=ids[:, :-1], attention_mask=seen, position_ids=positions, use_cache=False
    ).last_hidden_state
    counted = weights[:, 1:] > 0
    logits = model.lm_head(hidden[counted])
    losses = functional.cross_entropy(logits, ids[:, 1:][counted], reduction="none")
    share = weights[:, 1:][counted]
    return (losses * share).sum() / share.sum()


def rate_scale(
    step: int, done: float, warmup_steps: int, constant_share: float, last_rate: float = 0.01
) -> float:
    """Factor on the learning rates at a step, when a share ``done`` of the tokens has been seen."""
    warm = min(1.0, (step + 1) / warmup_steps)
    return warm * min(1.0, max(last_rate, (1 - done) / (1 - constant_share)))


def _averaged(
    parameters: list[nn.Parameter], loss: Tensor, tokens: int, clip_norm: float
) -> tuple[float, float]:
    """Average gradients over the processes and clip them; the mean loss and the sum of tokens."""
    grads = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([*(g.reshape(-1) for g in grads), loss.detach().reshape(1)])
    counted = torch.tensor([float(tokens)])
    dist.all_reduce(flat)
    dist.all_reduce(counted)
    flat /= dist.get_world_size()
    mean_loss = float(flat[-1])
    flat[:-1] *= min(1.0, clip_norm / (float(flat[:-1].norm()) + 1e-6))
    for grad, averaged in zip(grads, flat[:-1].split([g.numel() for g in grads]), strict=True):
        grad.copy_(averaged.view_as(grad))
    return mean_loss, float(counted)


def train_process(rank: int, training: Training, folder: str) -> None:
    """One of the processes; rank 0 saves the checkpoint, in bf16, and the loss curve in the folder."""
    end_with_parent()
    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder) / "rendezvous"), training.processes)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=training.processes)
    started = time.monotonic()

    def report(text: str) -> None:
        if rank == 0:
            print(f"[{time.monotonic() - started:6.0f} s] {text}", flush=True)

    tokenizer = build_tokenizer()
    rng = np.random.default_rng([training.seed, rank])
    share = -(-training.tokens // training.processes)
    shard = generate_shard(rng, tokenizer, share, lambda total: report(f"corpus {total / share:4.0%}"))
    batches = plan_batches(rng, shard, training.batch_tokens)
    steps = torch.tensor([len(batches)])
    dist.all_reduce(steps, op=dist.ReduceOp.MIN)

    model = Qwen2ForCausalLM(model_config(len(tokenizer), training.layers))
    model.set_attn_implementation("eager")
    initialise(model, torch.Generator().manual_seed(training.seed))
    parameters = list(model.parameters())
    optimizer = MuonAdamW(model.named_parameters(), training.matrix_rate, training.other_rate)
    report(f"{sum(p.numel() for p in parameters)} parameters, {int(steps)} steps")

    seen, smooth = 0.0, 0.0
    curve: list[dict[str, float]] = []
    for step, documents in enumerate(batches[: int(steps)]):
        ids, weights = padded_batch(shard, documents)
        loss = weighted_loss(model, torch.from_numpy(ids), torch.from_numpy(weights))
        loss.backward()
        tokens = int(shard.lengths[documents].sum())
        mean_loss, counted = _averaged(parameters, loss, tokens, training.clip_norm)
        scale = rate_scale(step, seen / training.tokens, training.warmup_steps, training.constant_share)
        optimizer.step(scale)
        model.zero_grad()
        seen += counted
        smooth = mean_loss if step == 0 else 0.98 * smooth + 0.02 * mean_loss
        if step % 100 == 99 or step == int(steps) - 1:
            curve.append({"tokens": int(seen), "loss": round(smooth, 4)})
            report(f"step {step + 1}/{int(steps)}  {seen / 1e6:.2f} M tokens  loss {smooth:.3f}")

    if rank == 0:
        model.generation_config.pad_token_id, model.generation_config.eos_token_id = PAD, EOS
        model.bfloat16().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        record = {"training": asdict(training), "seconds": round(time.monotonic() - started), "curve": curve}
        Path(folder, "training.json").write_text(json.dumps(record, indent=1) + "\n")
    dist.destroy_process_group()
