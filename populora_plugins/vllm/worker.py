"""Addition to vLLM's worker: log-probabilities under softmax(logits / temperature), before top_p.

vLLM reports them either raw, before temperature, or processed, after top_p has cut and renormalised. The
learner's importance ratios need the distribution between the two, so the step that applies top_p and draws is
wrapped.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Extension:
    """Methods that join vLLM's worker class (`worker_extension_cls`), to be called by `collective_rpc`."""

    model_runner: Any

    def report_before_top_p(self) -> None:
        """Have log-probabilities of drawn tokens reported before top_p; needs `processed_logprobs`."""
        sampler = self.model_runner.sampler
        sampler.topk_topp_sampler = BeforeTopP(sampler.topk_topp_sampler)


class BeforeTopP(nn.Module):
    """vLLM's drawing step, whose log-probabilities are those of the logits [n, V] that come in."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner
        inner.logprobs_mode = "raw_logprobs"  # what it would compute itself goes unused

    def forward(self, logits: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
        """Token ids [n], and log-probabilities [n, V] under softmax(logits)."""
        logprobs = logits.log_softmax(dim=-1, dtype=torch.float32)
        return self.inner(logits, *settings)[0], logprobs
