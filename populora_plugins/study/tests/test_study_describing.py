"""The study that describes: its arms differ in one thing each, and none of its claims can be decided."""

from __future__ import annotations

import pytest
from small_study import changed

from populora_core.support.shipped import REPOSITORY
from populora_plugins.study.config import load_study
from populora_plugins.study.judgement import LEAST_SEEDS

STUDY = REPOSITORY / "configs/study-describing.toml"
SIZES = {"population.teachers", "population.students"}
ARMS = {
    "frozen": {"update.roles"},
    "frozen-refilled": {"update.roles", "propose.refills"},
    "solo-as-pair": SIZES | {"population.solo", "run.generations"},
    "pair-batch": SIZES | {"propose.per_type"},
    "peers": {"anchors.source"},
    "paid-by-slot": {"population.students", "propose.per_type", "grade.teacher_reward"},
    "pool": SIZES
    | {"update.roles", "propose.per_type", "propose.references", "propose.max_tokens"}
    | {"anchors.source", "anchors.share", "anchors.parameters"},
}


def test_the_arms_differ_from_the_population_in_one_thing_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)  # the pool lies there
    study, configs = load_study(STUDY)
    population = configs[study.population].as_json()
    found = {arm: changed(population, configs[arm].as_json()) for arm in ARMS}
    assert {arm: settings - {"evaluate.every"} for arm, settings in found.items()} == ARMS
    assert population == load_study(REPOSITORY / "configs/study-population.toml")[1]["pop-4+4"].as_json()
    asked = configs["pool"].anchors.beside(configs["pool"].propose.per_type)
    assert asked == configs["solo-as-pair"].propose.per_type


def test_it_describes_and_does_not_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    study, _ = load_study(STUDY)
    assert {arm.name for arm in study.arms} == {study.population, *ARMS}
    assert max(len(arm.seeds) for arm in study.arms) < LEAST_SEEDS
