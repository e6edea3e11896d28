"""The same work by transformers, vLLM, PEFT and TRL, as their users would write it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bench.adapters import ALPHA, RANK, by_peft
from bench.learner import peft_update
from bench.real_work import ATTEMPTS, NEW_TOKENS, PROBLEMS, advantage_of, between, prompts, vocabulary_of
from populora_core.config.machinery import SamplerSection
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.learner.rows import TrainingRow
from populora_core.model.base import load_base
from populora_core.sampler.spec import ModelSpec

if TYPE_CHECKING:
    from populora_core.sampler.requests import Sampler

TRL_SETTINGS = {"four_parts": 4, "sixteen_parts": 16}
"""Micro-batches of an update, by name; as one, 32 completions of a base of 135M take 17 GB and more."""


class GenerateDecoding:
    """`generate` of transformers on the bare base, which has no adapter to pay for."""

    def __init__(self, folder: Path, count: int) -> None:
        from transformers import AutoModelForCausalLM

        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
        asked = prompts(count, vocabulary_of(self._model))
        longest = max(map(len, asked))
        self._ids = torch.zeros(count, longest, dtype=torch.long)
        self._seen = torch.zeros_like(self._ids)
        for row, prompt in enumerate(asked):
            self._ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            self._seen[row, longest - len(prompt) :] = 1

    def step(self) -> float:
        """Seconds of a token step, the median of all."""
        clock: list[float] = []

        def told(ids: Any, scores: Any, **rest: Any) -> Any:
            clock.append(time.perf_counter())
            return torch.zeros(len(ids), dtype=torch.bool)

        self._model.generate(
            input_ids=self._ids,
            attention_mask=self._seen,
            do_sample=True,
            top_k=0,
            min_new_tokens=NEW_TOKENS,
            max_new_tokens=NEW_TOKENS,
            stopping_criteria=[told],
        )
        return between(clock)


def vllm_sampler(folder: Path) -> Sampler:
    """vLLM as the engine `vllm` has it, but in this process, on its threads; no token ends a completion."""
    from populora_plugins.vllm.sampler import VllmSampler

    base = BaseSection(path=str(folder), dtype="bfloat16")
    adapters, settings = AdapterSection(rank=RANK, alpha=ALPHA), SamplerSection(engine="vllm")
    return VllmSampler(ModelSpec(base, adapters, "", settings, members=1), ())


class PeftLearning:
    """PEFT's adapter on the same rows, in padded batches of like length, logits where they are needed."""

    def __init__(self, folder: Path, rows: Sequence[TrainingRow]) -> None:
        self._step = peft_update(by_peft(1, folder, "bfloat16"), rows)

    def seconds(self) -> float:
        """Seconds of one update."""
        started = time.perf_counter()
        self._step()
        return time.perf_counter() - started


def trl_steps(
    folder: Path, given: Sequence[tuple[int, ...]], setting: str, samples: int
) -> list[tuple[float, float]]:
    """Seconds of sampling and of learning of steps of TRL's GRPOTrainer, after one that does not count."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    base = load_base(folder, "bfloat16")
    asked = [base.tokenizer.decode(list(prompt)) for prompt in given]
    parts = TRL_SETTINGS[setting]
    sampled: list[float] = []
    whole: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: Any, **rest: Any) -> None:
            whole.append(-time.perf_counter())

        def on_step_end(self, *args: Any, **rest: Any) -> None:
            whole[-1] += time.perf_counter()

    with tempfile.TemporaryDirectory() as place:
        trainer = GRPOTrainer(
            model=base.model,
            processing_class=base.tokenizer,
            reward_funcs=lambda completions, **rest: [
                advantage_of(list(text.encode())) for text in completions
            ],
            args=GRPOConfig(
                output_dir=place,
                use_cpu=True,
                bf16=True,
                per_device_train_batch_size=PROBLEMS * ATTEMPTS // parts,
                gradient_accumulation_steps=parts,
                num_generations=ATTEMPTS,
                max_completion_length=NEW_TOKENS,
                generation_kwargs={"min_new_tokens": NEW_TOKENS},
                max_steps=samples + 1,
                beta=0.0,
                gradient_checkpointing=False,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
                logging_strategy="no",
            ),
            train_dataset=Dataset.from_dict({"prompt": asked * (samples + 1)}),
            peft_config=LoraConfig(r=RANK, lora_alpha=int(ALPHA), target_modules="all-linear"),
            callbacks=[Clock()],
        )
        trainer.remove_callback(PrinterCallback)  # standard output is the benchmark's
        generate = trainer._generate

        def timed(*args: Any, **rest: Any) -> Any:
            started = time.perf_counter()
            try:
                return generate(*args, **rest)
            finally:
                sampled.append(time.perf_counter() - started)

        trainer._generate = timed
        trainer.train()
    return [(drawn, total - drawn) for drawn, total in zip(sampled, whole, strict=True)][1:]
