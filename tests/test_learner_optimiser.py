from __future__ import annotations

import torch

from populora_core.learner.optimiser import adamw, clip_by_member

LRS, WEIGHT_DECAY, BETAS, EPS = [1e-2, 3e-3, 5e-2], 0.1, (0.9, 0.95), 1e-8
MAX_NORMS = torch.tensor([1.0, 0.2, 3.0], dtype=torch.float64)


def test_every_row_follows_torch_adamw_with_its_own_clipping_rate_and_step_count():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(3, 40, generator=generator, dtype=torch.float64)
    gradients = torch.randn(6, 3, 40, generator=generator, dtype=torch.float64)
    gradients *= torch.tensor([0.05, 1.0, 20.0], dtype=torch.float64)[:, None]
    births = [0, 2, 4]  # rows join late, so their step counts differ

    weights, exp_avg, exp_avg_sq = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    for now, gradient in enumerate(gradients):
        born = [row for row in range(3) if births[row] <= now]
        parts = [matrix[born] for matrix in (weights, gradient, exp_avg, exp_avg_sq)]
        clip_by_member(parts[1], MAX_NORMS[born])
        adamw(
            *parts,
            steps=torch.tensor([now - births[row] + 1 for row in born], dtype=torch.float64),
            lr=torch.tensor([LRS[row] for row in born], dtype=torch.float64),
            betas=BETAS,
            eps=EPS,
            weight_decay=WEIGHT_DECAY,
        )
        for matrix, part in zip((weights, exp_avg, exp_avg_sq), (parts[0], *parts[2:]), strict=True):
            matrix[born] = part

    for row in range(3):
        alone = start[row].clone().requires_grad_()
        optimiser = torch.optim.AdamW([alone], lr=LRS[row], betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY)
        for gradient in gradients[births[row] :]:
            alone.grad = gradient[row].clone()
            torch.nn.utils.clip_grad_norm_([alone], float(MAX_NORMS[row]))
            optimiser.step()
        torch.testing.assert_close(weights[row], alone.detach(), rtol=0.0, atol=1e-13)
