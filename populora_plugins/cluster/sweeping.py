"""`populora store sweep`: what killed writers left in a shared store, and nothing that any document names."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from populora_core.sharing.objects import OBJECTS, SHARDS, ObjectStore, Stored
from populora_core.support.errors import ConfigError
from populora_plugins.cluster.shared import STREAMS, read_record
from populora_plugins.cluster.trials import PROBES

DAY = 86400.0
DELETIONS = 500  # after which what is young now is listed again
_SHA256 = re.compile(rb"\b[0-9a-f]{64}\b")


@dataclass(frozen=True, slots=True)
class Swept:
    """Objects and files that a sweep removes.

    Attributes:
        stored: objects that no document names, and documents of probes and shards that were cut short.
        unfinished: files that were never written to their end.
    """

    stored: tuple[Stored, ...]
    unfinished: tuple[str, ...]

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.stored)


def sweep(objects: ObjectStore, days: float, dry_run: bool = False) -> Swept:
    """Remove what nothing refers to and is older than `days`; unfinished files count as given up after one day.

    A commit uploads first and names afterwards, so `days` must be longer than any commit may take. Every 64 hex digits
    in any document count as a name, whoever wrote it: what one run superseded stays as well. A shard can be done
    again, so one whose stage was not committed for so long goes.

    Raises:
        ConfigError: `days` is below 1.
        RunDirectoryError: the store holds no run; a wrong url must not be swept.
    """
    if days < 1:
        raise ConfigError(
            "a sweep could take what a machine has just uploaded and not yet named",
            expected="at least 1 day",
            got=f"{days}",
            fix="give a number of days longer than any stage's commit",
        )
    read_record(objects)
    before = time.time() - days * DAY
    everything = list(objects.listing())
    old = [item for item in everything if item.modified < before]
    passing = [item for item in old if item.key.startswith((f"{PROBES}/", f"{SHARDS}/"))]
    lasting = {item.key for item in everything if not _is_object(item)} - {item.key for item in passing}
    named = _named(objects, sorted(lasting))
    loose = passing + [item for item in old if _is_object(item) and item.key.partition("/")[2] not in named]
    if loose and not dry_run:
        loose = list(_removed(objects, loose, before))
    return Swept(tuple(loose), tuple(objects.clear_unfinished(time.time() - DAY, dry_run)))


def _removed(objects: ObjectStore, loose: Sequence[Stored], before: float) -> Iterator[Stored]:
    """Remove objects, and yield those that were: whoever put one of them again since then will name it."""
    for start in range(0, len(loose), DELETIONS):
        young = {item.key for item in objects.listing(OBJECTS) if item.modified >= before}
        for item in loose[start : start + DELETIONS]:
            if item.key not in young:
                objects.delete(item.key)
                yield item


def _is_object(item: Stored) -> bool:
    return item.key.startswith(f"{OBJECTS}/")


def _named(objects: ObjectStore, keys: list[str]) -> set[str]:
    with ThreadPoolExecutor(STREAMS) as pool:
        documents = pool.map(objects.get, keys)
        return {name.decode() for text in documents for name in _SHA256.findall(text or b"")}
