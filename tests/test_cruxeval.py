"""CRUXEval as held-out problems of our own types: asked by the dialect, judged by value, kept out of what runs play."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import commits, small_config, start, write_lines
from published_data import published

from populora_core.benchmarks.anchors import dataset
from populora_core.benchmarks.benchmark import Item, Response, benchmark
from populora_core.benchmarks.heldout import held_out, kept_out
from populora_core.benchmarks.items import left_out, load_items, suite_items
from populora_core.benchmarks.suite import Entry, Part, Suite, load_suite
from populora_core.commands.scores import unjudged_lines
from populora_core.lifecycle.loop import rerun, train
from populora_core.problems.dialects import dialect
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.sandbox.jobs import Sandbox
from populora_core.stages.decisive import decisive
from populora_core.store.manifest import MANIFEST, read_manifest, stage_dir
from populora_core.support.errors import BenchmarkError, ProblemError
from populora_core.support.finish import FinishReason
from populora_core.support.shipped import shipped

ROWS: list[dict[str, Any]] = [
    {
        "code": "def f(xs, n):\n    return xs[:n] + [n]",
        "input": "[4, 5, 6], 2",
        "output": "[4, 5, 2]",
        "id": "a",
    },
    {"code": "def f(n):\n    return n / 2", "input": "4", "output": "2.0", "id": "b"},
    {"code": "def f(d):\n    return list(d)", "input": "{'x': 1, 'y': 2}", "output": "['x', 'y']", "id": "c"},
    {"code": "def f(s):\n    return s.encode()", "input": "'x'", "output": "b'x'", "id": "bytes"},
    {"code": "def f(g):\n    return g(1)", "input": "lambda x: x", "output": "1", "id": "lambda"},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "rows.jsonl", ROWS)


def answered(tag: str, content: str) -> Response:
    return Response(f"so</think>\n<answer>\n```{tag}\n{content}\n```\n</answer>")


def correct(name: str, items: list[Item], contents: list[str], sandbox: Sandbox) -> list[bool | None]:
    tag = "output" if name.endswith("_o") else "input"
    given = [answered(tag, content) for content in contents]
    return [score.correct for score in benchmark(name).grade(items, given, "instruct", sandbox)]


def test_a_problem_is_asked_as_the_dialect_asks_students() -> None:
    for name, marks in (("cruxeval_o", ("xs[:n]", "[4, 5, 6], 2")), ("cruxeval_i", ("xs[:n]", "[4, 5, 2]"))):
        asked = benchmark(name)
        item = asked.load(ROWS)[0]
        for family in ("instruct", "compact"):
            prompt = asked.prompt(item, family)
            assert all(mark.replace(" ", "") in prompt.replace(" ", "") for mark in marks)
            assert dialect(family).digest[:12] in asked.template(family)
        assert getattr(asked, "by_dialect", False)  # so that the dialect's stop texts end an answer


@pytest.mark.sandbox
def test_answers_are_right_by_value(sandbox: Sandbox) -> None:
    first, second, third = benchmark("cruxeval_o").load(ROWS)
    outputs = {"[4,5,2]": True, "[4, 5.0, 2]": True, "[5, 4, 2]": False, "(4, 5, 2)": False, "[4, 5]": False}
    assert correct("cruxeval_o", [first] * 5, list(outputs), sandbox) == list(outputs.values())
    assert correct("cruxeval_o", [second] * 3, ["2.0", "2", "'2.0'"], sandbox) == [True, True, False]
    first, second, third = benchmark("cruxeval_i").load(ROWS)
    inputs = {"[4, 5], 2": True, "[4, 5, 9, 9], 2": True, "[4, 5, 6], 3": False, "[4], 2": False, "7": False}
    assert correct("cruxeval_i", [first] * 5, list(inputs), sandbox) == list(inputs.values())
    assert correct("cruxeval_i", [second] * 2, ["4", "True"], sandbox) == [True, False]
    assert correct("cruxeval_i", [third] * 1, ["['x', 'y']"], sandbox) == [True]


@pytest.mark.sandbox
@pytest.mark.parametrize("name", ["cruxeval_o", "cruxeval_i", "tiny_code_o"])
def test_an_answer_that_was_cut_is_refused_and_the_detail_says_so(name: str, sandbox: Sandbox) -> None:
    measured = benchmark(name)
    if name.startswith("tiny"):
        item = load_items(load_suite(shipped("configs", "suites", "tiny.toml")).benchmarks[0])[0]
        family, text = "compact", f"\n={item.fields['outputs'][0]}"
    else:
        item = measured.load(ROWS)[1]
        tag, content = ("output", "2.0") if name.endswith("_o") else ("input", "4")
        family, text = "instruct", answered(tag, content).text
    given = [Response(text), Response(text, FinishReason.LENGTH), Response("?")]
    scores = measured.grade([item] * 3, given, family, sandbox)
    assert [(score.verdict, score.detail) for score in scores] == [
        ("correct", ""),
        ("format_error", "cut by max_tokens"),
        ("format_error", ""),
    ]


def test_rows_that_make_no_problem_are_named_with_the_reason(file: Path) -> None:
    suite = Suite(suite="s", benchmarks=(Entry(benchmark="cruxeval_o", dataset=f"file:{file}"),))
    assert [item.item_id for item in load_items(suite.benchmarks[0])] == ["a", "b", "c"]
    told = left_out(suite)
    lost = {"benchmark": "cruxeval_o", "item_id": "a", "correct": None, "detail": ""}
    lost |= {"verdict": "infrastructure"}
    assert unjudged_lines([lost, {**lost, "item_id": "b", "correct": False}], suite)[0] == (
        "in no score: cruxeval_o a (infrastructure)"
    )
    assert len(unjudged_lines([], suite)) == 2
    assert told.keys() == {"cruxeval_o bytes", "cruxeval_o lambda"}
    assert "bytes" in told["cruxeval_o bytes"] and "literal" in told["cruxeval_o lambda"]
    assert " at 0x" not in "".join(told.values()), "an address differs every time"


def test_a_part_of_the_rows_is_played_and_another_measured(file: Path) -> None:
    entry = Entry(benchmark="cruxeval_i", dataset=f"file:{file}", rows=(1, 3))
    measured = {item.item_id for item in load_items(entry)}
    played = dataset(np.random.default_rng(0), 9, "code_i", path=str(file), end=1)
    assert len(measured) == 2 and len(played) == 1
    programs = {row["code"] for row in ROWS if row["id"] in measured}
    assert played[0].program not in programs and played[0].problem_type == "code_i"
    known = held_out(Suite(suite="s", benchmarks=(entry,)))
    assert all(known.holds(program.replace("f(d)", "f(other)"), []) for program in programs)
    assert not known.holds(played[0].program, played[0].inputs)
    with pytest.raises(BenchmarkError, match="no problem among its rows"):
        load_items(entry.model_copy(update={"rows": (3, 9)}))


def test_rows_of_a_file_of_problems_are_not_chosen(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(
        json.dumps({"problem_type": "code_o", "program": "def f(x):\n    return -x", "inputs": ["(1,)"]})
    )
    with pytest.raises(ProblemError, match="no file of CRUXEval"):
        dataset(np.random.default_rng(0), 9, "code_o", path=str(path), end=1)


def test_a_run_does_not_play_what_its_own_suite_asks_and_its_keys_say_so(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"

    def config_of(rows: str) -> Any:
        path.write_text(
            f'suite = "own"\n[[benchmarks]]\nbenchmark = "cruxeval_o"\ndataset = "file:{file}"\nrows = {rows}\n'
        )
        return small_config(evaluate={"suite": str(path)})

    keys = []
    for rows in ("[0, 2]", "[1, 3]"):
        config = config_of(rows)
        kept = kept_out(config)
        assert kept is not None and held_out(kept).holds(
            load_items(kept.benchmarks[0])[0].fields["program"], []
        )
        keys.append(decisive(config, ("verify",))["verify"]["held_out"])
    assert keys[0] != keys[1]
    assert (
        kept_out(small_config()) is None and "held_out" not in decisive(small_config(), ("verify",))["verify"]
    )


@pytest.mark.parametrize("gone", ["own.toml", "rows.jsonl"])
def test_a_run_that_cannot_know_what_its_suite_asks_starts_nothing(
    file: Path, tmp_path: Path, gone: str
) -> None:
    entry = f'[[benchmarks]]\nbenchmark = "cruxeval_o"\ndataset = "file:{file}"\n'
    (tmp_path / "own.toml").write_text(f'suite = "own"\n{entry}')
    run = start(tmp_path / "run", small_config(evaluate={"suite": str(tmp_path / "own.toml")}))
    (tmp_path / gone).unlink()
    with Session(run) as session, pytest.raises(BenchmarkError, match=gone):
        train(session, 1)
    assert run.generations() == []


def test_a_run_goes_on_without_a_suite_only_where_it_has_played_without_one(
    copy_of: Callable[[], Path],
) -> None:
    directory = copy_of()
    record = json.loads((directory / "run.json").read_text())
    record["config"]["evaluate"]["suite"] = "gone.toml"
    (directory / "run.json").write_text(json.dumps(record))
    made = commits(directory)
    with Session(Run.open(directory)) as session:
        train(session, 3)
    assert commits(directory) == made
    folder = stage_dir(directory, 3, "verify")
    manifest = read_manifest(folder)
    assert manifest is not None
    manifest.config["verify"]["held_out"] = "0" * 64
    (folder / MANIFEST).write_text(manifest.to_json())
    with Session(Run.open(directory)) as session:
        for go_on in (lambda: train(session, 3), lambda: rerun(session, 3, "propose")):
            with pytest.raises(BenchmarkError, match=r"gone\.toml"):
                go_on()
        rerun(session, 3, "grade")  # which verifies nothing
    assert commits(directory) == made


@pytest.mark.parametrize("suite", ["~nobody-here/own.toml", "x" * 9000, "a\0b", ""])
def test_a_run_that_names_no_file_keeps_nothing_out(suite: str) -> None:
    assert kept_out(small_config(evaluate={"suite": suite})) is None


def test_a_pipe_holds_no_rows_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.jsonl")
    with pytest.raises(BenchmarkError, match="no benchmark file"):
        load_items(Entry(benchmark="cruxeval_o", dataset=f"file:{tmp_path / 'rows.jsonl'}"))


def test_the_shipped_suite_names_both_types() -> None:
    suite = load_suite(shipped("configs", "suites", "cruxeval.toml"))
    assert [entry.benchmark for entry in suite.benchmarks] == ["cruxeval_o", "cruxeval_i"]


@pytest.mark.sandbox
def test_published_rows_are_right_by_their_own_answers(sandbox: Sandbox, tmp_path: Path) -> None:
    rows = published("cruxeval-first400.jsonl")
    for name, column in (("cruxeval_o", "output"), ("cruxeval_i", "input")):
        items = benchmark(name).load(rows)
        assert len(items) == 393
        found = correct(name, items, [item.fields[column] for item in items], sandbox)
        wrong = [item.item_id for item, right in zip(items, found, strict=True) if not right]
        assert wrong == [], name
    path = write_lines(tmp_path / "rows.jsonl", rows)
    entry = Entry(benchmark="cruxeval_o", dataset=f"file:{path}", rows=(200, 400))
    suite = Suite(suite="s", validation=0.5, benchmarks=(entry,))
    halves = [{item.item_id for item in suite_items(suite, part)[0][1]} for part in Part]
    played = dataset(np.random.default_rng(0), 999, "code_o", path=str(path), end=200)
    assert [len(half) for half in halves] == [97, 96] and len(played) == 200
    assert not {draft.program for draft in played} & {
        row["code"] for row in rows if row["id"] in set.union(*halves)
    }
