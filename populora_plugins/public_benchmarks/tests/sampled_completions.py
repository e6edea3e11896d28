"""Completions that a pretrained model samples for published problems, for `reference_graders.py ours FOLDER --sampled`.

    python sampled_completions.py FOLDER

writes FOLDER/sampled.jsonl: one completion a problem, asked as an evaluation asks, drawn by the torch
sampler. What is there already is not sampled again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from reference_completions import Completion, items

from populora_core.benchmarks.benchmark import Item, benchmark, ends_of
from populora_core.compute.work import Prompt, Worker
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.model.base import base_digest
from populora_core.sampler.spec import ModelSpec
from populora_core.support import ids
from populora_plugins.gguf_bases.named import named_base

SAMPLED = "sampled.jsonl"
ASKED = {
    "cruxeval_o": ("assert", 100, 48),
    "cruxeval_i": ("assert", 100, 48),
    "mbpp_plus": ("instruct", 180, 224),
    "humaneval": ("instruct", 120, 320),
    "gsm8k": ("instruct", 350, 320),
    "math500": ("instruct", 150, 448),
}
"""Benchmark -> the dialect that asks, how many of its problems, and the longest completion."""
BATCH = 64


def chosen(name: str, count: int) -> list[Item]:
    """Problems at equal distances; of MATH-500 the three easier levels, which a small model sometimes solves."""
    found = [item for item in items(name) if item.stratum not in ("level 4", "level 5")]
    return [found[place * len(found) // count] for place in range(count)]


def sampled(worker: Worker, own: Sequence[Item], most: int, temperature: float) -> Iterator[Completion]:
    """A completion of each problem of one benchmark."""
    name, family = own[0].benchmark, worker.spec.base.dialect
    asker = benchmark(name)
    prompts = [
        Prompt(None, asker.prompt(item, family), ids.draw_seed(0, name, item.item_id), temperature, 1.0, most)
        for item in own
    ]
    requests = worker.requests(prompts, ends_of(asker, family))
    completions = worker.sampler.generate(requests)
    for item, prompt, request, completion in zip(own, prompts, requests, completions, strict=True):
        row = worker.row(prompt, request, completion)
        yield Completion(name, item.item_id, "sampled", row["completion"], "", family, row["finish_reason"])


def known(file: Path) -> Sequence[Completion]:
    """What a file has of earlier calls."""
    lines = file.read_text().splitlines() if file.is_file() else []
    return [Completion(**json.loads(line)) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--base", default="qwen2.5-coder-0.5b")
    parser.add_argument("--benchmarks", nargs="+", choices=ASKED, default=[*ASKED])
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--share", type=float, default=1.0, help="of the problems of each benchmark")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    file, path = options.folder / SAMPLED, named_base(options.base)
    done, workers = {(each.benchmark, each.item_id) for each in known(file)}, dict[str, Worker]()
    for name in options.benchmarks:
        family, count, most = ASKED[name]
        own = [
            item for item in chosen(name, round(options.share * count)) if (name, item.item_id) not in done
        ]
        if own and family not in workers:
            base = BaseSection(path=path, dialect=family, dtype=options.dtype)
            spec = ModelSpec(base, AdapterSection(rank=1, alpha=1.0), base_digest(base.folder()))
            workers = {family: Worker(spec, 1)}
        for start in range(0, len(own), BATCH):
            began = time.process_time()
            found = [*sampled(workers[family], own[start : start + BATCH], most, options.temperature)]
            with file.open("a") as out:
                out.writelines(json.dumps(asdict(each)) + "\n" for each in found)
            print(f"{name}: {len(found)} in {time.process_time() - began:.0f} CPU seconds", flush=True)


if __name__ == "__main__":
    main()
