"""Averages in a run: who moves where, what stays as it was, and that a kill changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from broken_off import Died
from conftest import ask, contents, small_config
from tiny_base import random_rows

from populora_core.compute.breeding import Average, Breed, Child
from populora_core.compute.work import Worker
from populora_core.lifecycle.loop import fork, rerun, train
from populora_core.model.adapter_files import read_state, write_moments, write_peft
from populora_core.model.layout import AdapterLayout
from populora_core.model.state import MemberState
from populora_core.population.variation.lowrank import Factors
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.decisive import decisive
from populora_core.stages.table import STAGES, as_configured

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]

AVERAGING = {"average_every": 2, "average_share": 0.5}


def averaging(finished: Path, to: Path) -> Run:
    """A fork of the finished run, which averages at the end of its second generation."""
    return fork(Run.open(finished), 1, to, small_config(evolve=AVERAGING))


def train_to(run: Run, generation: int) -> None:
    with Session(run) as session:
        train(session, generation)


@pytest.fixture(scope="module")
def averaged(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run after that generation; read it, never write to it."""
    run = averaging(finished, tmp_path_factory.mktemp("averaged") / "run")
    train_to(run, 2)
    return run.directory


def states(directory: Path, role: str) -> dict[str, MemberState]:
    """The members of a role as the second generation's update left them."""
    rows = ask(
        directory,
        f"SELECT DISTINCT member_id FROM updates WHERE generation = 2 AND role = '{role}' ORDER BY 1",
    )
    run = Run.open(directory)
    return {row["member_id"]: read_state(run.adapter_folder(row["member_id"], 2)) for row in rows}


def layout(directory: Path) -> AdapterLayout:
    with Session(Run.open(directory)) as session:
        return Worker(session.model_spec, 1).layout


def updates(of: AdapterLayout, state: MemberState) -> dict[str, torch.Tensor]:
    views: dict[str, Factors] = dict(of.views(state.weights))
    return {name: b.double() @ a.double() for name, (a, b) in views.items()}


@pytest.mark.parametrize("role", ["teacher", "student"])
def test_members_end_an_update_on_the_way_to_the_mean_and_keep_names_and_steps(
    finished: Path, averaged: Path, role: str
) -> None:
    of = layout(finished)
    before, after = states(finished, role), states(averaged, role)
    assert list(before) == list(after) and len(before) > 1
    plain = {member: updates(of, state) for member, state in before.items()}
    for member, state in after.items():
        assert state.steps == before[member].steps
        for name, moved in updates(of, state).items():
            mean = torch.stack([own[name] for own in plain.values()]).mean(dim=0)
            u, s, vt = torch.linalg.svd(0.5 * plain[member][name] + 0.5 * mean)
            rank = of.rank
            assert torch.allclose(moved, u[:, :rank] * s[:rank] @ vt[:rank], atol=1e-6)


def test_what_was_played_rated_and_learnt_is_that_of_a_run_that_does_not_average(
    finished: Path, averaged: Path
) -> None:
    ours, theirs = contents(averaged), contents(finished)
    differ = {name for name in ours if name < "0003" and ours[name] != theirs.get(name)}
    assert {name.rpartition("/")[0] for name in differ} <= {"0002/update", "0002/evolve"}
    assert {"0002/update/adapters.parquet", "0002/update/averages.parquet"} <= differ
    assert "0002/update/updates.parquet" not in differ


def test_the_catalogue_says_who_moved_how_far(averaged: Path) -> None:
    rows = ask(averaged, "SELECT * FROM averages ORDER BY member_id")
    members = ask(averaged, "SELECT member_id, role FROM ratings WHERE generation = 2 ORDER BY 1")
    assert [(row["member_id"], row["role"]) for row in rows] == [
        (member["member_id"], member["role"]) for member in members
    ]
    for row in rows:
        role = [member["member_id"] for member in members if member["role"] == row["role"]]
        assert (row["generation"], row["share"], row["member_ids"]) == (2, 0.5, role)
        assert row["distance"] > 0.0 and 0.0 < row["energy_kept"] <= 1.0


def test_killed_between_learning_and_averaging_a_run_ends_equal_to_an_undisturbed_one(
    finished: Path, averaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kills at any moment: test_kill.py."""
    run = averaging(finished, tmp_path / "run")

    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Average, "run", die)
        with pytest.raises(Died):
            train_to(run, 2)
    train_to(Run.open(run.directory), 2)
    assert contents(run.directory) == contents(averaged)


@pytest.mark.thorough
def test_a_run_forked_and_one_made_again_average_alike(averaged: Path, tmp_path: Path) -> None:
    source = Run.open(averaged)
    run = fork(source, 1, tmp_path / "run", source.config)
    train_to(run, 2)
    with Session(Run.open(run.directory)) as session:
        again = rerun(session, 2, "update")
    assert again[0].reused
    assert contents(run.directory) == contents(averaged)


@pytest.mark.thorough
def test_of_share_one_all_members_of_a_role_are_one(finished: Path, tmp_path: Path) -> None:
    run = fork(Run.open(finished), 1, tmp_path / "run", small_config(evolve={"average_every": 2}))
    train_to(run, 2)
    for role in ("teacher", "student"):
        first, *others = states(run.directory, role).values()
        for other in others:
            assert torch.equal(first.weights, other.weights)
            assert torch.equal(first.exp_avg_sq, other.exp_avg_sq)


@pytest.fixture
def worker(averaged: Path) -> Worker:
    with Session(Run.open(averaged)) as session:
        return Worker(session.model_spec, 1)


def one_of_steps_and_one_of_none(worker: Worker, steps: int, to: Path) -> dict[str, Path]:
    """The folders of two members of equal weights: `a` made some steps, `b` none."""
    row = random_rows(worker.layout, "a")["a"]
    states = {"a": MemberState(row, 0.5 * row, row.square(), steps), "b": MemberState.newborn(row)}
    for member, state in states.items():
        write_peft(to / member, worker.layout, state.weights, "base")
        write_moments(to / member, worker.layout, state)
    return {member: to / member for member in states}


def test_who_never_made_a_step_takes_the_mean_moments_along(worker: Worker, tmp_path: Path) -> None:
    """Moments are kept from the first step on, so a member that has some has made one."""
    before = one_of_steps_and_one_of_none(worker, 5, tmp_path)
    Average(before, [list(before)], 1.0, seed=0).run(worker, tmp_path / "out", lambda *_: None)
    after = {member: read_state(tmp_path / "out" / member) for member in before}
    assert [state.steps for state in after.values()] == [5, 2]
    assert torch.equal(after["a"].exp_avg_sq, after["b"].exp_avg_sq)
    assert after["b"].exp_avg_sq.any()


def test_a_child_of_parents_of_one_step_and_of_none_keeps_their_moments(
    worker: Worker, tmp_path: Path
) -> None:
    parents = one_of_steps_and_one_of_none(worker, 1, tmp_path)
    child = Child("c", list(parents), "svd_mix", {}, seed=0)
    Breed(parents, [child]).run(worker, tmp_path / "out", lambda *_: None)
    heir = read_state(tmp_path / "out" / "c")
    assert heir.steps == 1 and heir.exp_avg_sq.any()


def test_a_configuration_that_does_not_average_keeps_the_keys_that_it_had() -> None:
    config = small_config()
    assert as_configured(STAGES["update"], config) == STAGES["update"]
    kept = decisive(config, STAGES["evolve"].config)
    assert not [key for key in kept["evolve"] if key.startswith("average")]


def test_averages_decide_the_update_and_not_evolution() -> None:
    found = []
    for share in (0.5, 1.0):
        config = small_config(evolve={"average_every": 2, "average_share": share})
        update, evolve = (as_configured(STAGES[name], config) for name in ("update", "evolve"))
        found.append((decisive(config, update.config), decisive(config, evolve.config)))
    (one, evolving), (other, evolving_too) = found
    assert one != other and evolving == evolving_too
