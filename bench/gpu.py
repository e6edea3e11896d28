"""Update, memory and sampling of a 7B-shaped base on one GPU, with a base that is drawn at random.

    python -m bench.gpu --json gpu.json

Needs torch, transformers and safetensors alone, and no download. Wall seconds around synchronised work, one of
each variant a round. The updates of P members train on the same rows, cut into equal shares. `matmul_peak` is
what one square product in the base's precision reaches here; an update's share of it counts the products with
the frozen weights (2 operations a weight and token forward, 2 backward, 2 more where layers were run again) and
with the adapters, for every token that is run, padding included. Memory is the allocator's peak, and what it
reserves. Single parts come last (`gpu_parts`). The report is written after every figure, so that a run that is cut
off leaves what it has; the defaults take some 8 minutes at most, by reckoning.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from bench.adapters import drawn_ids, trained
from bench.gpu_parts import parts
from bench.gpu_setting import SETTINGS, Scenario, Step, seconds_of
from bench.harness import BenchRow, as_json, machine, median, print_table, ratio, single
from populora_core.learner.packing import MicroBatch, micro_batches, pack_rows
from populora_core.learner.update import update_members
from populora_core.model.attention import group_queries
from populora_core.model.base import keep_numbers_sound
from populora_core.model.layout import AdapterLayout
from populora_core.model.stacked import StackedAdapters
from populora_core.model.state import MemberState
from populora_core.planning.duration import update_operations
from populora_core.planning.memory import Workload, estimate, shape_of
from populora_core.sampler.requests import Request
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.support.devices import hold_device, product_rate
from populora_core.support.durable import write_atomically

GIB = 2**30


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shape", choices=SETTINGS, default="7b", help="of the base; tiny is a trial of the code"
    )
    parser.add_argument("--layers", type=int, help="of the base, in place of the shape's own")
    parser.add_argument("--no-checkpointing", action="store_true", help="keep activations; needs more memory")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--samples", type=int, default=1, help="rounds of one update of each population")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    asked = parser.parse_args()
    if asked.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU; --shape tiny --device cpu tries the code without one")
    setting = SETTINGS[asked.shape]
    if asked.layers:
        setting = replace(setting, model={**setting.model, "num_hidden_layers": asked.layers})
    setting = replace(setting, checkpointing=not asked.no_checkpointing)
    found: dict[str, BenchRow] = {}
    with hold_device(asked.device):
        for row in run(setting, torch.device(asked.device), asked.samples):
            found[row.name] = row
            if asked.json:
                report = json.loads(as_json("gpu", list(found.values())))
                report["machine"] = machine() | _device(asked.device)
                report["setting"] = asdict(setting)
                write_atomically(asked.json, json.dumps(report, indent=1) + "\n")
    print_table("gpu", list(found.values()))


def run(setting: Scenario, device: torch.device, samples: int) -> Iterator[BenchRow]:
    """Every figure of the setting, again after each round.

    Args:
        samples: rounds; the first call of each variant is not measured.
    """
    _say("drawing the base")
    model = random_base(setting.model, device)
    layout = AdapterLayout.of(model, setting.rank, 2.0 * setting.rank)
    peak = [product_rate(device, model.dtype, setting.square) for _ in range(samples)]
    yield median("matmul_peak", [each / 1e12 for each in peak], "TFLOP/s")
    yield _grouped(setting, layout, model.dtype, device, samples)
    stacked = StackedAdapters(model, layout)
    yield from _updates(setting, stacked, float(np.median(peak)), samples)
    yield from _sampling(setting, stacked, samples)
    yield from parts(setting, stacked)


def random_base(config: Mapping[str, Any], device: torch.device) -> PreTrainedModel:
    """A frozen model in bfloat16, made on the device."""
    with torch.device(device), torch.random.fork_rng():
        torch.manual_seed(0)
        chosen = AutoConfig.for_model(**config)
        model = AutoModelForCausalLM.from_config(chosen, dtype=torch.bfloat16)
    model.to(device).requires_grad_(False).eval()
    if device.type == "cuda":
        keep_numbers_sound()
        group_queries(model)
    return model


def _updates(setting: Scenario, stacked: StackedAdapters, peak: float, samples: int) -> Iterator[BenchRow]:
    device, layout = stacked.device, stacked.layout
    rules = Step(setting.token_budget, setting.pack_tokens, setting.checkpointing).rules
    seconds: dict[int, list[float]] = {members: [] for members in setting.members}
    memory: dict[int, tuple[float, float]] = {}
    operations: dict[int, float] = {}
    for number in range(samples + 1):
        for members in setting.members:
            _say(f"round {number} of {samples}: update of {members}")
            rows = setting.rows(members)
            states = {str(member): MemberState.newborn(trained(layout, member)) for member in range(members)}
            _forget_peak(device)
            with _counted(stacked) as ran:
                taken = seconds_of(lambda: update_members(stacked, states, rows, rules), device)  # noqa: B023
            if number:
                seconds[members].append(taken)
            memory[members] = _peak_memory(device)
            packs = pack_rows(rows, rules.settings.pack_tokens)
            batches = list(micro_batches(packs, rules.settings.token_budget, device.type == "cuda"))
            operations[members] = _operations(setting, batches, len(ran))
            if not number:
                continue
            yield median(f"update_seconds_p{members}", seconds[members], "s")
            reached = [operations[members] / each / peak for each in seconds[members]]
            yield median(f"update_share_of_peak_p{members}", reached, "share")
            first = setting.members[0]
            if members != first:
                yield ratio(f"update_p{members}_over_p{first}", seconds[members], seconds[first])
            if device.type == "cuda":
                allocated, reserved = memory[members]
                yield single(f"update_gib_p{members}", allocated / GIB, "GiB")
                yield single(f"update_reserved_gib_p{members}", reserved / GIB, "GiB")
                yield single(f"update_gib_planned_p{members}", _planned(setting, members) / GIB, "GiB")


def _sampling(setting: Scenario, stacked: StackedAdapters, samples: int) -> Iterator[BenchRow]:
    device = stacked.device
    sampler = TorchSampler(stacked, (), rows=setting.requests)
    rng = np.random.default_rng(0)
    vocabulary = setting.model["vocab_size"]
    prompts = [drawn_ids(rng, setting.prompt, vocabulary) for _ in range(setting.requests)]
    taken: dict[int, list[float]] = {members: [] for members in (1, max(setting.members))}
    memory: dict[int, tuple[float, float]] = {}
    for number in range(samples + 1):
        for members in taken:
            _say(f"round {number} of {samples}: sampling of {members}")
            stacked.load({str(member): trained(stacked.layout, member) for member in range(members)})
            requests = [
                Request(
                    str(index * members // len(prompts)), prompt, seed=index, max_tokens=setting.new_tokens
                )
                for index, prompt in enumerate(prompts)
            ]
            _forget_peak(device)
            seconds = seconds_of(lambda: sampler.generate(requests), device)  # noqa: B023
            if number:
                taken[members].append(seconds)
            memory[members] = _peak_memory(device)
            if number:
                drawn = setting.requests * setting.new_tokens
                rates = [drawn / each for each in taken[members]]
                yield median(f"sampler_tokens_per_second_p{members}", rates, "1/s")
                if device.type == "cuda":
                    yield single(f"sampler_gib_p{members}", memory[members][0] / GIB, "GiB")
    first, most = taken
    yield ratio(f"generate_p{most}_over_p{first}", taken[most], taken[first])


def _grouped(
    setting: Scenario, layout: AdapterLayout, dtype: torch.dtype, device: torch.device, samples: int
) -> BenchRow:
    """One layer's two products of all members' parts, added to the base's, by groups over batched as the learner's."""
    members, slot = max(setting.members), layout.modules[0]
    tokens = setting.token_budget // members
    x = torch.randn(members, tokens, slot.in_features, device=device).to(dtype)
    a = torch.randn(members, slot.in_features, layout.rank, device=device).to(dtype)
    b = torch.randn(members, layout.rank, slot.out_features, device=device).to(dtype)
    ends = torch.arange(1, members + 1, device=device, dtype=torch.int32) * tokens

    y = torch.zeros(members, tokens, slot.out_features, device=device, dtype=dtype)

    def grouped() -> None:
        u = torch._grouped_mm(x.flatten(0, 1), a, ends)
        y.flatten(0, 1).add_(torch._grouped_mm(u, b, ends))

    taken: dict[Callable[[], object], list[float]] = {
        grouped: [],
        lambda: y.baddbmm_(torch.bmm(x, a), b): [],
    }
    for number in range(samples + 1):
        for work, seconds in taken.items():
            spent = seconds_of(lambda: [work() for _ in range(20)], device)  # noqa: B023
            seconds += [spent] * (number > 0)
    over, under = taken.values()
    return ratio("grouped_over_batched", over, under)


def _operations(setting: Scenario, batches: Sequence[MicroBatch], passes: int) -> float:
    """Multiplications and additions of one update, whose layers were run forward so often."""
    tokens, targets = (sum(getattr(b, name).size for b in batches) for name in ("input_ids", "targets"))
    shape = shape_of(setting.model, setting.rank)
    return update_operations(shape, tokens, targets, again=passes > len(batches))


@contextmanager
def _counted(stacked: StackedAdapters) -> Iterator[list[None]]:
    """Inside, a list grows by an element whenever the first layer is run: on a GPU the learner decides how often."""
    ran: list[None] = []
    first = stacked.model.get_submodule(stacked.layout.modules[0].name)
    hook = first.register_forward_hook(lambda *_: ran.append(None))
    try:
        yield ran
    finally:
        hook.remove()


def _planned(setting: Scenario, members: int) -> int:
    """Bytes that `--dry-run` would estimate for the update."""
    work = Workload(
        members=members,
        base_bytes=2,
        update_tokens=setting.token_budget,
        checkpointing=setting.checkpointing,
    )
    return estimate(shape_of(setting.model, setting.rank), work).learner


def _forget_peak(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _peak_memory(device: torch.device) -> tuple[float, float]:
    """Bytes that tensors took at most, and that the allocator reserved for them."""
    if device.type != "cuda":
        return 0.0, 0.0
    return float(torch.cuda.max_memory_allocated(device)), float(torch.cuda.max_memory_reserved(device))


def _device(name: str) -> dict[str, Any]:
    """The accelerator and the libraries, which `harness.machine` does not know."""
    import transformers

    found: dict[str, Any] = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": name,
    }
    if name.startswith("cuda"):
        properties = torch.cuda.get_device_properties(name)
        found |= {
            "gpu": properties.name,
            "gpu_memory_gib": round(properties.total_memory / GIB),
            "cuda": torch.version.cuda,
        }
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
