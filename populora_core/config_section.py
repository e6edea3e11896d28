"""What every section of a configuration is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen group of settings that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)
