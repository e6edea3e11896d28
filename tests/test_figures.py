"""One definition of every figure: whoever shows it shows the same, and what infrastructure lost counts for nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import small_config
from store_run import (
    CHILD,
    STUDENT,
    TEACHER,
    commit_stage,
    evaluation_row,
    generation_tables,
    member_row,
    rating_row,
    update_row,
    write_run,
)

from populora_core.benchmarks.suite import Entry, Suite
from populora_core.report.figures import read_figures
from populora_core.report.notes import headline, notes
from populora_core.report.scalars import by_generation
from populora_core.report.stage_summary import stage_summary
from populora_core.report.summary import MEMBER_TOKENS, generation_line, generation_summaries, run_rows
from populora_core.runs.run import Run
from populora_core.sandbox.jobs import JobResult
from populora_core.sandbox.status import Status
from populora_core.store.catalogue import Catalogue
from populora_plugins.pages.comparison import comparison_sections
from populora_plugins.pages.sections import sections
from populora_plugins.study.measures import measure

# Of three proposals one is valid, one trivial, one was lost; of three attempts at its problem one is right, one wrong,
# one was lost.
RIGHT = {"valid": 0.5, "solve_rate": 0.5, "teacher_reward": -0.25, "student_reward": 0.25}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "run"
    Run.create(directory, small_config(), "digest")
    write_run(directory, generations=0)
    tables = generation_tables(1)
    propose, verify, solve, grade = (tables[stage] for stage in ("propose", "verify", "solve", "grade"))

    def another(rows: list[dict[str, object]], **values: object) -> None:
        rows.append(rows[-1] | values)

    another(propose["proposals"], proposal_id="lost", completion_tokens=1000)
    another(verify["proposal_checks"], proposal_id="lost", verdict="infrastructure", detail="no sandbox")
    grade["proposal_grades"][0]["reward"] = 0.5
    another(grade["proposal_grades"], proposal_id="lost", reward=None)
    another(solve["attempts"], attempt_id="wrong", sample_index=2)
    another(grade["attempt_grades"], attempt_id="wrong", verdict="wrong", reward=-0.5)
    grade["problem_results"][0] |= {"n_attempts": 2, "solve_rate": 0.5}
    for stage, rows in tables.items():
        commit_stage(directory, 1, stage, rows)
    return directory


def in_the_views(directory: Path) -> dict[str, float]:
    with Catalogue(directory) as catalogue:
        (whole,) = catalogue.rows("FROM figures_generation")
        (one_type,) = catalogue.rows("FROM figures_type")
    assert {name: whole[name] for name in RIGHT} == {name: one_type[name] for name in RIGHT}
    return {name: whole[name] for name in RIGHT}


def of_the_members(directory: Path) -> dict[str, float]:
    with Catalogue(directory) as catalogue:
        rows = {row["member_id"]: row for row in catalogue.rows("FROM figures_member")}
    assert (rows[TEACHER]["completions"], rows[TEACHER]["completions_judged"]) == (3, 2)
    return {
        "valid": rows[TEACHER]["success"],
        "teacher_reward": rows[TEACHER]["reward"],
        "solve_rate": rows[STUDENT]["success"],
        "student_reward": rows[STUDENT]["reward"],
    }


def on_the_console(directory: Path) -> dict[str, float]:
    (summary,) = generation_summaries(directory, 1, 1)
    line = generation_line(summary, 1)
    found = re.search(r"valid (\d+)%.*solved (\d+)%", line)
    assert found, line
    return {"valid": int(found[1]) / 100, "solve_rate": int(found[2]) / 100}


def in_prefects_artifacts(directory: Path) -> dict[str, float]:
    verify, grade = (stage_summary(directory, 1, stage) for stage in ("verify", "grade"))
    assert verify.headline == "1 of 2 proposals became problems, 1 met a failing sandbox"
    assert grade.headline == "1 of 2 attempts are correct, 1 met a failing sandbox"
    shares = {row["verdict"]: row["share"] for row in verify.tables["verdicts"]}
    assert shares == {"valid": 0.5, "trivial": 0.5, "infrastructure": None}
    reward = {row["role"]: row["reward"] for row in grade.tables["members"]}
    (rates,) = grade.tables["solve rates"]
    return {
        "valid": shares["valid"],
        "solve_rate": rates["solve rate"],
        "teacher_reward": reward["teacher"],
        "student_reward": reward["student"],
    }


def in_the_report(directory: Path) -> dict[str, float]:
    shown = [plot for section in sections(read_figures(directory)) for plot in section.plots]
    rows = {plot.title: plot.table.rows for plot in shown if plot.table is not None}
    newest = {title: of[-1][1][1].partition(" (")[0] for title, of in rows.items() if of}
    return {
        "valid": _number(newest["Valid proposals"]),
        "solve_rate": _number(newest["Solve rate"]),
        "teacher_reward": _number(newest["Teachers' reward"]),
        "student_reward": _number(newest["Students' reward"]),
    }


def in_the_reports_verdicts(directory: Path) -> dict[str, float]:
    shown = {section.key: section for section in sections(read_figures(directory))}["verdicts"]
    shares = {(row["of"], row["verdict"]): row["share of the judged"] for row in shown.tables[0].rows}
    assert shares["proposals", "infrastructure"] == shares["attempts", "infrastructure"] == ""
    stacked = {key.label: key.value for plot in shown.plots for key in plot.keys}
    assert not stacked.keys() & {"valid", "correct", "infrastructure"}
    assert stacked["trivial"] == shares["proposals", "trivial"]
    return {
        "valid": _number(shares["proposals", "valid"]),
        "solve_rate": _number(shares["attempts", "correct"]),
    }


def in_a_comparison(directory: Path) -> dict[str, float]:
    differences = comparison_sections([read_figures(directory)] * 2)[0].tables[0]
    shown = {row["figure"]: row[directory.name] for row in differences.rows}
    return {"valid": _number(shown["Valid proposals"]), "solve_rate": _number(shown["Solve rate"])}


def in_the_trackers(directory: Path) -> dict[str, float]:
    told = by_generation(read_figures(directory))[1]
    assert all(told[f"{name}/code_o"] == told[f"{name}/all"] for name in RIGHT)
    return {name: told[f"{name}/all"] for name in RIGHT}


def in_the_study(directory: Path) -> dict[str, float]:
    suite = Suite(suite="small", benchmarks=(Entry(benchmark="tiny_code_o", dataset="bundled:tiny.parquet"),))
    with Catalogue(directory) as catalogue:
        values = measure(
            catalogue, suite, lambda jobs: [JobResult(job.job_id, Status.TIMEOUT, ()) for job in jobs]
        )
    found = {value.measure: value.value for value in values if value.part == "all"}
    return {name: found["validity" if name == "valid" else name] for name in RIGHT}


def _number(shown: str) -> float:
    number = float(shown.removesuffix("%").replace("−", "-"))
    return number / 100 if shown.endswith("%") else number


CONSUMERS = (
    *(in_the_views, of_the_members, on_the_console, in_prefects_artifacts, in_the_report),
    *(in_the_reports_verdicts, in_a_comparison, in_the_trackers, in_the_study),
)


@pytest.mark.parametrize("shown", CONSUMERS)
def test_everyone_shows_the_same_figures(planted: Path, shown: Callable[[Path], dict[str, float]]) -> None:
    found = shown(planted)
    assert {"valid", "solve_rate"} <= found.keys()
    assert found == pytest.approx({name: RIGHT[name] for name in found})


def test_the_headline_is_of_judged_attempts_and_the_loss_is_a_warning(planted: Path) -> None:
    figures = read_figures(planted)
    assert "Students now solve 50\u00a0% of what their teachers ask" in headline(figures)[-1]
    said = [note.text for note in notes(figures) if "failing sandbox" in note.text]
    assert [text.split(" met")[0] for text in said] == [
        f"33\u00a0% of all {what}" for what in ("proposals", "attempts")
    ]


def test_what_was_spent_on_lost_rows_was_spent(planted: Path) -> None:
    with Catalogue(planted) as catalogue:
        (row,) = catalogue.rows("FROM figures_generation")
    assert (row["proposals"], row["attempts"]) == (3, 3)
    assert row["proposal_tokens"] == 2 + 2 + 1000
    assert row["sampled_tokens"] == row["proposal_tokens"] + 3 * 2 + 6 * 1
    assert row["proposal_length"] == 2.0, "a mean, so of judged rows"
    assert row["tokens_per_correct"] == 4.0


def rows_of(directory: Path, view: str) -> Iterator[dict[str, object]]:
    with Catalogue(directory) as catalogue:
        yield from catalogue.rows(f"FROM {view}")


def test_the_line_of_a_generation_tells_what_students_made_of_anchors(planted: Path) -> None:
    (summary,) = generation_summaries(planted, 1, 1)
    (played,) = summary.types
    none_valid = replace(summary, types=[played | {"valid": 0.0, "solve_rate": None}])
    anchored = replace(none_valid, types=[none_valid.types[0] | {"anchors": 4, "anchor_solve_rate": 0.25}])
    told = generation_line(none_valid, 1)
    assert "no one learns" in told
    (asked,) = re.findall(r'populora query RUN "(.*)"', told)
    assert {"verdict", "detail"} == next(rows_of(planted, f"({asked})")).keys()
    assert "solved –  │  anchors solved 25%" in generation_line(anchored, 1)
    assert "no one learns" not in generation_line(anchored, 1)


def test_a_member_that_made_no_step_did_not_learn(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", generations=0)
    tables = generation_tables(1)
    teacher, student = tables["update"]["updates"]
    frozen = teacher | {"tokens": 0, "steps": 0, "loss": 0.0, "grad_norm": 0.0, "entropy": None}
    tables["update"]["updates"] = [frozen, student | {"loss": 0.5}]
    for stage, rows in tables.items():
        commit_stage(directory, 1, stage, rows)
    (whole,) = rows_of(directory, "figures_generation")
    assert whole["members"] == 1
    learnt = {row["role"]: (row["loss"], row["grad_norm"]) for row in rows_of(directory, "figures_member")}
    assert learnt == {"teacher": (None, None), "student": (0.5, 0.1)}
    assert stage_summary(directory, 1, "update").headline.startswith("1 members learned from 4 tokens")


def test_tokens_so_far_count_no_slot_twice_where_a_past_member_plays(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", generations=2)
    tables = generation_tables(3)
    tables["update"]["updates"] = [update_row(3, TEACHER), update_row(3, CHILD)]
    for stage in ("propose", "solve", "update"):
        commit_stage(directory, 3, stage, tables[stage])
    so_far = {row["member"]: row["trained so far"] for row in run_rows(directory, MEMBER_TOKENS, 3)}
    assert so_far == {TEACHER: 12, CHILD: 12, STUDENT: None, "all": 24}


def test_a_run_came_to_the_newest_scores_of_the_base_and_of_all_who_solve(tmp_path: Path) -> None:
    directory = write_run(Run.create(tmp_path / "run", small_config(), "digest").directory)
    for generation, suite, scores in (
        (1, "whole", {"base": 0.25, STUDENT: 0.5}),
        (2, "of-a-teacher", {"base": 0.5, TEACHER: 0.75}),
        (2, "without-base", {CHILD: 0.75}),
    ):
        rows = [
            evaluation_row(generation, member, score) | {"suite": suite, "part": "test"}
            for member, score in scores.items()
        ]
        commit_stage(directory, generation, f"evaluate-{suite}", {"evaluations": rows})
    (row,) = rows_of(directory, "runs")
    assert (row["suite"], row["scored_generation"]) == ("whole", 1)
    assert (row["base_score"], row["solvers_score"]) == (0.25, 0.5)


def test_a_generation_that_only_infrastructure_answered_has_no_shares(planted: Path, tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", generations=0)
    tables = generation_tables(1)
    for check in tables["verify"]["proposal_checks"]:
        check |= {"verdict": "infrastructure", "problem_id": None}
    for grade in tables["grade"]["proposal_grades"]:
        grade["reward"] = None
    commit_stage(directory, 1, "match", tables["match"])
    commit_stage(directory, 1, "propose", tables["propose"])
    commit_stage(directory, 1, "verify", tables["verify"] | {"problems": []})
    empty = {name: [] for name in ("attempt_grades", "problem_results", "match_results", "ratings")}
    commit_stage(directory, 1, "solve", {"attempts": []})
    commit_stage(directory, 1, "grade", empty | {"proposal_grades": tables["grade"]["proposal_grades"]})
    (row,) = rows_of(directory, "figures_type")
    assert (row["proposals"], row["proposals_judged"], row["problems"], row["attempts"]) == (2, 0, 0, 0)
    assert {row[name] for name in ("valid", "teacher_reward", "solve_rate", "correct")} == {None}
    (summary,) = generation_summaries(directory, 1, 1)
    assert "valid –" in generation_line(summary, 1)
    assert stage_summary(directory, 1, "verify").headline == (
        "0 of 0 proposals became problems, 2 met a failing sandbox"
    )


def test_a_summary_of_two_generations_reads_no_other(planted: Path, tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", generations=4)
    with Catalogue(directory, generations=(3, 4)) as catalogue:
        rows = catalogue.rows("SELECT DISTINCT generation FROM proposals ORDER BY 1")
    assert [row["generation"] for row in rows] == [3, 4]
    assert not (directory / "catalogue.duckdb").exists()


def test_the_score_of_a_role_is_that_of_all_its_members(tmp_path: Path) -> None:
    """After `populora evaluate RUN --members student-00-g0000` one student stands for no other."""
    Run.create(tmp_path / "run", small_config(), "digest")
    written, other = write_run(tmp_path / "run"), "student-01-g0000"
    play = generation_tables(1)
    commit_stage(
        written,
        1,
        "grade",
        play["grade"] | {"ratings": [*play["grade"]["ratings"], rating_row(1, other)]},
    )
    commit_stage(
        written,
        1,
        "evolve",
        play["evolve"] | {"population": [*play["evolve"]["population"], member_row(1, other)]},
    )
    for suite, members in {"one": [STUDENT, "base"], "all": [STUDENT, other, "base"]}.items():
        scores = [evaluation_row(1, member, 0.25 * n) | {"suite": suite} for n, member in enumerate(members)]
        commit_stage(written, 1, f"evaluate-{suite}", {"evaluations": scores})
    figures = read_figures(written, samples=False)
    found = {(row["suite"], row["generation"], row["role"]): row["score"] for row in figures["evaluations"]}
    assert found == {
        ("one", 1, None): 0.25,
        ("all", 1, None): 0.5,
        ("all", 1, "student"): 0.125,
        ("small", 2, "student"): 0.5,  # of those that played, one of which evolution then removed
    }
