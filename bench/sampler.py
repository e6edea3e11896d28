"""Cost of sampling for many adapters against one, and against PEFT.

    populora bench sampler --json

The tiny base, rank 8 on all linear layers, one thread, process CPU seconds. Every variant completes the same
prompts by the same number of sampled tokens (no end token stops a row), so that only the adapters differ. The goals
are of rows of one length; `ragged` rows end one by one, as those of real generations do, and every step has
other shares. With stop texts every token that may complete one has the tail decoded again; none ever completes, so
that the tokens are the same.
PEFT runs `generate` of transformers in batches of the same size, with one adapter, or with `adapter_names`
that mix eight in a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from bench.adapters import by_peft, drawn_ids, ours, trained
from bench.harness import CLOSE, BenchRow, interleaved, ratio
from populora_core.model.base import Vocabulary
from populora_core.sampler.requests import Request
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.support.aliases import Say

REQUESTS, NEW_TOKENS = 256, 24
PROMPT_TOKENS = (20, 60)
BATCH = 64
STOP = ("\0\n\n", "\0</answer>")
"""Texts that end as a dialect's do, behind a character that is never drawn."""


def run(samples: int, say: Say) -> list[BenchRow]:
    """The ratios that have goals."""
    torch.set_num_threads(1)
    base, stacked = ours()
    sampler = TorchSampler(stacked, frozenset(), decode=Vocabulary(base.tokenizer, frozenset()).text)
    asked = prompts(len(base.tokenizer))

    def generate(
        members: int, lengths: Sequence[int] = (NEW_TOKENS,) * REQUESTS, stop: tuple[str, ...] = ()
    ) -> Callable[[], object]:
        requests = [
            Request(str(index * members // REQUESTS), prompt, seed=index, max_tokens=length, stop=stop)
            for index, (prompt, length) in enumerate(zip(asked, lengths, strict=True))
        ]
        rows = {str(member): trained(stacked.layout, member) for member in range(members)}

        def work() -> None:
            stacked.load(rows)
            sampler.generate(requests)

        return work

    ours_alone = {"p1": generate(1), "p8": generate(8)}
    many = {"p1": generate(1), "p32": generate(32)}
    drawn = np.random.default_rng(1).integers(1, 2 * NEW_TOKENS, REQUESTS).tolist()
    ragged = {"p1": generate(1, drawn), "p8": generate(8, drawn)}
    stopping = {"p1": generate(1), "stop": generate(1, stop=STOP)}
    peft = {"peft": _peft_generate(by_peft(1), asked, 1), "mixed": _peft_generate(by_peft(8), asked, 8)}
    close = interleaved(ours_alone, CLOSE * samples, say)
    large = interleaved(many, CLOSE * samples, say)
    uneven = interleaved(ragged, samples, say)
    ending = interleaved(stopping, CLOSE * samples, say)
    taken = interleaved(ours_alone | peft, samples, say)
    return [
        ratio("generate_p8_over_p1", close["p8"], close["p1"], "<= 1.05"),
        ratio("generate_p32_over_p1", large["p32"], large["p1"], "<= 1.15"),
        ratio("generate_ragged_p8_over_p1", uneven["p8"], uneven["p1"]),
        ratio("generate_stop_over_none", ending["stop"], ending["p1"], "<= 1.02"),
        ratio("generate_p1_over_peft_single", taken["p1"], taken["peft"], "<= 1"),
        ratio("generate_p8_over_peft_mixed", taken["p8"], taken["mixed"]),
    ]


def prompts(vocabulary: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(0)
    return [drawn_ids(rng, PROMPT_TOKENS, vocabulary) for _ in range(REQUESTS)]


def _peft_generate(model: Any, asked: Sequence[tuple[int, ...]], members: int) -> Callable[[], object]:
    """Sampling by `generate`, prompts of like length together, padded on the left."""
    model.eval()
    order = sorted(range(len(asked)), key=lambda index: len(asked[index]))
    batches = []
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        longest = max(len(asked[index]) for index in chosen)
        ids = torch.zeros(len(chosen), longest, dtype=torch.long)
        seen = torch.zeros_like(ids)
        for row, index in enumerate(chosen):
            ids[row, longest - len(asked[index]) :] = torch.tensor(asked[index])
            seen[row, longest - len(asked[index]) :] = 1
        names = [str(index * members // len(asked)) for index in chosen]
        batches.append((ids, seen, {"adapter_names": names} if members > 1 else {}))

    def work() -> None:
        for ids, seen, mixed in batches:
            model.generate(
                input_ids=ids,
                attention_mask=seen,
                do_sample=True,
                min_new_tokens=NEW_TOKENS,
                max_new_tokens=NEW_TOKENS,
                **mixed,
            )

    return work
