"""Files and folders that a configuration names, as a run records them: found from any folder that it is resumed in."""

from __future__ import annotations

import os
from pathlib import Path

from populora_core.config.load import Config, build_config
from populora_core.config.sections import BUNDLED
from populora_core.support.hub import HUB
from populora_core.support.user_cache import GGUF


def absolute(config: Config) -> Config:
    """The configuration with the absolute path of each file and folder that it names and that is here.

    Keys stay as they are: each of these paths counts there by what lies at it, or not at all.
    """
    from populora_core.benchmarks.anchors import DATASET  # numpy, which a look at a run does without

    told = config.as_json()
    told["base"]["path"] = _absolute(config.base.path)
    told["evaluate"]["suite"] = _absolute(config.evaluate.suite)
    start = told["adapters"]["start_from"]
    told["adapters"]["start_from"] = {role: list(map(_absolute, start[role])) for role in start}
    if config.anchors.share and config.anchors.source == DATASET and "path" in config.anchors.parameters:
        told["anchors"]["parameters"]["path"] = _absolute(str(config.anchors.parameters["path"]))
    if config.update.corpus_share:
        told["update"]["corpus"] = _absolute(config.update.corpus)
    return build_config(told, "the run's configuration")


def _absolute(name: str) -> str:
    """The absolute path of what lies at a name from here; the name itself where nothing does, or it is no path."""
    if not name or name.startswith((BUNDLED, HUB, GGUF, "~")) or not os.path.exists(name):
        return name
    return str(Path(name).absolute())
