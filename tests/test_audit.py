"""A run audited from the outside: everything that was stored follows from its artifacts alone.

`make audit RUN_DIR=runs/demo` audits a run of yours instead of the small ones made here. A fork is audited from its own
first generation on: what it inherited follows from settings that it may not have.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import audited_run
import numpy as np
import pytest
import torch
from audited_run import CHOSEN, evolves, within
from conftest import ask

from populora_core.benchmarks.anchors import may_repeat
from populora_core.benchmarks.heldout import held_out
from populora_core.compute.arena import Arena
from populora_core.compute.breeding import mean_steps
from populora_core.compute.work import Prompt
from populora_core.config.load import Config
from populora_core.model.adapter_files import read_state
from populora_core.population.islands import island_of_problem
from populora_core.problems.dialects import dialect
from populora_core.problems.model import Problem
from populora_core.runs.run import Run
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Job
from populora_core.sandbox.status import Status
from populora_core.store.adapters import MOMENTS
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.support import ids

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]
audited, config, generations = audited_run.audited, audited_run.config, audited_run.generations


def test_anchors_are_a_share_of_the_problems_and_no_teachers_proposal(
    audited: Path, config: Config, generations: range
) -> None:
    anchors = ask(
        audited,
        f"""SELECT p.generation, p.problem_type, p.problem_id, p.inputs, p.program, c.problem_id AS checked, c.verdict,
                  p.proposal_id IN (SELECT proposal_id FROM proposals) AS proposed
           FROM problems p LEFT JOIN tables.proposal_checks c USING (proposal_id)
           WHERE p.teacher_id = 'anchor' AND p.generation {within(generations)}""",
    )
    asked = config.anchors.beside(config.population.proposers * config.propose.per_type)
    admitted = Counter((row["generation"], row["problem_type"]) for row in anchors)
    assert all(count <= asked for count in admitted.values())
    drawn = ask(
        audited,
        f"""SELECT regexp_extract(proposal_id, 'g([0-9]+)-{ids.ANCHOR}-', 1) AS generation FROM tables.proposal_checks
            WHERE generation <> '' AND generation::INT {within(generations)}""",
    )
    assert bool(drawn) == bool(config.anchors.share)
    assert len(anchors) <= len(drawn)
    for row in anchors:
        assert (row["verdict"], row["checked"], row["proposed"]) == ("valid", row["problem_id"], False)
        assert not held_out().holds(row["program"], row["inputs"])


def test_every_program_run_again_gives_its_stored_outputs(audited: Path, generations: range) -> None:
    problems = ask(
        audited,
        f"SELECT problem_id, program, inputs, outputs FROM problems WHERE generation {within(generations)}",
    )
    assert problems or CHOSEN
    with open_sandbox("auto", Run.open(audited).limits, workers=2) as sandbox:
        results = sandbox.run([Job(p["problem_id"], p["program"], tuple(p["inputs"])) for p in problems])
    for problem, result in zip(problems, results, strict=True):
        assert (result.status, list(result.outputs)) == (Status.OK, list(problem["outputs"]))


def test_every_problem_has_g_attempts_of_the_matched_student_and_more_if_none_solved_it(
    audited: Path, config: Config, generations: range
) -> None:
    rows = ask(
        audited,
        f"""SELECT p.problem_id, count(*) AS n, count(DISTINCT a.sample_index) AS samples,
                  bool_or(a.verdict = 'correct' AND a.sample_index < {config.solve.attempts}) AS at_once,
                  bool_and(a.student_id = m.student_id AND p.teacher_id IN (m.teacher_id, 'anchor')) AS matched
           FROM problems p LEFT JOIN attempts a USING (problem_id) LEFT JOIN matches m USING (match_id)
           WHERE p.generation {within(generations)} GROUP BY 1""",
    )
    assert rows or CHOSEN
    for row in rows:
        asked = config.solve.attempts if row["at_once"] else config.solve.most_attempts
        assert row["n"] == row["samples"] == asked and row["matched"]


@pytest.mark.parametrize(
    ("view", "column", "target", "key"),
    [
        ("matches", "teacher_id", "members", "member_id"),
        ("matches", "student_id", "members", "member_id"),
        ("proposals", "match_id", "matches", "match_id"),
        ("proposals", "teacher_id", "members", "member_id"),
        ("proposals", "problem_id", "problems", "problem_id"),
        ("proposals", "unnest(reference_ids)", "problems", "problem_id"),
        ("problems WHERE teacher_id <> 'anchor'", "proposal_id", "proposals", "proposal_id"),
        ("problems WHERE teacher_id <> 'anchor'", "teacher_id", "members", "member_id"),
        ("attempts", "problem_id", "problems", "problem_id"),
        ("attempts", "match_id", "matches", "match_id"),
        ("attempts", "student_id", "members", "member_id"),
        ("updates", "member_id", "members", "member_id"),
        ("ratings", "member_id", "members", "member_id"),
        ("evolutions", "removed_id", "members", "member_id"),
        ("evolutions", "child_id", "members", "member_id"),
        ("evolutions", "unnest(parent_ids)", "members", "member_id"),
        ("adapters", "member_id", "members", "member_id"),
    ],
)
def test_no_id_dangles(audited: Path, config: Config, view: str, column: str, target: str, key: str) -> None:
    rows = ask(
        audited,
        f"""WITH named AS (SELECT {column} AS id FROM {view})
            SELECT count(*) AS n, count(id) FILTER (id NOT IN (SELECT {key} FROM {target})) AS dangling FROM named""",
    )
    assert rows[0]["n"] > 0 or CHOSEN or (view == "evolutions" and not evolves(config))
    assert rows[0]["dangling"] == 0


def test_every_completion_stands_beside_the_prompt_that_it_answers(
    audited: Path, config: Config, generations: range
) -> None:
    own = f"WHERE generation {within(generations)}"
    spoken = dialect(config.base.dialect, config.propose.inputs)
    problems = {p["problem_id"]: Problem.of(p) for p in ask(audited, "SELECT * FROM problems")}
    attempts = ask(audited, f"SELECT problem_id, student_id, prompt FROM attempts {own}")
    assert attempts or CHOSEN
    for attempt in attempts:
        assert attempt["prompt"] == spoken.solve_prompt(problems[attempt["problem_id"]])
    proposals = ask(
        audited, f"SELECT problem_type, problem_id, prompt, completion, reference_ids FROM proposals {own}"
    )
    for proposal in proposals:
        references = [problems[name] for name in proposal["reference_ids"]]
        assert proposal["prompt"] == spoken.propose_prompt(proposal["problem_type"], references)
        if proposal["problem_id"] is not None:
            draft = spoken.parse_proposal(proposal["problem_type"], proposal["completion"])
            assert draft.program == problems[proposal["problem_id"]].program


def test_completions_were_sampled_by_their_own_member(
    audited: Path, config: Config, generations: range
) -> None:
    """Founders differ in A alone and act alike; one that is moved must act by itself, on every shard.

    Where rounding may draw another token, the member is asked how probable the stored ones are.
    """
    played, base = max(2, generations.start), config.base
    if played not in generations:
        pytest.skip("founders alone have played")
    if base.device == "cuda" and not torch.cuda.is_available():
        pytest.skip("it was sampled on a GPU")
    stage = read_manifest(stage_dir(audited, played, "propose"))
    assert stage is not None
    teachers = ask(
        audited, f"SELECT DISTINCT teacher_id FROM proposals WHERE generation = {played} ORDER BY 1"
    )
    folders = {
        row["teacher_id"]: Run.open(audited).adapter_folder(row["teacher_id"], played - 1) for row in teachers
    }
    kept = {member: folder for member, folder in folders.items() if (folder / MOMENTS).exists()}
    if not kept:
        pytest.skip(f"generation {played - 1} was pruned: its adapters are gone")
    alike = (base.device, base.dtype, stage.extra["sampler"]["engine"]) == ("cpu", "float32", "torch")
    arena = Arena(
        base.folder(),
        base.dialect,
        sandbox=None,  # type: ignore[arg-type]
        rank=config.adapters.rank,
        alpha=config.adapters.alpha,
        dtype=base.dtype,  # type: ignore[arg-type]  # a run records what "auto" means
        device=base.device,
        bits=base.bits,
    )
    sampler = arena.worker.sampler
    assert isinstance(sampler, TorchSampler)
    for member, folder in kept.items():
        arena.load({member: read_state(folder)})
        rows = ask(
            audited,
            f"""SELECT p.proposal_id, p.prompt, t.completion_ids, t.logprobs,
                       coalesce(h.temperature, {config.propose.temperature}) AS temperature
                FROM proposals p JOIN tables.proposals t USING (proposal_id)
                LEFT JOIN hyperparameters h ON h.member_id = p.teacher_id AND h.generation = p.generation - 1
                WHERE p.generation = {played} AND p.teacher_id = '{member}' ORDER BY 1 LIMIT 4""",
        )
        for row in rows:
            seed = ids.draw_seed(stage.seed, row["proposal_id"], "tokens")
            asked = config.propose
            prompt = Prompt(member, row["prompt"], seed, row["temperature"], asked.top_p, asked.max_tokens)
            stored = tuple(row["completion_ids"])
            (again,) = sampler.generate(arena.worker.requests([prompt]), given=None if alike else [stored])
            assert again.token_ids == stored
            apart = np.abs(np.subtract(again.logprobs, row["logprobs"]))
            assert apart.max() < 1e-4 if alike else apart.mean() < config.sampler.refuse_mismatch


def test_references_come_from_earlier_generations(audited: Path) -> None:
    rows = ask(
        audited,
        """SELECT count(*) AS n FROM (SELECT generation, unnest(reference_ids) AS id FROM proposals) r
           JOIN problems p ON p.problem_id = r.id WHERE p.generation >= r.generation""",
    )
    assert rows[0]["n"] == 0


def place(row: dict[str, Any], config: Config) -> tuple[str, str, int]:
    """The type, key and island of a problem: there a program is a problem once."""
    island = island_of_problem(row["problem_id"], row["teacher_id"], config.population.islands)
    return row["problem_type"], row["program_key"], island


def test_no_program_is_a_problem_of_one_type_twice_on_an_island(
    audited: Path, config: Config, generations: range
) -> None:
    first = "teacher_id <> 'anchor'" if may_repeat(config.anchors) else "true"
    rows = ask(
        audited,
        f"SELECT generation, problem_type, program_key, problem_id, teacher_id FROM problems WHERE {first}",
    )
    own = [place(row, config) for row in rows if row["generation"] in generations]
    earlier = {place(row, config) for row in rows if row["generation"] < generations.start}
    assert len(own) == len({*own} - earlier)
    assert own or CHOSEN


def test_what_is_asked_again_was_solved_no_more_often_than_asked_for(
    audited: Path, config: Config, generations: range
) -> None:
    if config.anchors.source != "replay":
        pytest.skip("nothing is asked again")
    played = ask(audited, "SELECT * FROM problems ORDER BY generation")
    newest: dict[tuple[str, str, int], dict[str, Any]] = {}
    asked = config.anchors.parameters
    for generation, own in groupby(played, itemgetter("generation")):
        rows = list(own)
        given = (row for row in rows if row["teacher_id"] == ids.ANCHOR)
        for row in given if generation in generations else ():
            before = newest[place(row, config)]
            assert (row["inputs"], row["outputs"]) == (before["inputs"], before["outputs"])
            assert asked.get("frontier") or 0.0 < before["solve_rate"] <= asked.get("largest", 1.0)
        newest |= {place(row, config): row for row in rows if row["solve_rate"] is not None}
    assert CHOSEN or any(row["teacher_id"] == ids.ANCHOR for row in played)


def test_lineage_is_whole(audited: Path, config: Config, generations: range) -> None:
    children = ask(audited, f"SELECT * FROM members WHERE born_generation {within(generations)}")
    assert evolves(config) or not children, "evolution replaces members, never the only one"
    assert children or CHOSEN or not evolves(config), "the small run sees a replacement"
    for child in children:
        assert child["parent_ids"]
        assert child["operator"] != "founder"
    alive = ask(audited, "SELECT role, count(*) AS n FROM members WHERE died_generation IS NULL GROUP BY 1")
    population = config.population
    founded = {"teacher": population.teachers, "student": population.students, "solo": population.solo}
    assert {row["role"]: row["n"] for row in alive} == {role: n for role, n in founded.items() if n}


def test_children_go_on_at_their_parents_age(audited: Path, config: Config, generations: range) -> None:
    children = ask(
        audited,
        f"""SELECT member_id, c.generation, m.parent_ids FROM adapters c JOIN members m USING (member_id)
           WHERE c.generation = m.born_generation AND m.born_generation {within(generations)}""",
    )
    run = Run.open(audited)
    kept = [
        row
        for row in children
        if (run.adapter_folder(row["member_id"], row["generation"]) / MOMENTS).is_file()
    ]
    for row in kept:
        own, *parents = (
            read_state(run.adapter_folder(member, row["generation"]))
            for member in (row["member_id"], *row["parent_ids"])
        )
        assert own.steps == (mean_steps(parents) if config.evolve.inherit else 0)
    assert kept or CHOSEN or not evolves(config)


def test_tokens_are_those_of_the_completions_and_of_their_advantages(
    audited: Path, config: Config, generations: range
) -> None:
    told = ask(audited, f"FROM tokens WHERE generation {within(generations)}")
    for role, view, owner in (("teacher", "proposals", "teacher_id"), ("student", "attempts", "student_id")):
        learning = config.update.roles in ("both", f"{role}s")
        counted = ask(
            audited,
            f"""SELECT generation, {owner} AS member_id, sum(prompt_tokens) AS prompt_tokens,
                       sum(completion_tokens) AS generated_tokens,
                       coalesce(sum(completion_tokens) FILTER (learns AND advantage IS NOT NULL), 0) AS trained_tokens,
                       bool_or(learns AND coalesce(advantage, 0) <> 0)::INT AS learnt
                FROM {view} JOIN (
                    SELECT member_id AS {owner}, coalesce(died_generation, 1_000_000) AS died FROM members
                ) USING ({owner}), LATERAL (SELECT {learning} AND generation <= died AS learns)
                WHERE generation {within(generations)} GROUP BY generation, {owner}""",
        )
        rows = {(row["generation"], row["member_id"]): row for row in told if row["role"] == role}
        assert len(rows) >= len(counted)
        assert len(counted) >= len(generations) or (CHOSEN and role == "student")
        for row in counted:
            found, learnt = rows.pop((row["generation"], row["member_id"])), row.pop("learnt")
            assert row.items() <= found.items()
            assert learnt <= found["updates"] <= learnt * config.update.minibatches
        assert not any(row["generated_tokens"] for row in rows.values()), "only the idle are left"


def test_averages_take_all_members_of_a_role_when_they_are_due(
    audited: Path, config: Config, generations: range
) -> None:
    every = config.evolve.average_every
    own = f"WHERE generation {within(generations)}"
    played = ask(audited, f"SELECT generation, role, member_id FROM ratings {own}")
    of_role: dict[tuple[int, str], set[str]] = {}
    for row in played:
        of_role.setdefault((row["generation"], row["role"]), set()).add(row["member_id"])
    due = {key: own for key, own in of_role.items() if every and key[0] % every == 0 and len(own) > 1}
    found = ask(audited, f"SELECT * FROM averages {own}")
    assert {(row["generation"], row["role"], row["member_id"]) for row in found} == {
        (*key, member) for key, own in due.items() for member in own
    }
    for row in found:
        assert set(row["member_ids"]) == due[row["generation"], row["role"]]
        assert row["share"] == config.evolve.average_share and 0.0 < row["energy_kept"] <= 1.0 + 1e-9
