"""What the vllm sampler costs beside the torch sampler, in one process on a CPU.

    .venv-vllm/bin/python -m bench.sampler_vllm

The prompts, adapters and lengths of `bench sampler`; no end token stops a row. Process CPU seconds, since vLLM's
engine lives in this process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from bench.adapters import BASE, RANK, ours, trained
from bench.harness import cpu_seconds, interleaved, median
from bench.sampler import NEW_TOKENS, prompts
from populora_core.config.sections import SamplerSection
from populora_core.model.adapter_files import WEIGHTS, write_peft
from populora_core.model.layout import AdapterLayout
from populora_core.sampler.protocol import Request, Sampler, Served
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.sampler.vllm_sampler import VllmSampler
from populora_core.support.digest import file_sha256

MEMBERS, REQUESTS, ATTEMPTS, ROUNDS = 8, 64, 8, 3


def main() -> None:
    torch.set_num_threads(1)
    base, stacked = ours()
    with tempfile.TemporaryDirectory() as folder:
        adapters = _written(stacked.layout, Path(folder))
        ours_, theirs = TorchSampler(stacked, ()), _vllm()
        print(f"vllm: start with {MEMBERS} adapters, CPU s: {cpu_seconds(lambda: theirs.load(adapters)):.1f}")
        ours_.load(adapters)
        asked = prompts(len(base.tokenizer))[:REQUESTS]
        repeated = [asked[index // ATTEMPTS * ATTEMPTS] for index in range(REQUESTS)]
        variants: dict[str, Callable[[], object]] = {}
        for sampler in (theirs, ours_):
            for name, members, texts in (
                ("1 member", 1, asked),
                (f"{MEMBERS} members", MEMBERS, asked),
                (f"{MEMBERS} members, each prompt {ATTEMPTS} times", MEMBERS, repeated),
            ):
                variants[f"{sampler.name}, {name}"] = partial(_generate, sampler, texts, members)
        first = cpu_seconds(variants[f"vllm, {MEMBERS} members"])
        print(f"vllm: first batch, CPU s: {first:.2f}")
        for name, taken in interleaved(variants, ROUNDS, lambda text: None).items():
            row = median(name, taken, "CPU s")
            rate = REQUESTS * NEW_TOKENS / row.value
            print(
                f"{name}: {row.value:.2f} s ({min(taken):.2f} to {max(taken):.2f}), {rate:.0f} tokens a CPU second"
            )
        theirs.close()


def _vllm() -> VllmSampler:
    return VllmSampler(BASE, "float32", "cpu", RANK, (), SamplerSection(engine="vllm"))


def _written(layout: AdapterLayout, folder: Path) -> list[Served]:
    adapters = []
    for member in range(MEMBERS):
        place = folder / str(member)
        write_peft(place, layout, trained(layout, member), BASE.name)
        adapters.append(Served(str(member), place, file_sha256(place / WEIGHTS)))
    return adapters


def _generate(sampler: Sampler, texts: list[tuple[int, ...]], members: int) -> None:
    sampler.generate(
        [
            Request(str(index * members // REQUESTS), text, seed=index, max_tokens=NEW_TOKENS)
            for index, text in enumerate(texts)
        ]
    )


if __name__ == "__main__":
    main()
