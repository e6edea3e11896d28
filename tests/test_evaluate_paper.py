"""The paper's ten benchmarks and HumanEval through the commands: fetch from files, evaluate a run, open every answer.

The rows are our own, in each benchmark's published schema; the base is random and has room for the prompts.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmark_rows import ROWS, Row
from command import populora
from conftest import needs, small_config, start, write_lines
from random_base import write_random_base

from populora_core.benchmarks.fetched import FOLDER_VARIABLE
from populora_core.benchmarks.scores import BASE
from populora_core.lifecycle.loop import train
from populora_core.runs.session import Session
from populora_core.store.catalogue import Catalogue
from populora_core.support.shipped import REPOSITORY

pytestmark = [needs("math_verify", "evaluation"), pytest.mark.loop, pytest.mark.sandbox, pytest.mark.thorough]

TWICE = {
    "task_id": "HumanEval/9009",
    "prompt": "def twice(n):\n",
    "entry_point": "twice",
    "canonical_solution": "    return 2 * n\n",
    "test": "def check(candidate):\n    assert candidate(3) == 6\n",
}


@pytest.mark.parametrize(("suite_name", "fixtures"), [("paper", ROWS), ("humaneval", {"humaneval": [TWICE]})])
def test_a_suite_is_fetched_and_evaluated_by_the_commands(
    suite_name: str, fixtures: dict[str, list[Row]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "kept"))
    suite, given, run = tmp_path / f"{suite_name}.toml", tmp_path / "given", tmp_path / "run"
    suite.write_text(short_answers_of_any_rows((REPOSITORY / "configs" / "suites" / suite.name).read_text()))
    given.mkdir()
    for name, rows in fixtures.items():
        write_lines(given / f"{name}.jsonl", rows)
    write_random_base(
        tmp_path / "base",
        vocab_size=334,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    with Session(start(run, small_config(base={"path": str(tmp_path / "base")}))) as session:
        train(session, 0)

    missing = populora("evaluate", run, "--suite", suite)
    assert missing.returncode != 0 and "suite fetch" in missing.stderr

    fetched = populora("suite", "fetch", suite, "--from", given)
    assert fetched.returncode == 0, fetched.stderr
    done = populora("evaluate", run, "--suite", suite, COLUMNS="80")
    assert done.returncode == 0, done.stderr
    with Catalogue(run) as catalogue:
        scores = catalogue.rows("SELECT member_id, benchmark, n, low, score, high FROM evaluations")
        answers = catalogue.rows("SELECT benchmark, item_id, answer FROM evaluation_items")

    assert {row["benchmark"] for row in scores} == {*fixtures, "all"}
    assert {row["member_id"] for row in scores} > {BASE}
    assert all(row["low"] <= row["score"] <= row["high"] for row in scores)
    assert {row["benchmark"] for row in answers} == set(fixtures)
    assert all(name in done.stdout for name in fixtures), "a terminal of 80 characters shows every name"


def short_answers_of_any_rows(suite: str) -> str:
    """The suite without the checksums of the published files, its answers cut after a few tokens."""
    return re.sub(r"max_tokens = \d+", "max_tokens = 4", re.sub(r"(?m)^sha256.*\n", "", suite))
