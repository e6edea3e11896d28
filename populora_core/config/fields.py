"""Building blocks of a configuration's sections: their base class, and kinds of values."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Decay = Annotated[float, Field(ge=0.0, lt=1.0)]  # AdamW divides by 1 - beta ** steps
Positive = Annotated[float, Field(gt=0.0)]
Integer = Annotated[int, Field(strict=True)]  # a truth value is none
Count = Annotated[Integer, Field(ge=1, le=1_000_000)]  # beyond it a number is a slip
Natural = Annotated[Integer, Field(ge=0, le=1_000_000)]
END_OF_SEEDS = 1 << 63
DrawSeed = Annotated[Integer, Field(ge=0, lt=END_OF_SEEDS)]
ProgramSeconds = Annotated[
    float, Field(ge=0.01, le=1_000_000.0)
]  # of programs: shorter is no time, longer no timer's
Setting = bool | int | float | str


class Section(BaseModel):
    """A frozen group of settings that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
