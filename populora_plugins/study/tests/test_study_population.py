"""The third study: its arms differ in one thing each, and each of its claims is decided both ways by planted values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from small_study import changed

from populora_core.runs.run import begin
from populora_core.support.errors import ConfigError
from populora_core.support.shipped import REPOSITORY
from populora_plugins.study.budget import Basis, spent
from populora_plugins.study.conduct import conduct, plan
from populora_plugins.study.config import load_study
from populora_plugins.study.play import Assignment, play
from populora_plugins.study.population import PAYS
from populora_plugins.study.report import render
from populora_plugins.study.summary import (
    COPIES,
    FRESH,
    INHERITS,
    Origin,
    Summary,
    Value,
    read_summary,
    write_summary,
)
from populora_plugins.study.verdicts import as_json, read_results, write_verdicts

STUDY = REPOSITORY / "configs/study-population.toml"
PAGE = REPOSITORY / "bench/results/study-3/study.md"
ARMS = ("pop-4+4", "islands", "averaged", "teachers-4+1", "pop-1+1")
CLAIMS = [claim.key for claim in PAYS.claims]
# Of each arm: its members' score, how far their average lies above, and what inheritance is worth to copies.
PAYING = {
    "pop-4+4": (0.6, 0.1, 0.05),
    "islands": (0.6, 0.03, 0.0),
    "averaged": (0.7, 0.0, 0.0),
    "teachers-4+1": (0.6, 0.0, 0.0),
    "pop-1+1": (0.5, 0.0, 0.0),
}
ALIKE = dict.fromkeys(ARMS, (0.6, 0.0, 0.0))
BACKWARDS = {
    "pop-4+4": (0.6, -0.1, -0.05),
    "islands": (0.6, 0.0, 0.0),
    "averaged": (0.4, 0.0, 0.0),
    "teachers-4+1": (0.4, 0.0, 0.0),
    "pop-1+1": (0.7, 0.0, 0.0),
}


def made(arm: str, seed: int, members: float, above: float, inherited: float) -> Summary:
    """A run of twenty generations, scored at the end, with noise over seeds; an arm's token costs what it does."""
    noise = np.random.default_rng([seed, ARMS.index(arm)]).normal(0.0, 0.002, 3)
    alone = arm in ("teachers-4+1", "pop-1+1")
    values = []
    for at in range(1, 21):
        spent = {"updates": 1.0, "trained_tokens": 1e3, "total_tokens": 8e3}
        values += [Value(at, name, "all", value) for name, value in spent.items()]
    for slot in range(1 if alone else 4):
        score = members + float(noise[0])
        values += [Value(at, "held_out.levels_2_5", f"student-{slot:02d}", score) for at in (10, 20)]
    if not alone:
        mixed = members + above + float(noise[1])
        values += [Value(at, "average.levels_2_5", "all", mixed) for at in (10, 20)]
    values.append(Value(10, "held_out.levels_2_5", "base", 0.3))
    if arm == "pop-4+4":
        copies = {INHERITS: members + inherited + float(noise[2]), FRESH: members}
        values += [Value(12, COPIES, rule, score) for rule, score in copies.items()]
    config = {"run": {"generations": 20}}
    return Summary(Origin(arm, seed, config, {"match": 1}, "base", "suite", 5, ("abc",), 60.0), tuple(values))


def verdicts(folder: Path, arms: Mapping[str, tuple[float, float, float]]) -> dict[str, str]:
    study = load_study(STUDY)[0].model_copy(update={"results": folder})
    for run in (made(arm, seed, *told) for arm, told in arms.items() for seed in range(10)):
        write_summary(folder / f"{run.origin.name}.parquet", run.origin, run.values)
    write_verdicts(study)
    return {claim["key"]: claim["verdict"] for claim in as_json(read_results(folder))["claims"]}


def test_every_claim_is_supported_where_it_is_so(tmp_path: Path) -> None:
    assert verdicts(tmp_path, PAYING) == dict.fromkeys(CLAIMS, "supported")
    page = render(read_results(tmp_path))
    assert f"Of {len(CLAIMS)} claims, {len(CLAIMS)} are supported" in page
    for budget in ("tokens of all adapters", "seconds by the clock"):
        assert f"Taken home, by {budget}" in page
    for taken in ("average of pop-4+4", "average of averaged", "student of pop-1+1"):
        assert taken in page


def test_a_run_spends_its_seconds_evenly_without_those_of_evaluations() -> None:
    run = made("pop-1+1", 0, *PAYING["pop-1+1"])
    timed = replace(run, origin=replace(run.origin, seconds=70.0, evaluation_seconds=10.0))
    assert spent(timed, Basis.SECONDS) == pytest.approx({at: 3.0 * at for at in range(1, 21)})


def test_where_arms_are_alike_that_is_what_is_found(tmp_path: Path) -> None:
    assert verdicts(tmp_path, ALIKE) == dict.fromkeys(CLAIMS, "no difference")


def test_the_opposite_refutes(tmp_path: Path) -> None:
    assert verdicts(tmp_path, BACKWARDS) == dict.fromkeys(CLAIMS, "refuted")


def test_the_arms_differ_from_the_population_in_one_thing_each() -> None:
    study, configs = load_study(STUDY)
    population = configs["pop-4+4"].as_json()
    sizes = {"population.teachers", "population.students"}
    assert {arm: changed(population, configs[arm].as_json()) for arm in ARMS[1:]} == {
        "islands": {"population.islands"},
        "averaged": {"evolve.average_every"},
        "teachers-4+1": {"population.students", "propose.per_type"},
        "pop-1+1": sizes | {"run.generations"},
    }
    asked = {arm: configs[arm].population.teachers * configs[arm].propose.per_type for arm in study.compared}
    assert asked["teachers-4+1"] == asked["pop-1+1"], "as many problems a generation, so as many tokens"
    assert {len(study.arm(name).seeds) for name in ARMS} == {10}


def test_the_page_names_the_margin_of_every_claim() -> None:
    text = PAGE.read_text()
    rows = [line.split("|") for line in text[text.index("| claim |") :].splitlines()[2:8]]
    assert [row[1].strip() for row in rows] == CLAIMS
    assert [float(row[3]) for row in rows] == [claim.margin for claim in PAYS.claims]


def test_the_claims_of_the_third_study_need_all_their_arms(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY.read_text().replace('islands = "islands"\n', ""))
    with pytest.raises(ConfigError, match="there is no arm ''"):
        load_study(path)


@pytest.mark.parametrize(
    ("old", "new", "got"),
    [
        (
            'name = "pop-4+4"',
            'name = "pop-4+4"\nsettings.population.students = 1',
            "students: 1; levels: 2, 3",
        ),
        ("bundled:frontier", "{folder}/few.toml", "students: 4; levels: "),
    ],
)
def test_copies_that_could_not_be_scored_are_refused_before_a_run(
    tmp_path: Path, old: str, new: str, got: str
) -> None:
    suite = (REPOSITORY / "configs/suites/frontier.toml").read_text()
    (tmp_path / "few.toml").write_text(f"{suite}\nrows = [0, 2]\n")
    text = STUDY.read_text().replace('"frontier.toml"', f'"{STUDY.parent}/frontier.toml"')
    assert old in text
    path = tmp_path / "study.toml"
    text = text.replace("bench/results/study-3", f"{tmp_path}/results")  # ours are a record
    path.write_text(text.replace(old, new.format(folder=tmp_path)))
    with pytest.raises(ConfigError, match=rf"copies_at(.*\n)*Got: {got}"):
        plan(path)


def test_claims_whose_arms_are_there_are_decided_while_others_wait(tmp_path: Path) -> None:
    there = {arm: told for arm, told in PAYING.items() if arm != "islands"}
    found = verdicts(tmp_path, there)
    assert (found["inherits"], found["meeting"]) == ("supported", "cannot tell")
    assert "a verdict needs 5 of each arm that it compares." in render(read_results(tmp_path))


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_a_run_is_scored_with_its_average_and_with_copies_of_its_students(tmp_path: Path) -> None:
    suite = (
        (REPOSITORY / "configs/suites/frontier.toml")
        .read_text()
        .replace("validation = 0.5", "validation = 0.97")
    )
    (tmp_path / "small.toml").write_text(suite)
    text = STUDY.read_text().replace('"frontier.toml"', f'"{STUDY.parent}/frontier.toml"')
    for old, new in {
        "runs/study-population": f"{tmp_path}/runs",
        "bench/results/study-3": f"{tmp_path}/results",
        "bundled:frontier": f"{tmp_path}/small.toml",
        "evaluate_every = 15": "evaluate_every = 3",
        "copies_at = 20": "copies_at = 3",
        "per_type = 64": "per_type = 4",
        "seeds = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]": "seeds = [0]\ngenerations = 3",
        "generations = 3\ngenerations = 240 ": "generations = 3 ",
    }.items():
        assert old in text, old
        text = text.replace(old, new)
    study = tmp_path / "study.toml"
    study.write_text(text)

    def played(run: Assignment, say: object, stop: Event) -> None:
        if run.name.startswith("pop-4+4"):  # killed processes left a fork of another state, and half of one
            inherits, fresh = (run.directory.with_name(f"{run.name}-{rule}") for rule in (INHERITS, FRESH))
            begin(inherits, run.config)
            (fresh / "generations").mkdir(parents=True)
        if run.name.startswith(("pop-4+4", "pop-1+1")):
            play(run, lambda line: None)

    conduct(plan(study), lambda line: None, played)
    many, one = (
        read_summary(tmp_path / f"results/{arm}-seed-0000.parquet") for arm in ("pop-4+4", "pop-1+1")
    )
    assert set(many.series("average.levels_2_5", "all")) == {3}
    assert {part: list(many.series(COPIES, part)) for part in (INHERITS, FRESH)} == {
        INHERITS: [5],
        FRESH: [5],
    }
    assert not one.series("average.levels_2_5", "all"), "one student has no average but itself"
    assert not any((tmp_path / "runs").iterdir()), "forks and runs are gone"
