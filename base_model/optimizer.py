"""Muon for matrices, AdamW for the rest, with the orthogonalisation shared out among data-parallel processes.

Muon: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks".
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
MOMENTUM = 0.95
WEIGHT_DECAY = 0.05  # decoupled, matrices only


def orthogonalised(matrix: Tensor) -> Tensor:
    """The matrix with its singular values pushed to about 1 by a quintic Newton-Schulz iteration."""
    a, b, c = NEWTON_SCHULZ
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / (wide.norm() + 1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


class MuonAdamW:
    """Both optimizers behind one step.

    Args:
        parameters: names and parameters; matrices other than embeddings go to Muon, all others to AdamW.
        matrix_rate: Muon's learning rate.
        other_rate: AdamW's learning rate.
    """

    def __init__(
        self, parameters: Iterable[tuple[str, nn.Parameter]], matrix_rate: float, other_rate: float
    ) -> None:
        named = list(parameters)
        self.matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
        others = [p for name, p in named if p.ndim != 2 or "embed" in name]
        self.matrix_rate, self.other_rate = matrix_rate, other_rate
        self.buffers = [torch.zeros_like(p) for p in self.matrices]
        self.adam = torch.optim.AdamW(others, lr=other_rate, betas=(0.9, 0.98), weight_decay=0.0)

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """Apply the gradients, which are already equal on all processes.

        Args:
            scale: factor on both learning rates (warm-up and decay).
        """
        rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        updates = torch.zeros(sum(p.numel() for p in self.matrices))
        start = 0
        for index, (matrix, buffer) in enumerate(zip(self.matrices, self.buffers, strict=True)):
            assert matrix.grad is not None
            buffer.mul_(MOMENTUM).add_(matrix.grad)
            end = start + matrix.numel()
            if index % world == rank:
                nesterov = matrix.grad + MOMENTUM * buffer
                updates[start:end] = orthogonalised(nesterov).reshape(-1)
            start = end
        if world > 1:
            dist.all_reduce(updates)
        rate = self.matrix_rate * scale
        for matrix, update in zip(
            self.matrices, updates.split([p.numel() for p in self.matrices]), strict=True
        ):
            tall = max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
            matrix.mul_(1 - rate * WEIGHT_DECAY).add_(update.view_as(matrix), alpha=-rate * tall)
        for group in self.adam.param_groups:
            group["lr"] = self.other_rate * scale
        self.adam.step()
