"""The store that a run's machines share, as the loop sees it; the plug-in that does it comes in by an entry point."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from populora_core.store.artifacts import StageWriter
from populora_core.store.manifest import Manifest
from populora_core.support.errors import ConfigError
from populora_core.support.registry import Registry


class SharedEntry(Protocol):
    """The shared record of a stage, the same for every run directory of the run."""

    @property
    def manifest(self) -> Manifest:
        """The stage's manifest, which names its files."""
        ...


class SharedStore(Protocol):
    """The shared store of one run, as one of its run directories sees it."""

    def find(self, generation: int, stage: str, key: str) -> SharedEntry | None:
        """The stage under this key, or None if no machine has made it."""
        ...

    def bring(self, entry: Any, writer: StageWriter) -> None:
        """Fill the writer with a stage's files; raise DamagedObject where the store lost one."""
        ...

    def settle(self, manifest: Manifest, writer: StageWriter) -> Manifest:
        """Share a stage that is about to be committed; return it, or what another machine put there first."""
        ...

    def redraw(self, redraws: Mapping[str, int]) -> None:
        """Say to all machines that a stage is drawn with another seed from now on."""
        ...

    def push(self, redraws: Mapping[str, int]) -> None:
        """Share what was committed without this store: the inherited generations of a fork, and their redraws."""
        ...


class Sharing(Protocol):
    """Stores of whole runs, by url."""

    def claim(self, url: str, record: Mapping[str, Any]) -> None:
        """Make the store that of a new run; raise RunDirectoryError if it holds one."""
        ...

    def open_shared(
        self, url: str, run_dir: Path, record: Mapping[str, Any], redraws: Mapping[str, int]
    ) -> SharedStore:
        """The shared store of an existing run; raise RunDirectoryError if it holds another one."""
        ...

    def require_unpruned(self, url: str, run_dir: Path, generation: int) -> None:
        """Raise ArtifactError unless every file up to a generation is there for a fork to share."""
        ...


_SHARING = Registry(
    {},
    group="populora.sharing",
    what="way to share runs",
    setting="store.url",
    error=ConfigError,
    protocol=Sharing,
)


def sharing() -> Sharing:
    """The plug-in that shares runs; raise ConfigError where it is not installed."""
    found: Sharing = _SHARING.find("store")
    return found
