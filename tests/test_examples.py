"""The examples: the method in one file plays, learns and breeds, and what others add works by its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ask, small_config, start

from examples import run_from_python
from examples.add_sampler import Plain
from examples.self_play import SelfPlay, main
from populora_core import (
    GradeSection,
    Limits,
    ProposalVerdict,
    Response,
    make_child,
    open_sandbox,
    teacher_reward,
)
from populora_core.benchmarks.benchmark import benchmark
from populora_core.compute.members import Update
from populora_core.compute.shards import Compute
from populora_core.compute.work import Committed, Shard, Work
from populora_core.runs.session import Session
from populora_core.stages.engine import run_generation
from populora_core.store.adapters import WEIGHTS
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.support import trust
from populora_core.support.aliases import Progress
from populora_core.support.errors import AdapterNotServed

PLACES = (
    "add_operator:shrink",
    "add_reward:hill",
    "add_reward_depth:deep",
    "add_benchmark:Reversed",
    "add_sampler:Plain",
)
SMALL = ("propose.per_type=1", "solve.attempts=1", "population.teachers=1", "population.students=1")
pytestmark = [pytest.mark.loop, pytest.mark.sandbox, pytest.mark.usefixtures("one_thread")]


@pytest.fixture(autouse=True)
def named_by_the_user() -> None:
    trust.remember(f"examples.{place}" for place in PLACES)


def test_two_generations_play_learn_and_breed() -> None:
    with open_sandbox("auto", Limits(), workers=2) as sandbox:
        play = SelfPlay(sandbox, members=2, proposals=2, attempts=2, seed=1)
        founders = dict(play.states)
        first = play.generation(1)
        learned = {name for name, state in play.states.items() if state.steps == 1}
        assert learned, "no one learned from what was played"
        assert all(not play.states[name].weights.equal(founders[name].weights) for name in learned)
        assert any(member.mu != 25.0 for member in play.members.values()), "no match moved a rating"
        second = play.generation(2)
    assert first.startswith("generation 1: ") and second.startswith("generation 2: ")
    born = [member for member in play.members.values() if member.born_generation == 2]
    assert sorted(member.role for member in born) == ["student", "teacher"]
    assert play.members.keys() == play.states.keys()


def test_the_command_prints_a_line_for_each_generation(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--generations", "1", "--members", "1", "--proposals", "1", "--attempts", "1"])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("generation 1: ")


def test_a_run_is_played_from_python_and_goes_on(tmp_path: Path) -> None:
    run = run_from_python.play(tmp_path / "run", *SMALL, generations=1)
    run_from_python.play(tmp_path / "run", generations=2)
    assert ask(run.directory, "SELECT max(generation) AS newest FROM figures_generation") == [{"newest": 2}]


def test_another_sampler_is_proven_at_every_load_and_plays(tmp_path: Path) -> None:
    engine = "sampler.engine=examples.add_sampler:Plain"
    run = run_from_python.play(tmp_path / "run", *SMALL, engine, generations=1)
    record = read_manifest(stage_dir(run.directory, 1, "propose")).extra["sampler"]
    assert record["engine"] == "plain"
    assert record["probes"] and all(probe["largest_error"] < 1e-4 for probe in record["probes"])


@pytest.mark.thorough
def test_a_sampler_that_serves_the_bare_base_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ("propose.per_type=8", "solve.attempts=4", "population.teachers=1", "population.students=1")
    inline = ("compute.backend=inline", "sampler.engine=examples.add_sampler:Plain")
    bare = Plain.logits
    monkeypatch.setattr(
        Plain, "logits", lambda self, asked, ids: bare(self, replace(asked, member_id=None), ids)
    )
    with pytest.raises(AdapterNotServed):
        run_from_python.play(tmp_path / "run", *small, *inline, generations=2)


class Noted:
    """A `Compute` that notes what work it is given."""

    def __init__(self, inner: Compute) -> None:
        self.inner, self.works = inner, list[Work]()

    def run(self, shards: Sequence[Shard], progress: Progress | None = None) -> list[Committed]:
        self.works += [shard.work for shard in shards]
        return self.inner.run(shards, progress)

    @property
    def pids(self) -> Sequence[int]:
        return self.inner.pids

    def close(self) -> None:
        self.inner.close()


@pytest.mark.thorough
def test_a_member_alone_on_its_shard_is_held_to_those_of_other_shards(tmp_path: Path) -> None:
    config = small_config(
        propose={"per_type": 3, "types": ("code_o",)},
        solve={"attempts": 2},
        population={"teachers": 1, "students": 1},
        base={"dtype": "bfloat16"},
        sampler={"engine": "examples.add_sampler:Plain"},
        compute={"backend": "inline", "shards": 2},
    )
    run = start(tmp_path / "run", config)
    with Session(run) as session:
        noted = session.__dict__["compute"] = Noted(session.compute)
        run_generation(session, 0)
        run_generation(session, 1)
    works = [work for work in noted.works if isinstance(work, Update)]
    members = [name for work in works for name in work.members]
    assert len(works) == len(members) == 2
    for (own, other), work in zip((members, members[::-1]), works, strict=True):
        assert work.others == {own: {other: run.adapter_folder(other, 0) / WEIGHTS}}


def test_the_operator_breeds_what_it_promises() -> None:
    parent = {"layer": (torch.eye(2, 3), torch.ones(4, 2))}
    child, record = make_child(
        "examples.add_operator:shrink", [parent], np.random.default_rng(0), 1.0, {"keep": 0.5}
    )
    assert child["layer"][1].equal(parent["layer"][1] / 2)
    assert record["keep"] == 0.5 and record["distances"] == [pytest.approx(0.5)]


def test_the_reward_pays_most_in_the_middle() -> None:
    rules = GradeSection(teacher_reward="examples.add_reward:hill")
    paid = [teacher_reward(ProposalVerdict.VALID, p, rules) for p in (0.0, 0.25, 0.5, 1.0)]
    assert paid == [0.0, 0.75, 1.0, 0.0]


def test_the_reward_that_looks_at_the_problem_pays_for_depth_in_a_run(tmp_path: Path) -> None:
    reward = "grade.teacher_reward=examples.add_reward_depth:deep"
    small = ("propose.per_type=4", "solve.attempts=4", "population.teachers=1", "population.students=1")
    run = run_from_python.play(tmp_path / "run", *small, reward, generations=1)
    rows = ask(
        run.directory,
        "SELECT p.reward, q.solve_rate, q.ast_depth FROM proposals p JOIN problems q USING (proposal_id)",
    )
    assert any(row["reward"] for row in rows), "nothing was paid for"
    for row in rows:
        p, depth = row["solve_rate"], row["ast_depth"]
        assert row["reward"] == pytest.approx(4 * p * (1 - p) * min(1.0, depth / 12))


def test_the_benchmark_is_found_by_its_place_and_grades() -> None:
    found = benchmark("examples.add_benchmark:Reversed")
    items = found.load([{"word": "stone"}, {"word": "pit"}])
    with open_sandbox("auto", Limits(), workers=1) as sandbox:
        scores = found.grade(items, [Response("enots"), Response("pit")], "compact", sandbox)
    assert [score.correct for score in scores] == [True, False]
    assert [item.stratum for item in items] == ["5 letters", "3 letters"]
