"""Countdown problems that no model wrote: sources of anchors, which a run mixes in by a share.

populora run --preset quick --set 'propose.types=["countdown"]' --set anchors.share=0.3 --set anchors.source=countdown
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from populora_core import Draft

SIGNS, LETTERS = "+-*", "abcdef"


def small(rng: np.random.Generator, count: int, problem_type: str) -> Iterator[Draft]:
    """Two to four numbers, and an expression of some of them."""
    for _ in range(count):
        yield draft(problem_type, *expression(rng))


def of_reasoning_gym(rng: np.random.Generator, count: int, problem_type: str) -> Iterator[Draft]:
    """Problems of reasoning-gym's generator `countdown`: its expressions become programs, so the sandbox can judge."""
    from reasoning_gym.factory import create_dataset

    for entry in create_dataset("countdown", seed=int(rng.integers(1 << 31)), size=count):
        text = entry["metadata"]["expression"].replace("/", "//")
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        yield draft(problem_type, re.sub(r"\d+", "{}", text).format(*LETTERS), numbers)


def expression(rng: np.random.Generator) -> tuple[str, list[int]]:
    """A sum, difference or product of some letters, and the numbers that all letters stand for."""
    numbers = rng.integers(1, 21, rng.integers(2, 5)).tolist()
    left = rng.permutation(list(LETTERS[: len(numbers)]))[: rng.integers(2, len(numbers) + 1)].tolist()
    text = left.pop()
    while left:
        text = f"{text if len(text) == 1 else f'({text})'}{SIGNS[rng.integers(3)]}{left.pop()}"
    return text, numbers


def draft(problem_type: str, text: str, numbers: list[int]) -> Draft:
    """The proposal that a teacher would make of it."""
    program = f"def f({','.join(LETTERS[: len(numbers)])}):\n return {text}"
    return Draft(problem_type, program, (repr(tuple(numbers)),), message="")
