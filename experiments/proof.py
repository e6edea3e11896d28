"""Power of the proof: tokens that tell a member's policy from another under the noise of two engines.

    python -m experiments.proof --json bench/results/proof.json

In every draw a member's log-probabilities and another policy's are apart by so many nats (root mean square), spread
over all tokens or carried by one in ten. What was served has an engine's noise on it, Student's t of four degrees, of
so many nats on average. For an effect E under a noise N:

- `tokens_E_N`, and `tokens_in_few_E_N` of one in ten: from so many on 90 % of the draws are told apart;
- `formula_E_N`: what `tokens_needed` says, where about half of them are;
- `caught_at_512_E_N`: the share of draws that are refused by the 512 tokens which an update compares, where the other
  policy answered; `refused_at_512_E_N`: where the member itself did.

Draws are counted and nothing is timed, so what else the machine does is of no matter.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from bench.harness import BenchRow, as_json, print_table, single
from populora_core.sampler.proof import TELLING, Logprobs, MismatchLimits, ProofResult, judge
from populora_core.support.durable import write_atomically

EFFECTS = (0.02, 0.03, 0.05, 0.1, 0.2, 0.3)  # nats per token
NOISES = (0.02, 0.05, 0.1)
"""Mean absolute differences of two engines: Megatron and vLLM on a 4B are 0.011 apart (vime#64), transformers and vLLM
on a 1.7B 0.1 (vllm#18352)."""
COMPARED = 512  # tokens of a member that an update compares
OTHER = "the other policy"
LIMITS = MismatchLimits.of(0.05, 0.5, "bfloat16")
TOLD = 0.9
HEAVY = 10  # where few tokens carry an effect, one of so many


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=100, help="of each effect, noise and number of tokens")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    asked = parser.parse_args()
    rows = list(run(asked.draws))
    if asked.json:
        write_atomically(asked.json, as_json("proof", rows) + "\n")
    print_table("proof", rows)


def run(draws: int) -> Iterator[BenchRow]:
    """The figures of every noise and effect."""
    for noise, effect in product(NOISES, EFFECTS):
        at = f"{effect:g}_{noise:g}"
        yield single(f"formula_{at}", formula(effect, noise), "tokens")
        yield single(f"tokens_{at}", tokens_that_tell(effect, noise, draws), "tokens")
        yield single(f"tokens_in_few_{at}", tokens_that_tell(effect, noise, draws, HEAVY), "tokens")
        for what, swapped in (("caught", True), ("refused", False)):
            found = [judged(effect, noise, COMPARED, seed, swapped=swapped) for seed in range(draws)]
            share = found.count(ProofResult.WRONG) / draws
            yield single(f"{what}_at_{COMPARED}_{at}", share, "share")


def formula(effect: float, noise: float) -> int:
    """Result of `tokens_needed`; t(4) of mean absolute value 1 has variance 2."""
    return tokens_needed(effect, noise * np.sqrt(2.0))


def tokens_needed(effect: float, noise: float) -> int:
    """Tokens at which the share's standard error has come down to `TELLING`, and half of all draws are told apart.

    `tokens_that_tell` counts those from which nine of ten are.

    Args:
        effect: root mean square difference of the two policies, nats per token.
        noise: of the engines, the same measure.
    """
    return math.ceil((noise / (TELLING * effect)) ** 2)


def tokens_that_tell(effect: float, noise: float, draws: int, one_in: int = 1) -> int:
    """Fewest tokens, in steps of a tenth, with which nine draws of ten are told apart."""
    tokens = max(2 * one_in, formula(effect, noise) // 2)
    while True:
        found = [judged(effect, noise, tokens, seed, one_in) for seed in range(draws)]
        if found.count(ProofResult.APART) >= TOLD * draws:
            return tokens
        tokens += max(1, tokens // 10)


def judged(
    effect: float, noise: float, tokens: int, seed: int, one_in: int = 1, swapped: bool = False
) -> ProofResult:
    """Conclusion of the proof in one draw.

    Args:
        one_in: tokens of which one carries the effect.
        swapped: whether the other policy answered in the member's place.
    """
    rng = np.random.default_rng(seed)
    own: Logprobs = rng.normal(-1.0, 0.5, tokens)
    apart = rng.normal(0.0, effect * np.sqrt(one_in), tokens) * (rng.permutation(tokens) % one_in == 0)
    other = own + apart
    served = (other if swapped else own) + rng.standard_t(4, tokens) * noise
    return judge(served, own, {OTHER: other}, OTHER, LIMITS).told


if __name__ == "__main__":
    main()
