"""The catalogue shows what is committed as the contract says, and answers queries or says why not."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import small_config
from store_run import CHILD, STUDENT, TEACHER, commit_stage, generation_tables, write_run

from populora_core.runs.run import Run
from populora_core.store.answer import Answer
from populora_core.store.catalogue import Catalogue
from populora_core.store.manifest_tables import MANIFEST_TABLES
from populora_core.store.record_tables import RECORD_TABLES
from populora_core.store.tables import TABLES
from populora_core.store.views import VIEWS
from populora_core.support.errors import ArtifactError, PopuloraError


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def catalogue(run_dir):
    with Catalogue(run_dir) as opened:
        yield opened


# The contract


PROMISED = {
    "members": "member_id role slot born_generation died_generation parent_ids operator "
    "adapter_path adapter_sha256",
    "adapters": "generation member_id path sha256",
    "matches": "generation match_id teacher_id student_id p_student_win weight outcome",
    "proposals": "generation proposal_id match_id teacher_id problem_type reference_ids prompt completion "
    "prompt_tokens completion_tokens verdict problem_id reward advantage",
    "problems": "problem_id generation proposal_id teacher_id problem_type program inputs outputs message "
    "ast_depth cyclomatic_complexity lines_of_code variable_count cell chance slack novelty solve_rate n_attempts "
    "program_key level",
    "coverage": "generation problem_type problems cells new_cells cumulative_cells construct_sets "
    "cumulative_construct_sets mean_novelty mean_lines_of_code",
    "attempts": "generation attempt_id problem_id match_id student_id sample_index prompt completion answer "
    "verdict reward advantage completion_tokens",
    "updates": "generation member_id role tokens loss grad_norm entropy clip_fraction learning_rate seconds",
    "tokens": "generation member_id role slot prompt_tokens generated_tokens trained_tokens updates "
    "cumulative_prompt_tokens cumulative_generated_tokens cumulative_trained_tokens cumulative_updates",
    "ratings": "generation member_id mu sigma fitness external_fitness eligible",
    "hyperparameters": "generation member_id learning_rate temperature replay teacher_reward",
    "averages": "generation member_id role member_ids share distance energy_kept",
    "evolutions": "generation role removed_id child_id parent_ids operator operator_parameters "
    "removed_fitness",
    "evaluations": "generation member_id suite benchmark n n_correct score low high",
    "evaluation_items": "generation member_id suite part benchmark item_id stratum sample_index",
    "evaluation_strata": "generation member_id suite part benchmark temperature stratum level n",
    "runs": "created_at base base_digest dialect seed generations code_revision forked_from forked_generation",
    "settings": "setting value number",
    "stages": "generation stage attempt started_at seconds rows key code_revision",
    "figures_generation": "generation proposals proposals_judged valid duplicates teacher_reward proposal_length",
    "figures_type": "generation problem_type proposals proposals_judged valid duplicates teacher_reward",
    "figures_member": "generation member_id role completions completions_judged success reward length",
}


@pytest.mark.parametrize("name", PROMISED)
def test_a_view_has_the_promised_columns_first_and_in_order(catalogue, name):
    promised = PROMISED[name].split()
    assert catalogue.query(f"FROM {name} LIMIT 0").columns[: len(promised)] == promised


def test_the_promised_views_are_all_there_are(catalogue):
    assert set(catalogue.query("SHOW TABLES").df()["name"]) == set(PROMISED) == set(VIEWS)


@pytest.mark.parametrize("written", [True, False], ids=["a run", "an empty run"])
def test_duckdb_gives_every_view_and_table_its_declared_types(run_dir, tmp_path, written):
    with Catalogue(run_dir if written else tmp_path) as opened:
        declared = {
            **VIEWS,
            **{f"tables.{name}": table for name, table in (TABLES | MANIFEST_TABLES | RECORD_TABLES).items()},
        }
        for name, columns in declared.items():
            found = opened.query(f"DESCRIBE {name}").df()[["column_name", "column_type"]].to_numpy().tolist()
            assert found == [[column.name, column.sql_type] for column in columns], name


def test_a_deprecated_column_may_be_null_where_its_new_name_may():
    columns = {column.name: column for column in VIEWS["matches"]}
    assert columns["solve_rate"].nullable and columns["solve_rate_where_solved"].nullable, (
        "a void match has none"
    )


@pytest.mark.parametrize("name", VIEWS)
def test_no_column_is_null_that_is_declared_never_null(catalogue, name):
    table = catalogue.query(f"FROM {name}").arrow()
    assert [
        column.name for column in VIEWS[name] if table[column.name].null_count and not column.nullable
    ] == []


def test_an_empty_run_has_empty_views(tmp_path):
    with Catalogue(tmp_path) as opened:
        assert [len(opened.query(f"FROM {name}").df()) for name in VIEWS] == [0] * len(VIEWS)


# What the views show


def test_members_tell_their_lives_and_newest_adapters(catalogue):
    found = {row["member_id"]: row for row in catalogue.rows("FROM members")}
    assert set(found) == {TEACHER, STUDENT, CHILD}
    assert {name: row["died_generation"] for name, row in found.items()} == {
        TEACHER: None,
        STUDENT: 2,
        CHILD: None,
    }
    assert found[STUDENT]["adapter_path"] == f"members/{STUDENT}/g0002"
    assert found[CHILD] == {
        "member_id": CHILD,
        "role": "student",
        "slot": 0,
        "born_generation": 2,
        "died_generation": None,
        "parent_ids": [STUDENT],
        "operator": "noise",
        "adapter_path": f"members/{CHILD}/g0002",
        "adapter_sha256": f"sha of members/{CHILD}/g0002",
        "run": "run",
    }


def test_proposals_carry_verdict_reward_and_advantage(catalogue):
    sql = "SELECT verdict, detail, problem_id, reward, advantage FROM proposals WHERE generation = 1"
    assert catalogue.rows(sql + " ORDER BY proposal_id") == [
        {
            "verdict": "valid",
            "detail": None,
            "problem_id": "prob-g0001-t00-code_o-0000",
            "reward": 0.0,
            "advantage": 1.0,
        },
        {"verdict": "trivial", "detail": "echo", "problem_id": None, "reward": -1.0, "advantage": -1.0},
    ]


def test_attempts_carry_answer_verdict_reward_and_advantage(catalogue):
    sql = "SELECT answer, verdict, reward, advantage FROM attempts WHERE generation = 1"
    assert catalogue.rows(sql + " ORDER BY attempt_id") == [
        {"answer": "2", "verdict": "correct", "reward": 1.0, "advantage": 0.0},
        {"answer": None, "verdict": "infrastructure", "reward": None, "advantage": None},
    ]


def test_problems_and_matches_carry_their_results(catalogue):
    assert catalogue.rows("SELECT DISTINCT solve_rate, n_attempts FROM problems") == [
        {"solve_rate": 1.0, "n_attempts": 1}
    ]
    assert catalogue.rows("SELECT DISTINCT outcome FROM matches") == [{"outcome": "student"}]


def test_updates_take_their_seconds_from_the_manifest(catalogue):
    sql = "SELECT member_id, seconds FROM updates WHERE generation = 2 ORDER BY seconds"
    assert catalogue.rows(sql) == [
        {"member_id": TEACHER, "seconds": 0.5},
        {"member_id": STUDENT, "seconds": 0.75},
    ]


@pytest.mark.parametrize("older", [[1], [2], [1, 2]], ids=["first", "second", "both"])
def test_columns_that_came_after_a_generation_are_null_there(tmp_path, monkeypatch, older):
    write_run(tmp_path, generations=2)
    now, later = TABLES["updates"], ("steps", "kl")
    before = replace(now, columns=tuple(column for column in now if column.name not in later))
    for generation in older:
        rows = [
            {name: value for name, value in row.items() if name not in later}
            for row in generation_tables(generation)["update"]["updates"]
        ]
        with monkeypatch.context() as patch:
            patch.setitem(TABLES, "updates", before)
            commit_stage(tmp_path, generation, "update", {"updates": rows}, version=0)
    with Catalogue(tmp_path) as opened:
        rows = opened.rows("SELECT generation, tokens, steps FROM updates ORDER BY generation, member_id")
        (taken,) = opened.rows("SELECT sum(updates) AS updates FROM tokens")
        (figures,) = opened.rows("SELECT sum(updates) AS updates FROM figures_generation")
    assert taken == figures == {"updates": 4}, "a step where there is an entropy"
    assert {row["generation"] for row in rows if row["steps"] is None} == set(older)
    assert len(rows) == 4 and all(row["tokens"] for row in rows)


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (
            'SELECT count(*) AS "tokens written" FROM matches',
            {"main.matches", "tables.matches", "tables.match_results"},
        ),
        ("SELECT 'proposals' FROM tables.ratings; FROM tables.runs", {"tables.ratings", "tables.runs"}),
    ],
    ids=["a view with what it reads", "tables"],
)
def test_a_catalogue_for_some_queries_has_what_they_read_alone(run_dir, asked, shown):
    with Catalogue(run_dir, generations=(0, 1), asked=asked) as opened:
        made = opened.rows(
            "SELECT schema_name || '.' || view_name AS name FROM duckdb_views() WHERE NOT internal"
        )
    assert {row["name"] for row in made} == shown


def test_tokens_are_counted_by_member_and_role_and_summed_along_the_slot(tmp_path):
    write_run(tmp_path, generations=2)
    third = generation_tables(3)["update"]["updates"]
    idle = [
        row | {"member_id": CHILD, "entropy": None, "steps": 0} for row in third if row["role"] == "student"
    ]
    commit_stage(tmp_path, 3, "update", {"updates": idle})
    counts = ("prompt_tokens", "generated_tokens", "trained_tokens", "updates")
    with Catalogue(tmp_path) as opened:
        rows = opened.rows("FROM tokens WHERE role = 'student' ORDER BY generation")
    assert [(row["generation"], row["member_id"], row["slot"]) for row in rows] == [
        (1, STUDENT, 0),
        (2, STUDENT, 0),
        (3, CHILD, 0),
    ]
    assert [[row[name] for name in counts] for row in rows] == [[2, 4, 4, 1], [2, 4, 4, 1], [0, 0, 4, 0]]
    assert [[row[f"cumulative_{name}"] for name in counts] for row in rows] == [
        [2, 4, 4, 1],
        [4, 8, 8, 2],
        [4, 8, 12, 2],
    ]


def test_stages_come_from_the_manifests(catalogue):
    (row,) = catalogue.rows("FROM stages WHERE generation = 1 AND stage = 'verify'")
    assert str(row.pop("started_at")) == "2026-02-02 02:40:00.250000"
    assert row == {
        "generation": 1,
        "stage": "verify",
        "attempt": 1,
        "seconds": 1.5,
        "rows": 3,
        "key": "5" * 64,
        "code_revision": "abc",
        "tokens_per_second": None,
        "gpu_busy": None,
        "mfu": None,
        "cache_hits": None,
        "sandbox": None,
        "seconds_before": None,
        "run": "run",
    }


def test_a_stage_tells_its_throughput_and_how_busy_its_gpus_were(tmp_path):
    write_run(tmp_path, generations=1)
    commit_stage(tmp_path, 2, "update", {"updates": []}, extra={"tokens": 300, "gpu_busy": 0.75, "mfu": 0.4})
    commit_stage(tmp_path, 2, "solve", {"attempts": []}, extra={"prompt_tokens": 400, "cached_tokens": 100})
    with Catalogue(tmp_path) as opened:
        columns = "tokens_per_second, gpu_busy, mfu, cache_hits"
        rows = opened.rows(f"SELECT {columns} FROM stages WHERE generation = 2 ORDER BY stage DESC")
    assert [tuple(row.values()) for row in rows] == [(200.0, 0.75, 0.4, None), (None, None, None, 0.25)]


def test_token_ids_stand_in_the_stage_tables(catalogue):
    assert catalogue.rows("SELECT DISTINCT completion_ids, logprobs FROM tables.attempts") == [
        {"completion_ids": [9, 1], "logprobs": [-0.5, -0.25]}
    ]


def test_a_generations_seconds_leave_out_what_was_done_beside_the_loop(tmp_path):
    run = write_run(tmp_path / "run", generations=1)
    took = "SELECT seconds, wall_seconds FROM figures_generation"
    with Catalogue(run) as opened:
        (before,) = opened.rows(took)
    tables = {"evaluations": [], "evaluation_items": []}
    commit_stage(run, 1, "evaluate-late", tables, extra={"seconds_before": 60.0})
    with Catalogue(run) as opened:
        assert opened.rows(took) == [before]
        assert opened.rows("SELECT sum(seconds) AS s FROM stages WHERE generation = 1")[0]["s"] == (
            before["seconds"] + 1.5
        )


def test_a_suite_of_one_benchmark_has_a_row_all_beside_it_which_no_stage_stores(catalogue):
    sql = "SELECT * EXCLUDE (benchmark) FROM evaluations WHERE benchmark {} 'all' ORDER BY ALL"
    rows = catalogue.rows(sql.format("="))
    assert rows == catalogue.rows(sql.format("<>"))
    assert rows and catalogue.rows("FROM tables.evaluations WHERE benchmark = 'all'") == []


def test_a_level_is_a_number_beside_the_text_of_its_stratum(catalogue):
    assert catalogue.rows("SELECT DISTINCT stratum, level FROM evaluation_items") == [
        {"stratum": "level 1", "level": 1}
    ]


def test_a_run_tells_what_it_is_and_each_of_its_settings(finished):
    run = Run.open(finished)
    with Catalogue(finished) as opened:
        (row,) = opened.rows("FROM runs")
        settings = {found["setting"]: found for found in opened.rows("FROM settings")}
    assert (row["base"], row["seed"], row["played"]) == (
        run.config.base.path,
        run.config.run.seed,
        run.config.run.generations,
    )
    assert row["seconds"] > 0 and row["forked_from"] is None and row["run"] == finished.name
    declared = {f"{section}.{key}" for section, keys in run.config.as_json().items() for key in keys}
    assert set(settings) == declared
    assert settings["update.learning_rate"]["number"] == run.config.update.learning_rate
    assert settings["base.dialect"]["value"] == run.config.base.dialect


def test_a_run_tells_a_large_seed(tmp_path):
    Run.create(tmp_path / "run", small_config(run={"seed": 20260101123}), "digest")
    with Catalogue(tmp_path / "run") as opened:
        assert opened.rows("SELECT seed FROM runs") == [{"seed": 20260101123}]


def test_a_run_on_a_full_disk_can_still_be_asked(run_dir, monkeypatch):
    def full(directory):
        raise ArtifactError("the disk is full")

    monkeypatch.setattr("populora_core.store.catalogue.publish", full)
    with Catalogue(run_dir) as opened:
        assert opened.rows("SELECT count(*) AS n FROM problems")[0]["n"] > 0


# Queries


def test_a_query_gives_a_pandas_frame_or_an_arrow_table(catalogue):
    assert catalogue.query("SELECT 1 AS one").df().to_dict("list") == {"one": [1]}
    assert catalogue.query("SELECT 1 AS one").arrow() == pa.table({"one": pa.array([1], pa.int32())})


def test_a_query_takes_parameters(catalogue):
    sql = "SELECT count(*) AS n FROM attempts WHERE generation = ?"
    assert catalogue.query(sql, [2]).df()["n"].tolist() == [2]
    assert catalogue.query("SELECT $word AS word", {"word": "it's"}).df()["word"].tolist() == ["it's"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELEC 1",
        "FROM nothing",
        "SELECT colour FROM members",
        "CREATE TABLE t (x INTEGER)",
        "DROP VIEW members",
        "",
    ],
)
def test_a_refused_query_says_why_and_names_the_views(catalogue, sql):
    with pytest.raises(PopuloraError) as caught:
        catalogue.query(sql)
    assert caught.value.got
    assert all(name in caught.value.expected for name in VIEWS)


def test_a_query_works_after_a_refused_one(catalogue):
    with pytest.raises(PopuloraError):
        catalogue.query("SELECT error('stop') FROM members").df()
    assert len(catalogue.query("FROM members").df()) == 3


# Signals


class Ended(BaseException):
    """What a handler raises, as Prefect's of SIGTERM does."""


@pytest.mark.parametrize("taken", [Answer.df, Answer.arrow, lambda answer: list(answer.batches())])
def test_a_signal_during_a_query_raises_what_its_handler_raises(catalogue, taken):
    def end(*_):
        raise Ended

    endless = "SELECT sum(a.range * b.range) FROM range(10_000_000) a, range(10_000_000) b"
    before = signal.signal(signal.SIGTERM, end)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        with pytest.raises(Ended):
            timer.start()
            taken(catalogue.query(endless))
    finally:
        timer.join()
        signal.signal(signal.SIGTERM, before)
    assert catalogue.rows("SELECT 1 AS one") == [{"one": 1}], "and the next question is answered"
