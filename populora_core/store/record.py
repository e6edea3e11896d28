"""run.json and the redraws as they are read: strict, wherever they come from."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, StringConstraints, TypeAdapter
from typing_extensions import TypedDict

from populora_core.support.entries import RECORD as RECORD
from populora_core.support.received import MemberId, Sha256, Time, Whole

FORMAT = 3

StageOf = Annotated[str, StringConstraints(pattern=r"^[0-9]{4,9}/[a-z]+$")]
"""A stage of a generation, "0004/solve"."""


class ForkOrigin(TypedDict):
    """The origin of a fork, which inherits the generations up to this one."""

    run: str
    generation: Whole


class RunRecord(TypedDict):
    """The content of run.json. Later revisions may add keys."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    format: int
    created_at: Time
    began_in: NotRequired[str]
    config: dict[str, dict[str, Any]]
    base_digest: str
    start_from: NotRequired[dict[MemberId, Sha256]]
    versions: dict[str, str]
    code_revision: str
    forked_from: NotRequired[ForkOrigin | None]


Redraws = dict[StageOf, Whole]


class Rewrite(TypedDict):
    """One document of a store's history."""

    redraws: Redraws


RECORDED = TypeAdapter(RunRecord)
REDRAWN = TypeAdapter(Redraws)
REWRITTEN = TypeAdapter(Rewrite)
