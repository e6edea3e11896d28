"""What a compute backend is: it runs shards, each one named function of `work` on some members' payload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from populora_core.support.aliases import Progress

Payload = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shard:
    """The unit of distribution inside a stage.

    Attributes:
        function: of `work.FUNCTIONS`.
        number: its place among the shards of one call.
        key: sha256 over the stage's key, function, number and payload: the name that it is committed under.
        store: url of the object store that takes its artifact.
    """

    function: str
    number: int
    key: str
    payload: Payload
    store: str


@dataclass(frozen=True, slots=True)
class Committed:
    """What a shard committed: hashes and counts, while the data is in the store.

    Attributes:
        result: sha256 of what the function returned (see `results`).
        files: place among the payload's outputs, such as `output` or `folders/MEMBER/FILE` -> sha256.
        items: how many items its progress counted.
        host, pid, seconds: who did it, and how long that took.
        attempts: how often it was started, losses and late workers included.
    """

    key: str
    result: str
    files: Mapping[str, str]
    items: int
    host: str
    pid: int
    seconds: float
    attempts: int = 1


class Compute(Protocol):
    """Runs shards. What they commit comes in their order.

    Attributes:
        shards: into how many the plan cuts a stage; a backend may work on fewer at a time.
    """

    shards: int

    def run(self, shards: Sequence[Shard], progress: Progress | None = None) -> list[Committed]:
        """Have every shard performed (see `shards.perform`).

        Raises:
            WorkerLost: a worker ended before it answered, and the shard could not be done elsewhere.
            PopuloraError: whatever the function raised, as it raised it.
        """
        ...

    @property
    def pids(self) -> Sequence[int]:
        """Process ids, on this machine, of the workers that there are now."""
        ...

    def close(self) -> None:
        """End every process that this backend started."""
        ...
