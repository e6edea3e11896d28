"""The settings that decide results, listed once: the engine's keys and a study's comparison ask here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from populora_core.benchmarks.anchors import ANCHOR_FILE, DATASET
from populora_core.benchmarks.benchmark import benchmark
from populora_core.benchmarks.corpus import CORPUS_FILE
from populora_core.benchmarks.heldout import kept_out
from populora_core.benchmarks.items import suite_digest
from populora_core.benchmarks.suite import Suite, load_suite
from populora_core.config.load import Config
from populora_core.config.pbt import HYPERPARAMETERS
from populora_core.learner.packing import LONG_PACK
from populora_core.population.replacement import last_birth
from populora_core.stages.table import AVERAGE

HALF_ON_CPU = 3
"""Version of what sampler and learner make of a base in bfloat16 on a CPU; in float32 every bit has stayed."""
HALF_RULE = "base.half_on_cpu"
FIRST_KEYED = 2
"""Version of a benchmark from which on keys name it, where the benchmark does not say another."""
SHARD_PLAN = ("shards", "threads")
AVERAGING = ("average_every", "average_share")
AVERAGE_RULE = 2
"""Version of averaging: who made no step has its first with the others' moments."""
PACKS_RULE = 2
"""Version of packs that are longer than a micro-batch may be: they are cut to it."""
REPORTED = {
    "report_every",
    "report_problems",
    "yardstick",
    "validity",
}  # of [evaluate]: what people read, and nothing else
ADDED: Mapping[str, Mapping[str, object]] = {
    "propose": {"refills": 0},
    "grade": {"cut_answers": "refuse"},
    "update": {"cut_completions": "learn"},
    "population": {"islands": 1},
}
"""Settings with the value at which everything is as it was before there were such: it is in no key."""


def deciding_keys(section: str, settings: Mapping[str, Any]) -> Collection[str]:
    """The keys of a section, with these settings, from which results follow."""
    match section:
        case "store" | "trackers":
            return ()
        case "compute":  # where shards run does not
            return SHARD_PLAN
        case "pbt" if not any(settings[name] for name in HYPERPARAMETERS):
            return ()
        case "sampler":
            return ("engine",)
        case "anchors" if not settings["share"]:
            return ()
        case "evaluate" if not settings["every"]:  # nothing else of it is ever used
            return ("every",)
        case "evaluate":
            return settings.keys() - REPORTED
        case "evolve" if not settings.get("average_every"):
            return settings.keys() - {"average_share"}
        case _:
            return settings.keys()


def rules(config: Config) -> dict[str, int]:
    """`section.name` in keys -> version, of the rules beside the settings that results follow from."""
    half = (config.base.device, config.base.dtype) == ("cpu", "bfloat16")
    longest = max(config.update.pack_tokens, LONG_PACK if half else 0)
    followed = {
        HALF_RULE: HALF_ON_CPU if half else None,
        "update.packs": PACKS_RULE if config.update.token_budget < longest else None,
        f"{AVERAGE}.rule": AVERAGE_RULE if config.evolve.average_every else None,
    }
    return {name: version for name, version in followed.items() if version is not None}


def arithmetic(config: Config) -> dict[str, dict[str, int]]:
    """The rule of half precision, as a section in the keys of stages that compute with the base."""
    half = rules(config).get(HALF_RULE)
    return {} if half is None else {"base": {HALF_RULE.removeprefix("base."): half}}


def decisive(config: Config, sections: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The settings of these sections that decide results: section -> key -> value.

    A section of which nothing does is left out. A suite, a corpus, and a data set of anchors, count by their content,
    not by their place. Adapters to start from are left out: their content is an input of the stage `found`.

    Raises:
        BenchmarkError: the suite of the loop cannot be read.
        ProblemError: the data set of anchors, or the corpus, cannot be read.
    """
    everything = config.as_json()
    everything[AVERAGE] = {key: everything["evolve"].pop(key) for key in AVERAGING}
    chosen = {
        section: {key: everything[section][key] for key in keys}
        for section in sections
        if (keys := deciding_keys(section, everything[section]))
    }
    for section, added in ADDED.items():
        for key in [key for key, value in added.items() if chosen.get(section, {}).get(key) == value]:
            del chosen[section][key]
    if "anchors" in chosen and config.anchors.source == DATASET:
        given = dict(config.anchors.parameters)
        sha256 = ANCHOR_FILE.sha256(str(given.pop("path", None)))
        chosen["anchors"]["parameters"] = f"{sha256} {given}" if given else sha256
    for rule, version in rules(config).items():
        section, _, name = rule.partition(".")
        if section in chosen:
            chosen[section][name] = version
    if config.update.corpus_share and "update" in chosen:
        chosen["update"]["corpus"] = CORPUS_FILE.sha256(config.update.corpus)
    if "suite" in chosen.get("evaluate", {}):
        suite = load_suite(config.evaluate.file())
        guarded = config.evaluate.guard != "off"  # the base answers too; what is done about it changes no row
        chosen["evaluate"] |= {
            "suite": suite_digest(suite),
            "guard": guarded,
            **_raised(suite),
        }
    if "verify" in chosen and (kept := kept_out(config)) is not None:
        chosen["verify"]["held_out"] = suite_digest(kept)
    if "evolve" in chosen:  # the share counts by where it ends, which the length of the run decides
        del chosen["evolve"]["last_share"]
        chosen["evolve"]["last_birth"] = last_birth(config.evolve, config.run.generations)
    chosen.get("adapters", {}).pop("start_from", None)
    return chosen


def _raised(suite: Suite) -> dict[str, dict[str, int]]:
    """The versions of the suite's benchmarks, where they are high enough for keys to name them."""
    known = {entry.benchmark: benchmark(entry.benchmark) for entry in suite.benchmarks}
    raised = {
        name: each.version
        for name, each in known.items()
        if each.version >= getattr(each, "first_keyed", FIRST_KEYED)
    }
    return {"versions": raised} if raised else {}
