"""Every measure of the study, against rows whose means were worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from store_run import (
    CHILD,
    STUDENT,
    TEACHER,
    Row,
    adapter_row,
    commit_stage,
    evaluation_row,
    generation_tables,
    member_row,
    write_run,
)

from populora_core.benchmarks.suite import Entry, Suite
from populora_core.sandbox.jobs import Job, JobResult
from populora_core.sandbox.status import Status
from populora_core.store.catalogue import Catalogue
from populora_plugins.study.measures import measure

PROPOSALS = (  # name, type, match, verdict, reward, tokens
    ("A", "code_o", "m0", "valid", 0.5, 2),
    ("B", "code_o", "m0", "valid", 0.0, 4),
    ("trivial", "code_o", "m0", "trivial", -1.0, 6),
    ("lost", "code_o", "m0", "infrastructure", None, 100),
    ("C", "code_i", "m1", "valid", 1.0, 8),
)
PROBLEMS = {  # AST depth, attempts that were judged, solve rate, program, executed steps
    "A": (4, 2, 0.5, "same", "3"),
    "B": (6, 1, 1.0, "same", None),
    "C": (10, 4, 0.0, "other", "7"),
}
GUESSES = {  # chance, slack, statements
    "A": (0.3, 0.4, 6),
    "B": (0.1, 0.0, 5),
    "C": (0.05, None, 4),
}
ATTEMPTS = (  # problem, verdict, reward, tokens
    ("A", "correct", 1.0, 3),
    ("A", "wrong", -0.5, 5),
    ("A", "infrastructure", None, 50),
    ("B", "correct", 1.0, 4),
    *(("C", "wrong", -0.5, 10),) * 4,
)


def planted(generation: int) -> dict[str, dict[str, list[Row]]]:
    """The rows of a generation that are worked out below."""

    def own(name: object) -> str:
        return f"{name}-{generation}"

    tables = generation_tables(generation)
    match, proposal = tables["match"]["matches"][0], tables["propose"]["proposals"][0]
    problem, attempt = tables["verify"]["problems"][0], tables["solve"]["attempts"][0]
    tables["match"]["matches"] = [match | {"match_id": own(name)} for name in ("m0", "m1")]
    tables["propose"]["proposals"] = [
        proposal
        | {"proposal_id": own(name), "problem_type": kind, "match_id": own(of), "completion_tokens": tokens}
        for name, kind, of, _, _, tokens in PROPOSALS
    ]
    kinds = {name: kind for name, kind, *_ in PROPOSALS}
    tables["verify"] = {
        "problems": [
            problem
            | {"problem_id": own(name), "proposal_id": own(name)}
            | {"problem_type": kinds[name], "ast_depth": depth}
            | {"program_key": program, "cell": name}
            | dict(zip(("chance", "slack", "lines_of_code"), GUESSES[name], strict=True))
            for name, (depth, _, _, program, _) in PROBLEMS.items()
        ],
        "proposal_checks": [
            {
                "proposal_id": own(name),
                "verdict": verdict,
                "detail": None,
                "problem_id": own(name) if name in PROBLEMS else None,
            }
            for name, _, _, verdict, _, _ in PROPOSALS
        ],
    }
    tables["solve"]["attempts"] = [
        attempt
        | {
            "attempt_id": own(place),
            "problem_id": own(name),
            "sample_index": place,
            "completion_tokens": tokens,
        }
        for place, (name, _, _, tokens) in enumerate(ATTEMPTS)
    ]
    grade = tables["grade"]
    grade["attempt_grades"] = [
        {"attempt_id": own(place), "answer": None, "verdict": verdict, "reward": reward}
        for place, (_, verdict, reward, _) in enumerate(ATTEMPTS)
    ]
    grade["proposal_grades"] = [
        {"proposal_id": own(name), "reward": reward} for name, *_, reward, _ in PROPOSALS
    ]
    grade["problem_results"] = [
        {"problem_id": own(name), "n_attempts": judged, "solve_rate": rate}
        for name, (_, judged, rate, *_) in PROBLEMS.items()
    ]
    grade["match_results"] = [
        {"match_id": own(name), "outcome": "student", "solve_rate": 0.5, "n_problems": 1}
        for name in ("m0", "m1")
    ]
    teacher, student = grade["ratings"]
    grade["ratings"] = [teacher, student | {"mu": 26.0 if generation == 1 else 24.0}]
    return tables


def run_jobs(jobs: Sequence[Job]) -> list[JobResult]:
    """B, rewritten to count its steps, is too slow."""
    steps = [PROBLEMS[job.job_id.partition("-")[0]][-1] for job in jobs]
    return [
        JobResult(job.job_id, Status.OK, (found,)) if found else JobResult(job.job_id, Status.TIMEOUT, ())
        for job, found in zip(jobs, steps, strict=True)
    ]


def suite(*benchmarks: str) -> Suite:
    entries = tuple(Entry(benchmark=name, dataset="bundled:tiny.parquet") for name in benchmarks)
    return Suite(suite="small", benchmarks=entries)


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, str, str], float]:
    directory = write_run(tmp_path_factory.mktemp("run"), generations=0)
    for generation in (1, 2):
        for stage, tables in planted(generation).items():
            commit_stage(directory, generation, stage, tables)
        newest = STUDENT if generation == 1 else CHILD
        scores = {"base": 0.3, newest: 0.4, TEACHER: 0.2}
        rows = [
            evaluation_row(generation, member, score) | {"part": "test", "benchmark": benchmark}
            for member, score in scores.items()
            for benchmark in ("all", "tiny_code_o")
        ]
        others = ({"metric": "pass@8"}, {"temperature": 0.6}, {"benchmark": "of_an_older_suite"})
        rows += [
            evaluation_row(generation, newest, 0.9) | {"part": "test", "benchmark": "tiny_code_o"} | other
            for other in others
        ]
        rows.append(evaluation_row(generation, newest, 0.9) | {"benchmark": "all"})  # of the validation half
        rows.append(evaluation_row(generation, TEACHER, 0.9) | {"part": "test", "suite": "another"})
        commit_stage(directory, generation, "evaluate-small", {"evaluations": rows})
    with Catalogue(directory) as catalogue:
        found = measure(catalogue, suite("tiny_code_o", "tiny_code_i"), run_jobs)
    assert len({value[:3] for value in found}) == len(found), "one value of each"
    return {value[:3]: value.value for value in found}


@pytest.mark.parametrize(
    ("name", "code_o", "code_i"),
    [
        ("validity", 2 / 3, 1.0),  # what infrastructure lost counts for nothing
        ("teacher_reward", -1 / 6, 1.0),
        ("proposal_length", 4.0, 8.0),
        ("solve_rate", 0.75, 0.0),
        ("learnable", 0.5, 0.0),
        ("ast_depth", 5.0, 10.0),
        ("student_reward", 0.5, -0.5),
        ("attempt_length", 4.0, 10.0),
        ("executed_steps", 3.0, 7.0),
        ("chance", 0.2, 0.05),
        ("guessable", 0.5, 0.0),
        ("level", 2.5, 2.0),  # statements between `def` and `return`, less those that can be left out
    ],
)
def test_types_count_alike_however_many_rows_they_have(
    values: dict[tuple[int, str, str], float], name: str, code_o: float, code_i: float
) -> None:
    found = [values[1, name, part] for part in ("code_o", "code_i", "all")]
    assert found == pytest.approx([code_o, code_i, (code_o + code_i) / 2])


def test_problems_and_cells_are_counted_over_types(values: dict[tuple[int, str, str], float]) -> None:
    assert values[1, "proposals", "all"] == 5
    assert values[1, "distinct_programs", "all"] == pytest.approx(2 / 3)
    assert values[1, "new_cells", "all"] == 3
    assert values[2, "new_cells", "all"] == 0, "the same cells again"


def test_what_a_generation_spends_is_by_adapter_or_of_all(values: dict[tuple[int, str, str], float]) -> None:
    assert values[1, "updates", "all"] == 1.0
    assert values[1, "trained_tokens", "all"] == 4.0, "four of each of two members"
    prompts, written = 5 + 8, sum(row[-1] for row in PROPOSALS) + sum(row[-1] for row in ATTEMPTS)
    assert values[1, "total_tokens", "all"] == 8 + prompts + written


def test_teachers_that_never_learn_halve_no_mean_of_updates(tmp_path: Path) -> None:
    directory = write_run(tmp_path, generations=0)
    for stage, tables in generation_tables(1).items():
        if stage == "update":
            teacher, student = tables["updates"]
            tables["updates"] = [teacher | {"n_rows": 0, "tokens": 0, "steps": 0}, student]
        commit_stage(directory, 1, stage, tables)

    def lost(jobs: Sequence[Job]) -> list[JobResult]:
        return [JobResult(job.job_id, Status.TIMEOUT, ()) for job in jobs]

    with Catalogue(directory) as catalogue:
        values = measure(catalogue, suite("tiny_code_o"), lost)
    spent = {value.measure: value.value for value in values if value.part == "all"}
    assert (spent["updates"], spent["trained_tokens"]) == (1.0, 4.0)


def test_the_lead_changes_where_the_higher_mean_rating_does(
    values: dict[tuple[int, str, str], float],
) -> None:
    assert (values[1, "rating", "student"], values[2, "rating", "teacher"]) == (26.0, 25.0)
    assert [values[generation, "lead_changes", "all"] for generation in (1, 2)] == [0.0, 1.0]


def test_the_spread_of_pairs_is_what_finite_attempts_do_not_explain(
    values: dict[tuple[int, str, str], float],
) -> None:
    # Means .75 and 0, so .28125 between them. A's rate of 1/2 in two attempts has variance .25, of which the mean
    # of its pair, over two problems, has a quarter.
    assert values[1, "pair_spread", "all"] == pytest.approx((0.28125 - 0.0625 / 2) ** 0.5)


def test_held_out_scores_are_by_slot_of_the_reported_half_alone(
    values: dict[tuple[int, str, str], float],
) -> None:
    for generation in (1, 2):
        assert not any("older" in key[1] for key in values)
        for name in ("held_out", "held_out.tiny_code_o"):
            parts = {key[2]: value for key, value in values.items() if key[:2] == (generation, name)}
            assert parts == {"base": 0.3, "student-00": 0.4, "teacher-00": 0.2}


def test_a_suite_of_one_benchmark_is_that_benchmark_and_slots_beyond_99_stay_apart(tmp_path: Path) -> None:
    scores = {"student-10-g0000": 0.25, "student-100-g0000": 0.75}
    founders = {"population": [member_row(0, name) for name in scores]}
    commit_stage(tmp_path, 0, "found", founders | {"adapters": [adapter_row(0, name) for name in scores]})
    rows = [
        evaluation_row(0, name, score) | {"part": "test", "benchmark": "tiny_code_o"}
        for name, score in scores.items()
    ]
    commit_stage(tmp_path, 0, "evaluate-small", {"evaluations": rows})
    with Catalogue(tmp_path) as catalogue:
        found = measure(catalogue, suite("tiny_code_o"), run_jobs)
    assert found == [
        (0, name, part, score)
        for name in ("held_out", "held_out.tiny_code_o")
        for part, score in (("student-10", 0.25), ("student-100", 0.75))
    ]


def test_a_program_that_cannot_be_written_out_again_has_no_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(program: str) -> str:
        raise ValueError("Unable to avoid backslash in f-string expression part")

    monkeypatch.setattr("populora_plugins.study.measures.counting", refuse)
    directory = write_run(tmp_path, generations=0)
    for stage, tables in planted(1).items():
        commit_stage(directory, 1, stage, tables)
    with Catalogue(directory) as catalogue:
        found = {value.measure for value in measure(catalogue, suite("tiny_code_o"), lambda jobs: [])}
    assert "ast_depth" in found and "executed_steps" not in found
