"""Suites: which benchmarks, whose rows, how often and how warm they are answered. One TOML file each."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from populora_core.config.measuring import suite_file
from populora_core.support.errors import BenchmarkError, DamagedText
from populora_core.support.received import PlainName, read_toml, wrong_keys
from populora_core.support.registry import is_place
from populora_core.support.shipped import shipped
from populora_core.support.trust import remember

BUNDLED = "bundled:"
FILE = "file:"
YARDSTICK, VALIDITY = "yardstick", "validity"
"""The suite made of a run's own problems; that of the prompts that teachers were given last."""
OWN = (YARDSTICK, VALIDITY)
"""Suites that a run is for itself."""
DATA = Path(__file__).resolve().parent / "data"


class Part(StrEnum):
    """A half of a suite; no problem is in both."""

    TEST = "test"
    """The half that is reported."""
    VALIDATION = "validation"
    """The half that selection by external fitness sees."""


class Entry(BaseModel):
    """One benchmark of a suite.

    `dataset` is `bundled:FILE`, `file:PATH` for a file of yours, or a data set of the hub that `populora suite fetch`
    gets at `revision`. PATH starts in the working folder, and where nothing lies there beside the suite's file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    benchmark: str
    dataset: str
    config: str | None = None
    split: str = "test"
    revision: str | None = None
    sha256: str | None = Field(None, description="of the file with the rows, checked on every load")
    rows: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]] | None = Field(
        None,
        description="[first, end]: only these of the problems, counted in the order of the sha256 of their ids",
        exclude_if=lambda rows: rows is None,
    )
    attempts: Annotated[int, Field(ge=1, le=999)] = 1
    k: tuple[Annotated[int, Field(ge=1)], ...] = (1,)
    temperature: Annotated[float, Field(ge=0.0)] = Field(0.0, description="0: greedy")
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    max_tokens: Annotated[int, Field(ge=1)] = 1024
    _beside: Path | None = None  # the folder of the suite's file; in no key, since a suite is its content

    def model_post_init(self, context: Path | None) -> None:
        self._beside = context if self.dataset.startswith(FILE) else None

    @model_validator(mode="after")
    def _enough_attempts(self) -> Entry:
        if not self.k or max(self.k) > self.attempts:
            raise ValueError("k must name at least one number, none above attempts")
        if self.temperature == 0.0 and self.attempts > 1:
            raise ValueError("greedy answers are all alike: attempts must be 1 where temperature is 0")
        return self

    @property
    def bundled(self) -> Path | None:
        """The file that comes with the project; None for a data set that has to be fetched."""
        return DATA / self.dataset.removeprefix(BUNDLED) if self.dataset.startswith(BUNDLED) else None

    @property
    def here(self) -> Path | None:
        """The file that is there without being fetched: a bundled one, or one of the user's."""
        if not self.dataset.startswith(FILE):
            return self.bundled
        named = Path(os.path.expanduser(self.dataset.removeprefix(FILE)))
        if self._beside is None or os.path.exists(named):
            return named
        return self._beside / named


class Suite(BaseModel):
    """The content of a suite file: the benchmarks that `populora evaluate` measures.

    Attributes:
        validation: the share of each benchmark's problems, within each stratum, that only selection by external
            fitness sees; the rest, the test half, is what is reported.
        sample: at most so many problems of each benchmark's half, evenly over its strata; None for all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    suite: PlainName  # it names a folder of the run
    seed: Annotated[int, Field(ge=0)] = 0
    validation: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    sample: Annotated[int, Field(ge=1)] | None = Field(None, exclude_if=lambda sample: sample is None)
    benchmarks: Annotated[tuple[Entry, ...], Field(min_length=1)]

    def sampled(self, problems: int) -> Suite:
        """A fixed sample of the suite, under a name of its own."""
        return self.model_copy(update={"suite": f"{self.suite}-{problems}", "sample": problems})

    @model_validator(mode="after")
    def _entries_differ(self) -> Suite:
        asked = [(entry.benchmark, entry.temperature) for entry in self.benchmarks]
        if len(set(asked)) != len(asked):
            raise ValueError("a benchmark may come twice only at different temperatures")
        return self


def named_suite(path: str | Path) -> Suite:
    """Read a suite file that the user names, so that it may name benchmarks by their place; see `load_suite`."""
    suite = load_suite(path)
    remember(entry.benchmark for entry in suite.benchmarks if is_place(entry.benchmark))
    return suite


def load_suite(path: str | Path) -> Suite:
    """Read a suite file, or the one of `bundled:NAME`.

    Raises:
        BenchmarkError: no such file, bad TOML, an unknown key or a wrong value.
    """
    path = suite_file(str(path))
    try:
        suite = Suite.model_validate(read_toml(path), context=path.absolute().parent)
    except FileNotFoundError:
        ours = shipped("configs", "suites").glob("*.toml")
        names = sorted(f"{BUNDLED}{file.stem}" for file in ours)
        raise BenchmarkError(
            f"there is no suite file {path}", fix=f"give a file, or {', '.join(names)}"
        ) from None
    except (DamagedText, ValidationError) as error:
        raise BenchmarkError(
            f"{path} is no usable suite",
            got="; ".join(wrong_keys(error)) if isinstance(error, ValidationError) else str(error),
            fix="fix these keys; configs/suites/tiny.toml is an example",
        ) from error
    if suite.suite in OWN:
        raise BenchmarkError(
            f"{path}: {suite.suite} is what a run's own suite is called", fix="choose another name"
        )
    return suite
