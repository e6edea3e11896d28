"""Estimate of a run's disk space, from shapes alone: `--dry-run` prints it; it must be free before each generation."""

from __future__ import annotations

from dataclasses import dataclass

from populora_core.planning.memory import MASTER, ModelShape

MOMENTS = 2  # vectors of Adam beside the weights
TOKEN = 16  # bytes of a sampled token in its table at most: id, log-probability, text
REDONE = 1  # generations before the oldest that can be redone: it starts from their states
TOLD_APART = 2  # the same for adapters: what they came from tells the sampler's proof apart
BEGUN = 1  # the generation that is being made


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes that one generation writes.

    Attributes:
        adapters: float32 weights of all members.
        states: Adam's moments of all members.
        completions: tokens of proposals and attempts, at most.
    """

    adapters: int
    states: int
    completions: int

    @property
    def generation(self) -> int:
        return self.adapters + self.states + self.completions

    def whole(self, generations: int, keep_states: int | None, keep_adapters: int | None) -> int:
        """Bytes of a run at its end, founders included.

        Args:
            keep_states, keep_adapters: of how many generations they stay; None for all.
        """
        everything = generations + 1
        states = everything if keep_states is None else min(everything, keep_states + REDONE + BEGUN)
        adapters = (
            everything if keep_adapters is None else min(everything, keep_adapters + TOLD_APART + BEGUN)
        )
        return states * self.states + adapters * self.adapters + generations * self.completions


def disk_of(shape: ModelShape, members: int, tokens: int) -> Disk:
    """Bytes that a generation writes.

    Args:
        tokens: that are sampled in it at most.
    """
    adapters = members * shape.adapter * MASTER
    return Disk(adapters, MOMENTS * adapters, TOKEN * tokens)
