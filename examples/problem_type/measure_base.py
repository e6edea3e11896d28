"""Measure a base on Countdown: its proposals, and problems that its training never drew.

    python examples/problem_type/measure_base.py BASE [BASE ...] [--trained STEPS] --output FILE

Proposals are drawn at temperature 1 without references. Problems have two, three or four numbers; each is answered
once greedily and eight times at temperature 1. Intervals are 95 %: Wilson's for shares, bootstrap over problems for
solve rates. Training draws many problems of two numbers, so those are kept, and their share is told.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import numpy as np
from train_base import BATCH, STEPS, document, problem

from base_model.measure import mean_interval, share_interval, solve_rates
from populora_core import (
    Arena,
    Limits,
    Problem,
    ProposalVerdict,
    SamplingRules,
    dialect,
    ids,
    open_sandbox,
    parse_arguments,
)

KIND, ATTEMPTS = "countdown", 8
Figures = dict[str, object]


def drawn_in_training(steps: int) -> set[str]:
    """The prompts of all documents that `train_base` draws in so many steps."""
    rng = np.random.default_rng(0)
    return {document(rng)[0] for _ in range(steps * BATCH)}


def problems(numbers: int, count: int, seen: set[str], seed: int) -> tuple[list[Problem], float]:
    """Different problems of so many numbers, and the share of them that training drew: none beyond two numbers."""
    rng, spoken = ids.generator(seed, numbers), dialect("compact")
    found: dict[str, Problem] = {}
    while len(found) < count:
        own = problem(rng)
        given, prompt = parse_arguments(own.inputs[0]), spoken.solve_prompt(own)
        if (
            len(given) == numbers
            and own.outputs[0] not in map(str, given)
            and (numbers == 2 or prompt not in seen)
        ):
            found.setdefault(prompt, own)
    named = [Problem(f"{numbers}-{i}", *row) for i, row in enumerate(map(_parts, found.values()))]
    return named, sum(prompt in seen for prompt in found) / count


def measured(
    arena: Arena, asked: dict[int, tuple[list[Problem], float]], proposals: int, seed: int
) -> Figures:
    """The figures of the base that the arena holds."""
    arena.load({"base": arena.newborn(seed)})
    _, checks = arena.propose("base", [(KIND, ())] * proposals, ids.draw_seed(seed, "propose"))
    valid = [
        c.draft.program + c.draft.inputs[0] for c in checks if c.verdict is ProposalVerdict.VALID and c.draft
    ]
    figures: Figures = {
        "proposals": proposals,
        "valid": share_interval(len(valid), proposals),
        "different": len(set(valid)),
        "verdicts": dict(Counter(str(c.verdict) for c in checks)),
    }
    for numbers, (given, drawn) in asked.items():
        draw = ids.draw_seed(seed, numbers)
        _, greedy = arena.solve("base", given, 1, draw, SamplingRules(temperature=0.0))
        _, sampled = arena.solve("base", given, ATTEMPTS, draw)
        once = [rate for rate in solve_rates(greedy, 1) if rate is not None]
        rates = [rate for rate in solve_rates(sampled, ATTEMPTS) if rate is not None]
        figures[f"{numbers}_numbers"] = {
            "problems": len(given),
            "drawn_in_training": round(drawn, 3),
            "greedy": share_interval(int(sum(once)), len(once)),
            "temperature_1": mean_interval(rates, ids.generator(seed, numbers, "bootstrap")),
            "solved_by_some": share_interval(sum(rate > 0.0 for rate in rates), len(rates)),
        }
    return figures


def _parts(own: Problem) -> tuple[str, str, tuple[str, ...], tuple[str, ...], str]:
    return own.problem_type, own.program, own.inputs, own.outputs, own.message


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bases", type=Path, nargs="+")
    parser.add_argument("--trained", type=int, default=STEPS, help="steps of the training")
    parser.add_argument("--proposals", type=int, default=200)
    parser.add_argument("--problems", type=int, default=100, help="of each count of numbers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    seen = drawn_in_training(options.trained)
    asked = {n: problems(n, options.problems, seen, options.seed) for n in (2, 3, 4)}
    found: Figures = {
        "seed": options.seed,
        "attempts": ATTEMPTS,
        "trained_steps": options.trained,
        "bases": {},
    }
    with open_sandbox("auto", Limits(), workers=1) as sandbox:
        for folder in options.bases:
            arena = Arena(folder, "compact", sandbox)
            found["bases"][folder.name] = {  # type: ignore[index]
                "digest": arena.worker.spec.digest,
                **measured(arena, asked, options.proposals, options.seed),
            }
            options.output.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
