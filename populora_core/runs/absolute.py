"""Files and folders that a configuration names, as a run records them: found from any folder that it is resumed in.

A run that is moved together with them finds them too: what is gone, and lay below the folder that the run began in, is
looked for below the folder that it is resumed in.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from populora_core.config.load import Config, build_config
from populora_core.config.sections import BUNDLED
from populora_core.support.errors import ConfigError
from populora_core.support.hub import HUB
from populora_core.support.user_cache import GGUF


def absolute(config: Config) -> Config:
    """The configuration with the absolute path of each file and folder that it names and that is here.

    Keys stay as they are: each of these paths counts there by what lies at it, or not at all.
    """
    return _renamed(config, _absolute)


def moved(config: Config, began_in: str) -> Config:
    """A recorded configuration with the places here of what is gone from below the folder that its run began in."""
    return _renamed(config, partial(_from_here, Path(began_in)))


def _renamed(config: Config, place: Callable[[str], str]) -> Config:
    """The configuration with another place for each file and folder that it names."""
    told = config.as_json()
    told["base"]["path"] = place(config.base.path)
    told["evaluate"]["suite"] = place(config.evaluate.suite)
    start = told["adapters"]["start_from"]
    told["adapters"]["start_from"] = {role: list(map(place, start[role])) for role in start}
    if _plays_dataset(config):
        told["anchors"]["parameters"]["path"] = place(str(config.anchors.parameters["path"]))
    if config.update.corpus_share:
        told["update"]["corpus"] = place(config.update.corpus)
    return config if told == config.as_json() else build_config(told, "the run's configuration")


def _plays_dataset(config: Config) -> bool:
    if not config.anchors.share or "path" not in config.anchors.parameters:
        return False
    from populora_core.benchmarks.anchors import DATASET  # numpy, which a look at a run does without

    return config.anchors.source == DATASET


def _absolute(name: str) -> str:
    """The absolute path of what lies at a name from here; the name itself where nothing does, or it is no path.

    Raises:
        ConfigError: the path is not UTF-8, so that no record can hold it.
    """
    if not name or name.startswith((BUNDLED, HUB, GGUF, "~")) or not os.path.exists(name):
        return name
    place = str(Path(name).absolute())
    if place != in_utf8(place):
        raise ConfigError(
            f"the configuration names {in_utf8(place)}, which is not UTF-8: a run cannot record it",
            expected="a path in UTF-8",
            fix="rename the folder, or put what it holds elsewhere",
        )
    return place


def in_utf8(path: str) -> str:
    """The path with a question mark for each byte that is not UTF-8."""
    return path.encode(errors="replace").decode()


def _from_here(began_in: Path, name: str) -> str:
    if not name or os.path.exists(name) or not Path(name).is_relative_to(began_in):
        return name
    here = str(Path(name).relative_to(began_in).absolute())
    return here if os.path.exists(here) else name
