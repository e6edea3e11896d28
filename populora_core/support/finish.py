"""The reasons a completion ends: samplers record one, grading reads it."""

from __future__ import annotations

from enum import StrEnum


class FinishReason(StrEnum):
    """The reason a completion ended."""

    STOP = "stop"
    """The model sampled an end token, or completed a stop text of the request."""
    LENGTH = "length"
    """max_tokens were sampled."""
