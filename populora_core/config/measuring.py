"""The section of a run's configuration that says when the population is measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from populora_core.config.fields import Count, Natural, Section
from populora_core.config.sections import BUNDLED
from populora_core.support.shipped import shipped


class EvaluateSection(Section):
    """Evaluation on problems that the population did not set (evaluate)."""

    every: Natural = Field(0, description="generations between evaluations; 0: never")
    suite: str = Field("bundled:tiny", description="a suite file, or bundled:NAME of configs/suites/")
    window: Count = Field(10, description="generations whose problems make a teacher's external fitness")
    guard: Literal["off", "mark", "stop"] = Field(
        "off",
        description="where a role is below the base on the validation half at two evaluations in a row: mark says so, "
        "stop also ends the run",
    )
    report_every: Natural = Field(
        0,
        description="generations between scores of solvers and base, from 0 on; 0: never",
    )
    report_problems: Count = Field(200, description="problems of each benchmark that these scores take")
    yardstick: Natural = Field(
        0,
        description="of the run's first and newest problems, how many solvers and base answer "
        "every report_every generations; 0: none",
    )
    validity: Natural = Field(
        0,
        description="of the prompts that teachers were given last, how many they and the base write a problem for "
        "every report_every generations; 0: none",
    )

    @model_validator(mode="after")
    def _taken_at_all(self) -> EvaluateSection:
        if self.guard != "off" and not self.every:
            raise ValueError("guard looks at every evaluation, so every must be 1 or more")
        for name in ("yardstick", "validity"):
            if getattr(self, name) and not self.report_every:
                raise ValueError(
                    f"{name} is taken every report_every generations, so report_every must be 1 or more"
                )
        return self

    def file(self) -> Path:
        """The suite file."""
        return suite_file(self.suite)


def suite_file(named: str) -> Path:
    """The file of a suite that a person names; `bundled:tiny` is configs/suites/tiny.toml of this project."""
    if named.startswith(BUNDLED):
        return shipped("configs", "suites", f"{named.removeprefix(BUNDLED)}.toml")
    return Path(os.path.expanduser(named))  # of an unknown user it stays as it is
