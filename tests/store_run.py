"""A small run written through StageWriter, with the rows that its stages would have written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from made_runs.filled import filled
from populora_core.store.artifacts import StageWriter
from populora_core.store.manifest import Manifest
from populora_core.store.schema import to_table

Row = dict[str, Any]
TEACHER, STUDENT, CHILD = "teacher-00-g0000", "student-00-g0000", "student-00-g0002"
SAMPLED = {
    "prompt": "<po>",
    "completion": "def f(x):\n return x",
    "prompt_tokens": 1,
    "completion_tokens": 2,
    "finish_reason": "stop",
    "prompt_ids": [2],
    "completion_ids": [9, 1],
    "logprobs": [-0.5, -0.25],
}


def commit_stage(
    run_dir: Path,
    generation: int,
    stage: str,
    tables: Mapping[str, Sequence[Row]],
    extra: Mapping[str, Any] | None = None,
    key: str = "5" * 64,
    version: int = 1,
    config: Mapping[str, Any] | None = None,
    population: str = "hash",
) -> Manifest:
    """Commit a stage whose rows need to name only what a test is about."""
    with StageWriter(run_dir, generation, stage) as writer:
        for name, rows in tables.items():
            writer.write_table(name, to_table(name, [filled(name, **row) for row in rows]))
        return writer.commit(
            writer.draft(
                key=key,
                stage_version=version,
                seed=7,
                config=config or {"solve": {"samples": 2}},
                inputs={"population": population},
                started=1_770_000_000.25,
                seconds=1.5,
                code_revision="abc",
                extra=extra,
            )
        )


def write_run(run_dir: Path, generations: int = 2) -> Path:
    """Founders, then turns of the loop with one match, two proposals, one problem and two attempts each."""
    founders = [member_row(0, TEACHER), member_row(0, STUDENT)]
    adapters = [adapter_row(0, TEACHER), adapter_row(0, STUDENT)]
    made = commit_stage(run_dir, 0, "found", {"population": founders, "adapters": adapters})
    for generation in range(1, generations + 1):
        members = hashlib.sha256(made.contents["population.parquet"].encode()).hexdigest()
        for stage, tables in generation_tables(generation).items():
            extra = {"member_seconds": {TEACHER: 0.5, STUDENT: 0.75}} if stage == "update" else None
            made = commit_stage(run_dir, generation, stage, tables, extra, population=members)
    return run_dir


def generation_tables(generation: int) -> dict[str, dict[str, list[Row]]]:
    g = f"g{generation:04d}"
    match_id, prob = f"match-{g}-00", f"prob-{g}-t00-code_o-0000"
    valid, invalid = f"prop-{g}-t00-code_o-0000", f"prop-{g}-t00-code_o-0001"
    right, lost = f"att-{g}-t00-code_o-0000-s00", f"att-{g}-t00-code_o-0000-s01"
    proposal = filled(
        "proposals",
        generation=generation,
        match_id=match_id,
        teacher_id=TEACHER,
        problem_type="code_o",
        **SAMPLED,
    )
    problem = {
        "problem_id": prob,
        "generation": generation,
        "proposal_id": valid,
        "teacher_id": TEACHER,
        "problem_type": "code_o",
        "program": "def f(x):\n return x + 1",
        "inputs": ["(1,)"],
        "outputs": ["2"],
        "ast_depth": 4,
        "cyclomatic_complexity": 1,
        "lines_of_code": 2,
        "variable_count": 1,
        "cell": "2-0-1-0-arithmetic",
        "chance": 0.05,
        "slack": 0.0,
        "novelty": 1.0,
        "program_key": "key",
    }
    attempt = {
        "generation": generation,
        "problem_id": prob,
        "match_id": match_id,
        "student_id": STUDENT,
        **SAMPLED,
    }
    match = {
        "generation": generation,
        "match_id": match_id,
        "teacher_id": TEACHER,
        "student_id": STUDENT,
        "p_student_win": 0.5,
        "weight": 0.25,
    }
    replaced = generation == 2
    return {
        "match": {"matches": [match]},
        "propose": {"proposals": [proposal | {"proposal_id": valid}, proposal | {"proposal_id": invalid}]},
        "verify": {
            "problems": [problem],
            "proposal_checks": [
                {"proposal_id": valid, "verdict": "valid", "problem_id": prob},
                {"proposal_id": invalid, "verdict": "trivial", "detail": "echo"},
            ],
        },
        "solve": {
            "attempts": [
                attempt | {"attempt_id": right, "sample_index": 0},
                attempt | {"attempt_id": lost, "sample_index": 1},
            ]
        },
        "grade": {
            "attempt_grades": [
                {"attempt_id": right, "answer": "2", "verdict": "correct", "reward": 1.0},
                {"attempt_id": lost, "verdict": "infrastructure"},
            ],
            "proposal_grades": [
                {"proposal_id": valid, "reward": 0.0},
                {"proposal_id": invalid, "reward": -1.0},
            ],
            "problem_results": [{"problem_id": prob, "n_attempts": 1, "solve_rate": 1.0}],
            "match_results": [
                {"match_id": match_id, "outcome": "student", "solve_rate": 1.0, "n_problems": 1}
            ],
            "ratings": [rating_row(generation, TEACHER), rating_row(generation, STUDENT)],
        },
        "update": {
            "updates": [update_row(generation, TEACHER), update_row(generation, STUDENT)],
            "proposal_advantages": [
                {"proposal_id": valid, "advantage": 1.0},
                {"proposal_id": invalid, "advantage": -1.0},
            ],
            "attempt_advantages": [
                {"attempt_id": right, "advantage": 0.0},
                {"attempt_id": lost},
            ],
            "adapters": [adapter_row(generation, TEACHER), adapter_row(generation, STUDENT)],
        },
        "evaluate": {
            "external_fitness": [
                {"generation": generation, "member_id": STUDENT, "external_fitness": 0.5},
            ],
            "evaluations": [evaluation_row(generation, STUDENT)],
            "evaluation_items": [item_row(generation, STUDENT)],
        },
        "evolve": {
            "population": [
                member_row(generation, TEACHER),
                member_row(generation, CHILD if generation >= 2 else STUDENT),
            ],
            "evolutions": [evolution_row(generation)] if replaced else [],
            "adapters": [adapter_row(generation, CHILD)] if replaced else [],
            # An older version wrote none, so the first generation has no such file.
            **({"retired": [retired_row(generation)]} if replaced else {}),
        },
    }


def member_row(generation: int, member_id: str) -> Row:
    role, slot, born = member_id.split("-")
    founder = born == "g0000"
    return filled(
        "population",
        generation=generation,
        member_id=member_id,
        role=role,
        slot=int(slot),
        born_generation=int(born[1:]),
        parent_ids=[] if founder else [STUDENT],
        operator="founder" if founder else "noise",
        mu=25.0,
        sigma=8.0,
        productive_generation=generation,
        adapter_sha256="sha",
        moments_sha256="sha of moments",
    )


def retired_row(generation: int) -> Row:
    return filled(
        "retired",
        generation=generation,
        member_id=STUDENT,
        role="student",
        mu=25.0,
        sigma=8.0,
        adapter_sha256="sha",
    )


def adapter_row(generation: int, member_id: str) -> Row:
    path = f"members/{member_id}/g{generation:04d}"
    return filled(
        "adapters",
        generation=generation,
        member_id=member_id,
        path=path,
        sha256=f"sha of {path}",
        moments_sha256=f"sha of moments of {path}",
    )


def rating_row(generation: int, member_id: str) -> Row:
    return filled(
        "ratings",
        generation=generation,
        member_id=member_id,
        role=member_id.split("-")[0],
        mu=25.0,
        sigma=8.0,
        fitness=1.0,
        eligible=True,
        productive_generation=generation,
    )


def evaluation_row(generation: int, member_id: str, score: float = 0.5) -> Row:
    return filled(
        "evaluations",
        generation=generation,
        member_id=member_id,
        suite="small",
        benchmark="counting",
        n=8,
        n_correct=int(8 * score),
        score=score,
        low=0.25,
        high=0.875,
        part="validation",
        metric="pass@1",
        attempts=1,
        temperature=0.0,
        template="compact/solve_code_o 0123",
    )


def item_row(generation: int, member_id: str) -> Row:
    return filled(
        "evaluation_items",
        generation=generation,
        member_id=member_id,
        suite="small",
        part="validation",
        benchmark="counting",
        item_id="counting-1",
        stratum="level 1",
        temperature=0.0,
        template="compact/solve_code_o 0123",
        prompt="p",
        completion="c",
        completion_tokens=1,
        finish_reason="stop",
        verdict="infrastructure",
    )


def update_row(generation: int, member_id: str) -> Row:
    return filled(
        "updates",
        generation=generation,
        member_id=member_id,
        role=member_id.split("-")[0],
        n_rows=2,
        tokens=4,
        grad_norm=0.1,
        entropy=1.0,
        steps=1,
        learning_rate=1e-3,
        logprob_mismatch=1e-7,
        largest_mismatch=1e-6,
    )


def evolution_row(generation: int) -> Row:
    return filled(
        "evolutions",
        generation=generation,
        role="student",
        removed_id=STUDENT,
        child_id=CHILD,
        parent_ids=[STUDENT],
        operator="noise",
        operator_parameters='{"scale": 0.1}',
        removed_fitness=1.0,
    )
