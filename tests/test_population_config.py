"""The configuration of evolution: names, places and settings are refused before any work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from populora_core.config.load import Config, apply_overrides
from populora_core.population.fitness import FITNESS
from populora_core.population.matchmaking import SCHEMES
from populora_core.population.selection import SELECTIONS
from populora_core.population.variation import CROSSOVERS, MUTATIONS
from populora_core.runs.preflight import check_names, places
from populora_core.support.errors import ConfigError, PopulationError
from populora_core.support.registry import settings_of
from populora_core.support.trust import remember


def checked(overrides: list[str]) -> Config:
    config = apply_overrides(Config(), overrides)
    remember(places(config))
    check_names(config, "the test's configuration")
    return config


@pytest.mark.parametrize(
    "overrides",
    [
        ["evolve.selection=tournament", "evolve.parameters={tournament={size=2}}"],
        ["evolve.replacement=ageing", "evolve.selection=fitness_uniform"],
        ["evolve.replacement=none"],
        ["evolve.parameters={svd_perturbation={strength=0.2}, average={}}"],
        ["evolve.crossovers=['dare_factors']", "evolve.parameters={dare_factors={drop=0.5}}"],
        ["evolve.mutations=['populora_core.population.variation.mutation:copy_parent']"],
        ["match.scheme=pfsp_hard", "match.parameters={hardness=1}"],
    ],
)
def test_a_known_combination_is_accepted_and_survives_its_json(overrides: list[str]) -> None:
    config = checked(overrides)
    assert Config.model_validate(config.as_json()) == config


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["evolve.selection=roulette"], ["evolve.selection", "roulette", "tournament"]),
        (["evolve.fitness=elo"], ["evolve.fitness", "internal"]),
        (["evolve.replacement=worst"], ["evolve.replacement", "Did you mean worst_fraction?"]),
        (["evolve.selection=tournament", "evolve.parameters={tournament={sizes=2}}"], ["sizes", "size"]),
        (["evolve.selection=tournament", "evolve.parameters={tournament={size=0}}"], ["size", "equal to 1"]),
        (["evolve.selection=tournament", "evolve.parameters={tournament={size=2.5}}"], ["size", "integer"]),
        (["evolve.parameters={layer_gaussian={fraction=1.5}}"], ["fraction", "less than or equal to 1"]),
        (
            ["evolve.crossovers=['dare_triplets']", "evolve.parameters={dare_triplets={drop=1.0}}"],
            ["drop", "less than 1"],
        ),
        (["evolve.parameters={svd_perturbation={strength='much'}}"], ["strength", "number", "much"]),
        (["evolve.parameters={tournament={size=2}}"], ["tournament", "does not use"]),
        (["evolve.mutations=['no.such:operator']"], ["evolve.mutations", "No module named 'no'"]),
        (["update.betas=[0.9, 1.0]"], ["update.betas", "less than 1"]),
        (["match.parameters={hardness=1}"], ["match.scheme", "pfsp has no parameter 'hardness'"]),
        (["propose.types=['json:loads']"], ["propose.types", "json:loads"]),
    ],
)
def test_a_combination_that_cannot_run_is_refused_by_name(overrides: list[str], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(overrides)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("registry", "name"),
    [
        (registry, name)
        for registry in (SCHEMES, FITNESS, SELECTIONS, MUTATIONS, CROSSOVERS)
        for name in registry
    ],
)
def test_every_setting_of_ours_says_what_it_may_be(registry: Mapping[str, Any], name: str) -> None:
    function = registry.find(name)
    for key in settings_of(name, function, {}):
        with pytest.raises(PopulationError, match=rf"{key}"):
            settings_of(name, function, {key: -1.0})


@pytest.mark.parametrize("fitness", ["external", "blend"])
@pytest.mark.parametrize("every", [0, 4])
def test_a_fitness_that_nothing_measures_is_refused_before_any_work(fitness: str, every: int) -> None:
    selected = ["evolve.every=10", f"evolve.fitness={fitness}"]
    with pytest.raises(ConfigError, match="not every evolution follows an evaluation"):
        checked([*selected, f"evaluate.every={every}"])
    assert checked([*selected, "evaluate.every=5"]).evaluate.every == 5
