"""The parts of drawing tokens: random numbers of each request, the nucleus, large vocabularies block by block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

LARGE = 1 << 13  # tokens of a vocabulary from which on most of a step's drawing is passes over all of them
BLOCK = 512  # of which the sums are taken first


def uniforms(seeds: Sequence[int], length: int) -> Tensor:
    """[N, length] float64 in [0, 1): row i is the random stream of seed i, whatever the other seeds are."""
    rows = [np.random.Generator(np.random.Philox(key=seed)).random(length) for seed in seeds]
    return torch.from_numpy(np.stack(rows))


def nucleus(probabilities: Tensor, top_p: Tensor) -> Tensor:
    """Zero every token outside the smallest most-probable set of mass top_p (arXiv 1904.09751)."""
    ordered, index = probabilities.sort(dim=-1, descending=True, stable=True)
    mass_before = ordered.cumsum(-1, dtype=torch.float64) - ordered
    outside = (mass_before >= top_p[:, None]) & (top_p[:, None] < 1.0)
    return torch.zeros_like(probabilities).scatter_(-1, index, ordered.masked_fill_(outside, 0.0))


def drawn_by_blocks(logits: Tensor, uniform: Tensor, greedy: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens and log-probabilities as `draw` gives them, of logits [n, V] at their temperatures: the block first."""
    whole = logits.shape[-1] // BLOCK * BLOCK
    largest = logits.amax(-1, keepdim=True)
    mass = (logits - largest).exp_()
    sums = mass[:, :whole].unflatten(-1, (-1, BLOCK)).sum(-1)
    rest = mass[:, whole:].sum(-1, keepdim=True)
    sums = torch.cat([sums, rest], -1).to(torch.float64)
    blocks, share = _inverted(sums, uniform)
    columns = blocks[:, None] * BLOCK + torch.arange(BLOCK, device=logits.device)
    inside = columns < logits.shape[-1]
    within = mass.gather(-1, columns.clamp(max=logits.shape[-1] - 1)).to(torch.float64) * inside
    places, _ = _inverted(within, share)
    tokens = (blocks * BLOCK + places).clamp_(max=logits.shape[-1] - 1)
    if bool(greedy.any()):
        tokens = torch.where(greedy, logits.argmax(-1), tokens)
    logprobs = (logits.gather(-1, tokens[:, None]) - largest).squeeze(-1) - sums.sum(-1).log()
    return tokens, logprobs.to(torch.float32)


def _inverted(masses: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Places where the share `uniform` [n] of each row's mass [n, m] is reached, and how far into them it lies.

    A share again, so that places within a place add up to whatever their own sum is.
    """
    cumulative = masses.cumsum(-1)
    target = (uniform * cumulative[:, -1])[:, None]
    places = torch.searchsorted(cumulative, target, right=True).clamp_(max=masses.shape[-1] - 1)
    mass = masses.gather(-1, places)
    into = (target - (cumulative.gather(-1, places) - mass)) / mass
    return places.squeeze(-1), into.squeeze(-1).clamp_(min=0.0)
