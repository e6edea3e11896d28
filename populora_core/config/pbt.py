"""The section of a run's configuration that says which hyperparameters members inherit."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from populora_core.config.fields import Positive, Section
from populora_core.support.registry import Share

NUMBERS = ("learning_rate", "temperature", "replay")
HYPERPARAMETERS = (*NUMBERS, "teacher_reward")
Prior = Annotated[tuple[Positive, ...], Field(max_length=2)]


class PbtSection(Section):
    """Hyperparameters that members inherit, as in population based training (all stages but match, verify, evaluate).

    A founder draws each from its prior. A child takes the fitter parent's and changes it. One without a prior is no
    member's own: its section says it for all.
    """

    learning_rate: Prior = Field((), description="lowest and highest; drawn evenly in the logarithm; []: off")
    temperature: Prior = Field((), description="the same, of what a member samples as it plays; []: off")
    replay: Prior = Field(
        (), description="the same, of a student's weight when repeated problems are dealt; []: off"
    )
    teacher_reward: tuple[str, ...] = Field(
        (), description="rewards of which each teacher draws one, as in grade.teacher_reward; []: off"
    )
    factor: Annotated[float, Field(ge=1.0)] = Field(
        1.2, description="a child's numbers are its parent's times this, or divided by it, within the prior"
    )
    redraw: Share = Field(0.25, description="probability that a child draws one from the prior instead")

    @property
    def on(self) -> bool:
        """True if members have hyperparameters of their own."""
        return bool(self.own)

    @property
    def own(self) -> frozenset[str]:
        """Names of those that are the members' own."""
        return frozenset(name for name in HYPERPARAMETERS if getattr(self, name))

    @model_validator(mode="after")
    def _ranges(self) -> PbtSection:
        for name in NUMBERS:
            prior: tuple[float, ...] = getattr(self, name)
            if prior and (len(prior) != 2 or prior[0] > prior[1]):
                raise ValueError(f"{name} is a lowest and a highest value, or empty; it is {list(prior)}")
        return self
