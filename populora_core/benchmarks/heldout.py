"""Problems that no run may train on: those of the bundled suites, by the normal form of their programs."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from populora_core.benchmarks.files import read_rows
from populora_core.benchmarks.items import load_items
from populora_core.benchmarks.suite import DATA, Suite, load_suite
from populora_core.config.load import Config
from populora_core.problems.normal import program_key
from populora_core.sandbox.literals import canonical_texts
from populora_core.support.errors import BenchmarkError

CRUXEVAL = ("cruxeval_o", "cruxeval_i")
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


def kept_out(config: Config) -> Suite | None:
    """The run's own suite, where its problems are of the types that are played and do not come with the project.

    What it asks, the run does not play; the bundled suites are kept out of every run. None also where its file is not
    here (see `require_kept_out`).
    """
    suite = load_suite(config.evaluate.file()) if _is_here(config) else None
    own = [entry for entry in suite.benchmarks if entry.benchmark in CRUXEVAL] if suite else []
    return suite.model_copy(update={"benchmarks": tuple(own)}) if suite and own else None


def require_kept_out(config: Config) -> None:
    """Raise BenchmarkError where a run cannot know what it must not play: its suite's file or its rows are gone."""
    if config.evaluate.suite and not _is_here(config):
        raise BenchmarkError(
            "the suite is not here, so the run could play problems that it asks",
            expected=f"the file of evaluate.suite, {config.evaluate.file()}",
            got="no such file",
            fix="put it back, or name another, such as bundled:tiny; a run that has begun takes one in a fork: "
            "populora fork --help",
        )
    kept = kept_out(config)
    for entry in kept.benchmarks if kept else ():
        load_items(entry)


def _is_here(config: Config) -> bool:
    return os.path.isfile(config.evaluate.file())  # False too for what can be no path
