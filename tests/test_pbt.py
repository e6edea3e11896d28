"""Hyperparameters that members inherit: founders draw them, children explore from their fitter parent's."""

from __future__ import annotations

import shutil
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ask, contents, small_config, start

from populora_core.config.load import apply_overrides
from populora_core.config.pbt import PbtSection
from populora_core.lifecycle.loop import fork, rerun, train
from populora_core.population.member import Role
from populora_core.population.pbt import Hyperparameters, explored, founded, own_or
from populora_core.report.write import write_report
from populora_core.runs.preflight import places
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.engine import run_generation
from populora_core.stages.following import newest_following
from populora_core.stages.solve import in_turns
from populora_core.stages.table import STAGES, as_configured
from populora_core.support.errors import ConfigError, RunDirectoryError

RULES = PbtSection(
    learning_rate=(1e-4, 1e-2),
    temperature=(0.5, 2.0),
    replay=(0.25, 4.0),
    teacher_reward=("zone", "one_minus_p"),
)
PLAYED: dict[str, dict[str, Any]] = {
    "run": {"generations": 2},
    "population": {"teachers": 3, "students": 3},
    "anchors": {"share": 0.5, "source": "replay", "parameters": {"largest": 1.0}},
    "update": {"warmup_steps": 0, "decay_steps": 0},
    "evolve": {
        "every": 1,
        "minimum_age": 1,
        "last_share": 0.0,
        "crossover_probability": 0.0,
        "mutations": ["copy_parent"],
    },
    "pbt": {**RULES.model_dump(), "redraw": 0.0, "factor": 1.5},
}
OWN = "SELECT * FROM hyperparameters WHERE generation = {} ORDER BY member_id"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose members inherit all that can be, and breed in both generations."""
    run = start(tmp_path_factory.mktemp("pbt") / "run", small_config(**PLAYED))
    with Session(run) as session:
        train(session, run.config.run.generations)
    return run.directory


def of(run: Path, generation: int) -> dict[str, Hyperparameters]:
    return {row["member_id"]: Hyperparameters.of(row) for row in ask(run, OWN.format(generation))}


def test_founders_draw_evenly_in_the_logarithm_from_the_prior() -> None:
    rng = np.random.default_rng(0)
    rates = [founded(RULES, Role.STUDENT, rng).learning_rate or 0.0 for _ in range(2000)]
    assert min(rates) >= 1e-4 and max(rates) <= 1e-2
    assert np.mean(np.array(rates) < 1e-3) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("role", "own"),
    [
        (Role.TEACHER, {"learning_rate", "temperature", "teacher_reward"}),
        (Role.STUDENT, {"learning_rate", "temperature", "replay"}),
        (Role.SOLO, {"learning_rate", "temperature", "replay", "teacher_reward"}),
    ],
)
def test_a_member_has_what_matters_in_its_roles(role: Role, own: set[str]) -> None:
    drawn = founded(RULES, role, np.random.default_rng(0))
    names = ("learning_rate", "temperature", "replay", "teacher_reward")
    assert {name for name in names if getattr(drawn, name) is not None} == own


@pytest.mark.parametrize("seed", range(20))
def test_a_child_is_a_factor_from_its_parent_within_the_prior(seed: int) -> None:
    rng, rules = np.random.default_rng(seed), RULES.model_copy(update={"redraw": 0.0})
    parent = founded(rules, Role.SOLO, rng)
    child = explored(parent, rules, Role.SOLO, rng)
    assert child.teacher_reward == parent.teacher_reward
    for name in ("learning_rate", "temperature", "replay"):
        low, high = getattr(rules, name)
        value, before = getattr(child, name), getattr(parent, name)
        assert value in {min(before * 1.2, high), max(before * 1.2**-1.0, low)}


def test_a_child_that_draws_again_may_have_any_value_of_the_prior() -> None:
    rng, rules = np.random.default_rng(0), RULES.model_copy(update={"redraw": 1.0})
    parent = Hyperparameters(1e-4, 1.0, 1.0, "zone")
    children = [explored(parent, rules, Role.SOLO, rng) for _ in range(200)]
    assert {child.teacher_reward for child in children} == {"zone", "one_minus_p"}
    assert max(child.learning_rate or 0.0 for child in children) > 5e-3


def test_turns_go_round_where_weights_are_equal_and_by_their_share_where_not() -> None:
    names = ["a", "b", "c"]
    assert list(islice(in_turns(dict.fromkeys(names, 1.0), {}), 10)) == list(islice(cycle(names), 10))
    dealt = list(islice(in_turns({"a": 0.5, "b": 1.0, "c": 2.5}, {}), 80))
    assert [dealt.count(name) for name in names] == [10, 20, 50]


def test_of_few_turns_a_light_weight_has_its_share_in_the_mean() -> None:
    rng, weights = np.random.default_rng(0), {"a": 4.0, "b": 1.0}
    dealt = [list(islice(in_turns(weights, {"a": rng.random(), "b": rng.random()}), 2)) for _ in range(4000)]
    assert sum(turns.count("b") for turns in dealt) / 8000 == pytest.approx(0.2, abs=0.05)


@pytest.mark.parametrize(
    ("sections", "named"),
    [
        ({"pbt": {"learning_rate": [1e-3]}}, "lowest and a highest"),
        ({"pbt": {"temperature": [2.0, 1.0]}}, "lowest and a highest"),
        ({"pbt": {"replay": [0.5, 2.0]}}, "anchors.share"),
        ({"pbt": {"temperature": [0.5, 2.0]}, "match": {"hall_of_fame": 0.5}}, "hall_of_fame"),
        ({"pbt": {"teacher_reward": ["zone", "azr"]}, "match": {"hall_of_fame": 0.5}}, "hall_of_fame"),
        (
            {"pbt": {"learning_rate": [1e-4, 1e-3]}, "update": {"teacher_learning_rate": 1e-3}},
            "teacher_learning",
        ),
        (
            {"pbt": {"teacher_reward": ["zone"]}, "grade": {"teacher_reward": ["zone", "azr", "zone"]}},
            "by its slot",
        ),
    ],
)
def test_what_cannot_be_inherited_is_refused(sections: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        small_config(**sections)


def test_without_a_prior_every_stage_is_what_it_was() -> None:
    assert all(as_configured(stage, small_config()) == stage for stage in STAGES.values())


@pytest.mark.loop
@pytest.mark.sandbox
def test_members_learn_at_their_own_rate_from_what_they_sampled_at_their_own_temperature(
    played: Path,
) -> None:
    updates = ask(played, "SELECT * FROM updates WHERE steps > 0 ORDER BY generation, member_id")
    assert {row["role"] for row in updates} == {"teacher", "student"}
    for row in updates:
        own = of(played, row["generation"] - 1)[row["member_id"]]
        assert row["learning_rate"] == pytest.approx(own.learning_rate)
        # At another temperature the learner's log-probabilities would be others than the sampler's.
        assert row["largest_mismatch"] < 1e-3


@pytest.mark.loop
@pytest.mark.sandbox
def test_teachers_are_paid_by_what_they_inherit(played: Path) -> None:
    paid = ask(
        played,
        """SELECT p.teacher_id, p.generation, p.reward, q.solve_rate AS p FROM proposals p JOIN problems q
           USING (problem_id) WHERE p.verdict = 'valid' AND q.solve_rate BETWEEN 0.01 AND 0.99""",
    )
    pays = {"zone": lambda p: min(p, 1 - p), "one_minus_p": lambda p: 1 - p}
    assert paid
    for row in paid:
        own = of(played, row["generation"] - 1)[row["teacher_id"]].teacher_reward
        assert own is not None and row["reward"] == pytest.approx(pays[own](row["p"]))


@pytest.mark.loop
@pytest.mark.sandbox
def test_repeated_problems_are_dealt_by_weight(played: Path) -> None:
    asked = ask(
        played,
        """SELECT student_id, count(DISTINCT problem_id) AS n FROM attempts JOIN problems USING (problem_id)
           WHERE problems.teacher_id = 'anchor' AND attempts.generation = 2 GROUP BY 1""",
    )
    weights, total = of(played, 1), sum(row["n"] for row in asked)
    assert total > 2
    students = {name: own.replay for name, own in weights.items() if own.replay is not None}
    for row in asked:
        share = students[row["student_id"]] / sum(students.values())
        assert row["n"] == pytest.approx(total * share, abs=1.5)


@pytest.mark.loop
@pytest.mark.sandbox
def test_survivors_keep_theirs_and_children_explore_from_their_parents(played: Path) -> None:
    born = ask(played, "SELECT generation, child_id, parent_ids FROM evolutions")
    assert {row["generation"] for row in born} == {1, 2}
    for generation in (1, 2):
        before, after = of(played, generation - 1), of(played, generation)
        for name in before.keys() & after.keys():
            assert after[name] == before[name]
        for row in (row for row in born if row["generation"] == generation):
            parent, child = before[row["parent_ids"][-1]], after[row["child_id"]]
            assert child.teacher_reward == parent.teacher_reward
            assert child.learning_rate is not None and parent.learning_rate is not None
            assert child.learning_rate == pytest.approx(parent.learning_rate * 1.5) or (
                child.learning_rate == pytest.approx(max(parent.learning_rate / 1.5, 1e-4))
            )


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_child_that_is_made_again_inherits_the_same(played: Path) -> None:
    before = contents(played)
    with Session(Run.open(played)) as session:
        rerun(session, 2, "evolve")
    assert contents(played) == before


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_fork_goes_on_with_them_and_cannot_change_which_there_are(played: Path, tmp_path: Path) -> None:
    run = Run.open(played)
    without = apply_overrides(run.config, ["pbt.temperature=[]"])
    with pytest.raises(RunDirectoryError, match=r"(?s)which hyperparameters members inherit.*Got: .*replay"):
        fork(run, 1, tmp_path / "without", without)
    other = apply_overrides(run.config, ["pbt.factor=2.0", 'pbt.teacher_reward=["azr"]'])
    forked = fork(run, 1, tmp_path / "other", other)
    assert of(forked.directory, 1) == of(played, 1)
    with Session(forked) as session:
        run_generation(session, 2)
    before, after = of(played, 1), of(forked.directory, 2)
    children = [after[name] for name in after.keys() - before.keys()]
    assert {child.teacher_reward for child in children} == {None, "azr"}


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_generation_follows_only_from_what_its_members_inherit_now(played: Path, tmp_path: Path) -> None:
    run = fork(Run.open(played), 2, tmp_path / "fork", Run.open(played).config)
    assert newest_following(run) == 2
    with Session(run) as session:
        rerun(session, 1, "evolve", seed=7, truncate=True)
    shutil.copytree(played / "generations" / "0002", run.directory / "generations" / "0002")
    assert newest_following(run) == 1


def test_a_place_among_inherited_rewards_is_asked_about() -> None:
    given = small_config(pbt={"teacher_reward": ["populora_core.problems.rewards:zone", "azr"]})
    assert "populora_core.problems.rewards:zone" in places(given)


def test_who_has_none_takes_what_all_share() -> None:
    own = {"a": Hyperparameters(temperature=0.5)}
    taken = [own_or(own, "a", "temperature", 1.0), own_or(own, "a", "learning_rate", 0.1)]
    assert [*taken, own_or(own, "b", "temperature", 1.0)] == [0.5, 0.1, 1.0]


@pytest.mark.loop
@pytest.mark.sandbox
def test_the_report_draws_where_selection_moves_them(played: Path, tmp_path: Path) -> None:
    write_report([played], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert all(
        title in page for title in ("Learning rates", "Sampling temperatures", "Weights when repeated")
    )
