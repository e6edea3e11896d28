"""A base that has seen Countdown: goes on training the bundled tiny base on its proposals and answers.

python examples/problem_type/train_base.py OUT        (some two minutes on two cores)
populora run --set base.path=OUT --set 'propose.types=["countdown"]'
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from populora_core.model.base import load_base
from populora_core.problems.dialects import dialect
from populora_core.problems.model import Problem
from populora_core.sandbox.literals import canonical
from populora_core.support.shipped import shipped

STEPS, BATCH, LEARNING_RATE = 250, 16, 1e-3
IGNORED = -100


def problem(rng: random.Random) -> Problem:
    """Two to four numbers, and a number that some of them reach."""
    count = rng.randint(2, 4)
    numbers = tuple(rng.randint(1, 20) for _ in range(count))
    names = "abcd"[:count]
    left = rng.sample(names, rng.randint(2, count))
    text = left.pop()
    while left:
        text = f"{text if len(text) == 1 else f'({text})'}{rng.choice('+-*')}{left.pop()}"
    program = f"def f({','.join(names)}):\n return {text}"
    target = eval(text, dict(zip(names, numbers, strict=True)))  # our own three signs and letters
    return Problem("", "countdown", program, (canonical(numbers),), (canonical(target),), "")


def document(rng: random.Random) -> tuple[str, str]:
    """A prompt and its completion, of either role."""
    spoken, own = dialect("compact"), problem(rng)
    if rng.random() < 0.5:
        return spoken.solve_prompt(own), f"{own.program}<eos>"
    references = [problem(rng) for _ in range(rng.randint(0, 2))]
    arguments = own.inputs[0].strip("()").replace(" ", "")
    return spoken.propose_prompt("countdown", references), f"{own.program}\n#{arguments}<eos>"


def main(out: Path) -> None:
    rng = random.Random(0)
    torch.set_num_threads(1)  # matrices this small lose time to threads
    base = load_base(shipped("base_model", "tiny"), "float32")
    model, tokenizer = base.model.requires_grad_(True).train(), base.tokenizer
    optimiser = torch.optim.AdamW(model.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, STEPS)
    for step in range(STEPS):
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
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
