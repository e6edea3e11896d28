"""Drawing tokens: one uniform number for each token of each request."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def uniforms(seeds: Sequence[int], length: int) -> Tensor:
    """[N, length] float64 in [0, 1): row i is the random stream of seed i, whatever the other seeds are."""
    rows = [np.random.Generator(np.random.Philox(key=seed)).random(length) for seed in seeds]
    return torch.from_numpy(np.stack(rows))


def draw(
    logits: Tensor,
    uniform: Tensor,
    temperature: Tensor,
    top_p: Tensor | None = None,
    given: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sample one token a row by inverting the cumulative distribution.

    Args:
        logits: [n, V].
        uniform: [n] float64 in [0, 1).
        temperature: [n]; 0 takes the most probable token.
        top_p: [n], or None where no row restricts its tokens.
        given: [n], tokens to take as if they had been drawn; None to draw.

    Returns:
        Token ids [n], and their log-probabilities [n] under softmax(logits / temperature) (temperature 1 for
        greedy rows), which top_p does not renormalise.
    """
    greedy = temperature == 0.0
    scale = torch.where(greedy, 1.0, temperature).to(torch.float32)
    logprobs = torch.log_softmax(logits.to(torch.float32) / scale[:, None], dim=-1)
    if given is not None:
        return given, logprobs.gather(-1, given[:, None]).squeeze(-1)
    probabilities = logprobs.exp()
    if top_p is not None:
        probabilities = _nucleus(probabilities, top_p)
    cumulative = probabilities.cumsum(-1, dtype=torch.float64)
    target = uniform * cumulative[:, -1]
    tokens = torch.searchsorted(cumulative, target[:, None], right=True).squeeze(-1)
    tokens = torch.where(greedy, logprobs.argmax(-1), tokens.clamp_(max=logits.shape[-1] - 1))
    return tokens, logprobs.gather(-1, tokens[:, None]).squeeze(-1)


def _nucleus(probabilities: Tensor, top_p: Tensor) -> Tensor:
    """Zero every token outside the smallest most-probable set of mass top_p (arXiv 1904.09751)."""
    ordered, index = probabilities.sort(dim=-1, descending=True, stable=True)
    mass_before = ordered.cumsum(-1, dtype=torch.float64) - ordered
    outside = (mass_before >= top_p[:, None]) & (top_p[:, None] < 1.0)
    return torch.zeros_like(probabilities).scatter_(-1, index, ordered.masked_fill_(outside, 0.0))
