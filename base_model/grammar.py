"""Problems from the grammar: a program with inputs it runs on and outputs that tell something about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from base_model.blocks import choose, choose_weighted
from base_model.derivation import Derivation, derive, relative
from base_model.execution import call, compile_function
from base_model.tables import LETTERS, Type

KINDS = ("code_o", "code_i", "code_f")
CODE_F_INPUTS = 6

# Easy programs mostly, deep ones rarely. A function must be guessed from four examples: code_f stays simpler.
LEVEL_WEIGHTS: dict[str, dict[int, float]] = {
    "code_o": {1: 0.40, 2: 0.28, 3: 0.16, 4: 0.09, 5: 0.04, 6: 0.03},
    "code_i": {1: 0.40, 2: 0.28, 3: 0.16, 4: 0.09, 5: 0.04, 6: 0.03},
    "code_f": {1: 0.54, 2: 0.32, 3: 0.12, 4: 0.02},
}

_LENGTHS = (1, 2, 2, 3, 3, 3, 4, 4, 4)
_ERRORS = (ArithmeticError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Sample:
    """A derivation with examples of what its program does.

    Attributes:
        derivation: where the program comes from.
        program: its text.
        inputs: distinct argument tuples.
        outputs: one per input.
    """

    derivation: Derivation
    program: str
    inputs: tuple[tuple, ...]
    outputs: tuple[object, ...]

    @property
    def examples(self) -> tuple[tuple[tuple, object], ...]:
        """Inputs with their outputs."""
        return tuple(zip(self.inputs, self.outputs, strict=True))


def random_value(rng: np.random.Generator, kind: Type) -> int | str | list[int]:
    """A small value: ints mostly of one digit, lists and strings of one to four items."""
    if kind is Type.INT:
        shape = rng.random()
        if shape < 0.76:
            return int(rng.integers(0, 10))
        return int(rng.integers(10, 20)) if shape < 0.9 else int(rng.integers(-5, 0))
    length = choose(rng, _LENGTHS)
    if kind is Type.LIST:
        return [int(item) for item in rng.integers(0, 10, length)]
    return "".join(choose(rng, LETTERS) for _ in range(length))


def examples(rng: np.random.Generator, derivation: Derivation, count: int) -> Sample | None:
    """The derivation's program on ``count`` inputs, or None where it is not a problem worth showing.

    Refused: a program that fails on any drawn input, that (almost) never changes its output, or that
    returns its only argument. An input that the program maps to itself is passed over.
    """
    program = derivation.program
    function = compile_function(program)
    pairs: dict[str, tuple[tuple, object]] = {}
    for _ in range(3 * count + 6):
        arguments = tuple(random_value(rng, kind) for kind in derivation.arguments)
        try:
            output = call(function, arguments)
        except _ERRORS:
            return None
        if len(arguments) > 1 or output != arguments[0]:
            pairs.setdefault(repr(arguments), (arguments, output))
        if len(pairs) == count:
            break
    outputs = {repr(output) for _, output in pairs.values()}
    if len(pairs) < count or len(outputs) < (3 if count >= CODE_F_INPUTS else 2):
        return None
    return Sample(
        derivation,
        program,
        tuple(arguments for arguments, _ in pairs.values()),
        tuple(output for _, output in pairs.values()),
    )


def example_count(kind: str) -> int:
    """Number of examples that a sample of this problem type holds."""
    return CODE_F_INPUTS if kind == "code_f" else 4


def sample(rng: np.random.Generator, kind: str, level: int | None = None) -> Sample:
    """A program of the level (drawn from `LEVEL_WEIGHTS` where None) with its examples."""
    drawn = level or choose_weighted(rng, LEVEL_WEIGHTS[kind])
    while True:
        found = examples(rng, derive(rng, drawn), example_count(kind))
        if found is not None:
            return found


def sample_relative(rng: np.random.Generator, kind: str, parent: Sample) -> Sample:
    """A relative of the parent's program (see `base_model.derivation.relative`) with its own examples."""
    while True:
        found = examples(rng, relative(rng, parent.derivation), example_count(kind))
        if found is not None:
            return found


def sample_problem(
    rng: np.random.Generator, kind: str, level: int | None = None
) -> tuple[str, list[tuple], list[object]]:
    """A fresh problem, for held-out sets and experiments.

    Args:
        rng: the only source of randomness.
        kind: ``code_o``, ``code_i`` (one input) or ``code_f`` (six inputs).
        level: structural difficulty from 1; drawn as the corpus draws it where None.

    Returns:
        The program, its inputs (argument tuples) and its outputs.
    """
    found = sample(rng, kind, level)
    count = CODE_F_INPUTS if kind == "code_f" else 1
    return found.program, list(found.inputs[:count]), list(found.outputs[:count])
