"""Problems that no run may train on: those of the bundled suites, by the normal form of their programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from populora_core.benchmarks.files import read_rows
from populora_core.benchmarks.items import load_items
from populora_core.benchmarks.suite import DATA, Suite
from populora_core.problems.normal import program_key
from populora_core.sandbox.literals import canonical_texts

TINY, FRONTIER = DATA / "tiny.parquet", DATA / "frontier.parquet"


class HeldOut:
    """Programs, and inputs of programs that are too common to be held out themselves.

    Args:
        rows: of bundled suites (see `base_model.suite`).
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._whole, self._inputs = set[str](), defaultdict[str, set[str]](set)
        for row in rows:
            key = program_key(row["program"])
            if row["known_program"]:
                self._inputs[key].update(canonical_texts(row["inputs"]))
            else:
                self._whole.add(key)

    def holds(self, program: str, inputs: Sequence[str]) -> bool:
        """True if a problem of any type with this program and one of these inputs is held out.

        Raises:
            ProgramSyntaxError: the program does not parse.
        """
        key = program_key(program)
        known = self._inputs.get(key)
        return key in self._whole or (known is not None and not known.isdisjoint(canonical_texts(inputs)))


@cache
def held_out(suite: Suite | None = None) -> HeldOut:
    """The problems of the bundled suites, both halves, and those of a run's own suite, which are programs too."""
    own = [] if suite is None else [item for entry in suite.benchmarks for item in load_items(entry)]
    rows = [{"known_program": False, **item.fields} for item in own]
    return HeldOut([*read_rows(TINY), *read_rows(FRONTIER), *rows])
