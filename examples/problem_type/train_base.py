"""A base that has seen Countdown: goes on training the bundled tiny base on its proposals and answers.

pip install -e examples/problem_type
python examples/problem_type/train_base.py OUT [STEPS]
populora run --preset quick --set base.path=OUT --set 'propose.types=["countdown"]'
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from populora_countdown_anchors import LETTERS, draft, expression
from torch.nn.functional import cross_entropy

from populora_core import Config, Problem, dialect, literal, load_base

STEPS, BATCH, LEARNING_RATE = 250, 16, 1e-3
IGNORED = -100


def problem(rng: np.random.Generator) -> Problem:
    """Some small numbers, and a number that some of them reach."""
    text, numbers = expression(rng)
    target = eval(text, dict(zip(LETTERS, numbers, strict=False)))  # our own letters and signs
    return draft("countdown", text, numbers).problem("", (literal(target),))


def document(rng: np.random.Generator) -> tuple[str, str]:
    """A prompt and its completion, of either role."""
    spoken, own = dialect("compact"), problem(rng)
    if rng.random() < 0.5:
        return spoken.solve_prompt(own), f"{own.program}<eos>"
    references = [problem(rng) for _ in range(rng.integers(3))]
    arguments = own.inputs[0].strip("()").replace(" ", "")
    return spoken.propose_prompt("countdown", references), f"{own.program}\n#{arguments}<eos>"


def main(out: Path, steps: int = STEPS) -> None:
    rng = np.random.default_rng(0)
    torch.set_num_threads(1)  # matrices this small lose time to threads
    base = load_base(Config().base.folder(), "float32")
    model, tokenizer = base.model.requires_grad_(True).train(), base.tokenizer
    optimiser = torch.optim.AdamW(model.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, steps)
    for step in range(steps):
        rows = []
        for prompt, completion in (document(rng) for _ in range(BATCH)):
            asked, told = (
                tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, completion)
            )
            rows.append((asked + told, [IGNORED] * len(asked) + told))
        width = max(len(ids) for ids, _ in rows)
        ids = torch.tensor([[*own, *[0] * (width - len(own))] for own, _ in rows])
        wanted = torch.tensor([[*own, *[IGNORED] * (width - len(own))] for _, own in rows])
        logits = model(input_ids=ids).logits  # [batch, width, vocabulary]
        loss = cross_entropy(logits[:, :-1].flatten(0, 1), wanted[:, 1:].flatten(), ignore_index=IGNORED)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
