"""A study of one pair and one single agent, two generations each, on a few held-out problems."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from populora_core.support.shipped import REPOSITORY

SMALL = """
name = "small"
runs = "{folder}/runs"
results = "{folder}/results"
population = "pair"
solo = "solo"
suite = "{folder}/small.toml"
evaluate_every = 1
processes = 1
[settings]
adapters = {{rank = 2, alpha = 4.0}}
propose = {{per_type = 3, types = ["code_o"], max_tokens = 48}}
solve = {{attempts = 2, max_tokens = 24}}
compute = {{backend = "inline", shards = 1, threads = 1}}
sandbox.workers = 1
[[arms]]
name = "solo"
config = "{configs}/solo.toml"
seeds = [3]
generations = 2
[[arms]]
name = "pair"
config = "{configs}/ablations/1+1.toml"
seeds = [3]
generations = 2
"""


def nobody(line: str) -> None:
    """Who hears nothing of a study."""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The study's file, in a folder that takes all it makes."""
    suite = (
        (REPOSITORY / "configs/suites/tiny.toml").read_text().replace("validation = 0.5", "validation = 0.97")
    )
    (tmp_path / "small.toml").write_text(suite)
    study = tmp_path / "study.toml"
    study.write_text(SMALL.format(folder=tmp_path, configs=REPOSITORY / "configs"))
    return study


def changed(base: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    """The settings, by section and key, that another configuration has otherwise."""
    return {
        f"{section}.{key}"
        for section, settings in other.items()
        for key, value in settings.items()
        if base[section].get(key) != value
    }
