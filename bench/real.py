"""Real bases on a CPU, in bfloat16: decoding, updates and whole GRPO steps against floors and other trainers.

    populora bench real --json
    POPULORA_BENCH_BASES=smollm2-135m populora bench real --samples 3

One adapter of rank 8 on all linear layers, as many threads as this process may use, seconds on the clock: the machine
has to be idle. A floor is what products and memory alone would take, at rates measured in the same run: of a step
the weights read once, or its products, whichever takes longer; of an update its products forward and back.
Peak memory and the cost of busy neighbours are of processes of their own: `python -m bench.real WORK BASE` is one.
TRL, and vLLM's build for CPUs (`make vllm`), are measured where they are installed.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
import torch.nn.functional as F

from bench import real_others
from bench.adapters import ours
from bench.harness import BenchRow, median, ratio, single, status_kib, wall_seconds
from bench.real_work import GrpoStep, RealDecoding, RealLearning, vocabulary_of
from populora_core.config.sections import BaseSection
from populora_core.model.stacked import StackedAdapters
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.support.aliases import Say
from populora_plugins.gguf_bases.named import NAMED, named_base
from populora_plugins.vllm.engine import DISTRIBUTION

BASES = os.environ.get("POPULORA_BENCH_BASES", ",".join(NAMED)).split(",")
ROWS = (16, 64)
MEMBERS = 4  # adapters in one step against as many runs of TRL
NEIGHBOURS = 2
TRL, VLLM = "trl", DISTRIBUTION["cpu"]
ALONE = {
    "ours_decode": "",
    "transformers_decode": "",
    "vllm_decode": VLLM,
    "ours_step": "",
    "peft_update": "",
    "trl_step": TRL,
}
"""Work that is also done in a process of its own, for its memory, and the package that it takes, if any."""


def run(samples: int, say: Say) -> list[BenchRow]:
    """Rows of each base; figures of the machine first."""
    torch.set_num_threads(threads())
    for package in (TRL, VLLM):
        if not installed(package):
            say(f"{package} is not installed: its rows are left out")
    bandwidth, rate = read_rate(), gemm_rate()
    rows = [
        single("threads", threads(), "threads"),
        single("read_gb_per_s", bandwidth / 1e9, "GB/s"),
        single("gemm_gflops", rate / 1e9, "GFLOP/s"),
    ]
    for name in BASES:
        folder = folder_of(name)
        base, stacked = ours(folder, "bfloat16")
        short = name.replace(".", "").replace("-", "_").replace(":", "_")
        for count in ROWS:
            say(f"{name}: decoding {count} rows")
            rows += decoding(f"{short}_decode{count}", stacked, folder, count, samples, bandwidth, rate)
        say(f"{name}: updates")
        rows += _updates(short, stacked, folder, max(3, samples // 3), rate)
        rows += _steps(short, stacked, folder, max(3, samples // 3), say)
        del base, stacked
        for work, package in ALONE.items():
            if not package or installed(package):
                say(f"{name}: memory of {work}")
                rows.append(single(f"{short}_{work}_peak_gb", alone(work, name)["peak"] / 1e9, "GB"))
        say(f"{name}: beside {NEIGHBOURS} busy neighbours")
        rows.append(_contention(short, name))
    return rows


def folder_of(name: str) -> Path:
    """The checkpoint of a base: one with a short name, else a path as `base.path` has it."""
    return BaseSection(path=named_base(name) if name in NAMED else name).folder()


def installed(package: str) -> bool:
    """True if a distribution of this name is installed; a mere folder of its name does not count."""
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def threads() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def read_rate() -> float:
    """Bytes per second at which memory is read; the best of five times."""
    numbers = torch.ones(1 << 27, dtype=torch.int64)
    return numbers.nbytes / min(wall_seconds(numbers.sum) for _ in range(5))


def gemm_rate() -> float:
    """Operations per second of a product in bfloat16; the best of five times."""
    x, weight = torch.randn(1024, 4096).bfloat16(), torch.randn(4096, 4096).bfloat16()
    return 2.0 * x.numel() * len(weight) / min(wall_seconds(lambda: F.linear(x, weight)) for _ in range(5))


def decoding(
    name: str, stacked: StackedAdapters, folder: Path, count: int, samples: int, bandwidth: float, rate: float
) -> list[BenchRow]:
    parameters = [parameter for parameter in stacked.model.parameters() if parameter.dim() > 1]
    embedding = stacked.model.get_input_embeddings().weight
    tied = stacked.model.get_output_embeddings().weight is embedding
    read = sum(parameter.numel() for parameter in parameters) - (0 if tied else embedding.numel())
    floor = max(2 * read / bandwidth, 2.0 * read * count / rate)
    asked = stacked.layout, vocabulary_of(stacked.model), count
    works = {
        "ours": RealDecoding(TorchSampler(stacked, frozenset()), *asked).step,
        "transformers": real_others.GenerateDecoding(folder, count).step,
    }
    with ExitStack() as until:
        if installed(VLLM):
            engine = until.enter_context(closing(real_others.vllm_sampler(folder)))
            works["vllm"] = RealDecoding(engine, *asked).step
        taken = _in_turns(works, samples)
    rows = [
        median(f"{name}_steps_ms", [1e3 * seconds for seconds in taken["ours"]], "ms"),
        ratio(f"{name}_over_floor", taken["ours"], [floor] * samples, "<= 2.5"),
        ratio(f"{name}_transformers_over_ours", taken["transformers"], taken["ours"], ">= 2"),
    ]
    if "vllm" in taken:
        rows.append(ratio(f"{name}_vllm_over_ours", taken["vllm"], taken["ours"], ">= 0.7"))
    return rows


def _updates(name: str, stacked: StackedAdapters, folder: Path, samples: int, rate: float) -> list[BenchRow]:
    learning = RealLearning(stacked)
    floor = learning.operations() / rate
    theirs = real_others.PeftLearning(folder, learning.rows)
    taken = _in_turns({"ours": learning.seconds, "peft": theirs.seconds}, samples)
    return [
        median(f"{name}_update_seconds", taken["ours"], "s"),
        ratio(f"{name}_update_over_floor", taken["ours"], [floor] * samples, "<= 2"),
        ratio(f"{name}_peft_update_over_ours", taken["peft"], taken["ours"], ">= 1"),
    ]


def _steps(name: str, stacked: StackedAdapters, folder: Path, samples: int, say: Say) -> list[BenchRow]:
    """A whole step: sampling and update apart, then against TRL with one adapter and with several."""
    step, several = GrpoStep(stacked, 1), GrpoStep(stacked, MEMBERS)
    ours_taken = [step.seconds() for _ in range(samples)]
    rows = [
        median(
            f"{name}_step_sampled_per_s", [step.tokens / sampled for sampled, _ in ours_taken], "tokens/s"
        ),
        median(f"{name}_step_learnt_per_s", [step.tokens / learnt for _, learnt in ours_taken], "tokens/s"),
    ]
    if not installed(TRL):
        return rows
    best: list[tuple[float, float]] = []
    for setting in real_others.TRL_SETTINGS:
        say(f"{name}: TRL, {setting}")
        taken = real_others.trl_steps(folder, step.prompts, setting, samples)
        sampled, learnt = (median("", [part[at] for part in taken], "s").value for at in (0, 1))
        rows += [
            single(f"{name}_trl_{setting}_sampled_per_s", step.tokens / sampled, "tokens/s"),
            single(f"{name}_trl_{setting}_learnt_per_s", step.tokens / learnt, "tokens/s"),
        ]
        if not best or sum(map(sum, taken)) < sum(map(sum, best)):
            best = taken
    theirs, own = [sum(parts) for parts in best], [sum(parts) for parts in ours_taken]
    many = [sum(several.seconds()) for _ in range(samples)]
    return [
        *rows,
        ratio(f"{name}_trl_step_over_ours", theirs, own, ">= 1.5"),
        ratio(f"{name}_{MEMBERS}_trl_steps_over_ours", [MEMBERS * each for each in theirs], many, ">= 4"),
    ]


def _contention(short: str, name: str) -> BenchRow:
    """A step beside busy neighbours over one alone; a fair share of two cores is 2."""
    idle = alone("ours_step", name)["seconds"]
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], stdout=subprocess.DEVNULL)
        for _ in range(NEIGHBOURS)
    ]
    try:
        crowded = alone("ours_step", name)["seconds"]
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return single(f"{short}_beside_neighbours_over_alone", crowded / idle, "ratio", "<= 2.2")


def alone(work: str, name: str) -> dict[str, float]:
    """Seconds of a work and the peak of its memory in bytes, in a process of its own."""
    told = subprocess.run(
        [sys.executable, "-m", "bench.real", work, name],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[1],
    )
    found: dict[str, float] = json.loads(told.stdout.splitlines()[-1])
    return found


def work_alone(work: str, name: str) -> dict[str, float]:
    """Do a work twice, and tell of the second time."""
    torch.set_num_threads(threads())
    folder = folder_of(name)
    match work:
        case "ours_decode" | "transformers_decode" | "vllm_decode":
            decoding = _decoding_alone(work, folder)
            _, seconds = decoding.step(), decoding.step()
        case "ours_step":
            step = GrpoStep(ours(folder, "bfloat16")[1], 1)
            _, parts = step.seconds(), step.seconds()
            seconds = sum(parts)
        case "peft_update":
            rows = RealLearning(ours(folder, "bfloat16")[1]).rows
            gc.collect()  # our base is not theirs to pay for
            theirs = real_others.PeftLearning(folder, rows)
            _, seconds = theirs.seconds(), theirs.seconds()
        case _:
            setting = next(iter(real_others.TRL_SETTINGS))
            asked = GrpoStep(ours(folder, "bfloat16")[1], 1).prompts
            gc.collect()
            taken = real_others.trl_steps(folder, asked, setting, 1)
            seconds = sum(taken[0])
    return {"seconds": seconds, "peak": 1024.0 * status_kib("VmHWM")}


def _decoding_alone(work: str, folder: Path) -> RealDecoding | real_others.GenerateDecoding:
    """The largest number of rows that is decoded, by the sampler that the work names."""
    count = max(ROWS)
    if work == "transformers_decode":
        return real_others.GenerateDecoding(folder, count)
    stacked = ours(folder, "bfloat16")[1]
    asked = stacked.layout, vocabulary_of(stacked.model), count
    if work == "ours_decode":
        return RealDecoding(TorchSampler(stacked, frozenset()), *asked)
    del stacked
    gc.collect()  # our base is not theirs to pay for
    return RealDecoding(real_others.vllm_sampler(folder), *asked)


def _in_turns(works: Mapping[str, Callable[[], float]], samples: int) -> dict[str, list[float]]:
    """Seconds that each work tells of itself, one of each a round after one that does not count."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for sample in range(samples + 1):
        for name, work in works.items():
            seconds = work()
            if sample:
                taken[name].append(seconds)
    return taken


if __name__ == "__main__":
    print(json.dumps(work_alone(*sys.argv[1:])))
