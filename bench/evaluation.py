"""Cost of evaluating eight members against as many completions of one.

    populora bench evaluation --json

The tiny base, rank 8, one thread, process CPU seconds of sampling; grading is the sandbox's work and depends on the
answers alone. All members have the same weights under eight names, so both sides sample the same completions,
token by token, and differ in adapters alone. Every completion has a problem of its own: equal prompts of one member
are read once, which would favour the one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.adapters import ours, trained
from bench.harness import BenchRow, interleaved, ratio
from populora_core.benchmarks.benchmark import benchmark
from populora_core.benchmarks.items import suite_items
from populora_core.benchmarks.suite import Part, load_suite
from populora_core.config.measuring import EvaluateSection
from populora_core.problems.dialects import dialect
from populora_core.sampler.requests import Request
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.support.aliases import Say

MEMBERS = 8
PROBLEMS = 64  # of each benchmark
FAMILY = "compact"


def run(samples: int, say: Say) -> list[BenchRow]:
    """The ratio that has a goal."""
    torch.set_num_threads(1)
    base, stacked = ours()
    sampler = TorchSampler(stacked, base.stop_ids)
    weights = trained(stacked.layout, 0)
    encode = dialect(FAMILY).encode
    asked = []
    for entry, items in suite_items(load_suite(EvaluateSection().file()), Part.TEST):
        known = benchmark(entry.benchmark)
        for item in items[:PROBLEMS]:
            asked.append((tuple(encode(base.tokenizer, known.prompt(item, FAMILY))), entry.max_tokens))

    def evaluate(members: int) -> Callable[[], object]:
        requests = [
            Request(str(index % members), prompt, seed=0, temperature=0.0, max_tokens=max_tokens)
            for index, (prompt, max_tokens) in enumerate(asked)
        ]
        rows = {str(member): weights for member in range(members)}

        def work() -> None:
            stacked.load(rows)
            sampler.generate(requests)

        return work

    taken = interleaved({"eight": evaluate(MEMBERS), "one": evaluate(1)}, samples, say)
    return [ratio("eight_members_over_one", taken["eight"], taken["one"], "<= 1.1")]
