"""The run that audits read: the one of POPULORA_RUN, or one of the small finished runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from conftest import ask

from populora_core.config.load import Config
from populora_core.runs.run import Run

Rows = list[dict[str, Any]]
CHOSEN = os.environ.get("POPULORA_RUN")
MADE: list[Any] = [
    "finished",
    "finished_solo",
    pytest.param("finished_with_a_past", marks=pytest.mark.thorough),
    pytest.param("finished_and_bred", marks=pytest.mark.thorough),
    pytest.param("finished_fork", marks=pytest.mark.thorough),
]


@pytest.fixture(scope="module", params=[CHOSEN] if CHOSEN else MADE)
def audited(request: pytest.FixtureRequest) -> Path:
    """The run directory of POPULORA_RUN, or each of the small finished runs."""
    return Path(CHOSEN).resolve() if CHOSEN else request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def config(audited: Path) -> Config:
    return Run.open(audited).config


@pytest.fixture(scope="module")
def generations(audited: Path) -> range:
    """The generations that are graded; what a fork inherited was made by the settings of another run."""
    newest = ask(audited, "SELECT coalesce(max(generation), 0) AS n FROM ratings")[0]["n"]
    found = range(1 + max(0, Run.open(audited).settled), 1 + newest)
    if not found:
        pytest.skip("by these settings no generation is graded yet")
    return found


def within(generations: range) -> str:
    """The condition of SQL on a generation to be one of these."""
    return f"BETWEEN {generations.start} AND {generations[-1]}"


def evolves(config: Config) -> bool:
    """True if anybody is ever replaced: there is somebody left to breed."""
    return config.evolve.every > 0 and max(config.population.teachers, config.population.students) > 1
