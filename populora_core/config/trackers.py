"""The section `[trackers]` of a configuration. No stage reads it, so it is in no stage's key."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from populora_core.config.sections import Section

TrackerName = Literal["tensorboard", "wandb"]


class WandbSection(Section):
    """How Weights & Biases is fed."""

    project: str = "populora"
    entity: str = Field("", description="the user or team; empty for the one that is logged in")
    mode: Literal["offline", "online"] = Field(
        "offline", description="offline: nothing leaves this machine until `wandb sync` sends it"
    )


class TrackersSection(Section):
    """Which trackers are told the figures of every generation (no stage)."""

    use: tuple[TrackerName, ...] = ()
    wandb: WandbSection = WandbSection()
