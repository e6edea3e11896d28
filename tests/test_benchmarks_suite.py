"""Suites: files are checked, halves never mix, and the bundled one is held out and solvable."""

from __future__ import annotations

import re
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from base_model.documents import write_document
from base_model.execution import call, compile_function
from base_model.grammar import random_value
from base_model.suite import STRATA, held_out, shown_in
from base_model.tables import Type
from base_model.tokenizer import build_tokenizer
from populora_core.benchmarks.benchmark import Item, Response, benchmark
from populora_core.benchmarks.contamination import NGRAM, contamination, item_text
from populora_core.benchmarks.files import read_rows
from populora_core.benchmarks.heldout import FRONTIER, TINY, HeldOut
from populora_core.benchmarks.heldout import held_out as bundled
from populora_core.benchmarks.items import load_items, part_of, suite_digest, suite_items
from populora_core.benchmarks.suite import Entry, Part, load_suite
from populora_core.problems.normal import program_key
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.sandbox.literals import canonical, parse_arguments
from populora_core.stages.table import STAGES
from populora_core.support.errors import BenchmarkError
from populora_core.support.finish import FinishReason
from populora_core.support.shipped import REPOSITORY

SUITES = REPOSITORY / "configs" / "suites"
FILE = SUITES / "tiny.toml"


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return read_rows(TINY)


def test_the_tiny_suite_has_its_strata(rows: list[dict]) -> None:
    assert Counter((row["problem_type"], row["level"]) for row in rows) == {
        (kind, level): count for kind, levels in STRATA.items() for level, count in levels.items()
    }
    assert len(rows) >= 600
    assert len({program_key(row["program"]) for row in rows}) == len(rows)


def test_its_outputs_are_what_its_programs_give(rows: list[dict]) -> None:
    for row in rows:
        function = compile_function(row["program"])
        outputs = [canonical(call(function, parse_arguments(text))) for text in row["inputs"]]
        assert outputs == row["outputs"], row["item_id"]


def test_only_the_simplest_functions_are_known_to_the_base(rows: list[dict]) -> None:
    known = {(row["problem_type"], row["level"]) for row in rows if row["known_program"]}
    assert known == {("code_f", 1)}


def test_nothing_of_the_suite_is_in_a_stretch_of_the_training_corpus() -> None:
    """The recipe checks the whole corpus; here its first documents are written again."""
    tokenizer, rng = build_tokenizer(), np.random.default_rng([0, 0])
    for _ in range(2000):
        for program, inputs in shown_in(write_document(rng, tokenizer)).items():
            literals = [canonical(parse_arguments(f"({text},)")) for text in inputs]
            assert not bundled().holds(program, literals), program


def test_the_recipe_refuses_what_the_corpus_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("base_model.suite.STRATA", {"code_o": {2: 5}})
    first = held_out({}, seed=1)
    known = {program_key(row["program"]): set() for row in first}
    again = held_out(known, seed=1)
    assert len(again) == 5
    assert not known.keys() & {program_key(row["program"]) for row in again}


def test_a_held_out_problem_is_known_in_whatever_names(rows: list[dict]) -> None:
    row = next(row for row in rows if not row["known_program"] and " u=" in row["program"])
    renamed = re.sub(r"\bu\b", "total", row["program"])
    assert renamed != row["program"]
    assert HeldOut(rows).holds(renamed, ["(0,)"])


def test_of_a_program_that_everybody_knows_only_the_inputs_are_held_out(rows: list[dict]) -> None:
    row = next(row for row in rows if row["known_program"])
    held = HeldOut(rows)
    assert held.holds(row["program"], ["(-77,)", row["inputs"][2]])
    assert not held.holds(row["program"], ["(-77,)"])


def test_rows_of_one_program_are_held_out_together() -> None:
    one, two, whole = (
        {"program": "def f(a):\n return a", "inputs": [given], "known_program": known}
        for given, known in (("(1,)", True), ("(2,)", True), ("(3,)", False))
    )
    held = HeldOut([one, two])
    assert [held.holds(one["program"], [given]) for given in ("(1,)", "(2,)", "(3,)")] == [True, True, False]
    assert HeldOut([whole, one]).holds(one["program"], ["(9,)"])


def test_other_held_out_problems_mean_another_verify_stage() -> None:
    """The suites' content decides what `verify` admits, so both must change together."""
    held = [load_suite(SUITES / f"{name}.toml").benchmarks[0].sha256 for name in ("tiny", "frontier")]
    assert [(sha256 or "")[:8] for sha256 in held] == ["b491a9bd", "ebd569da"]
    assert STAGES["verify"].version >= 3


def test_both_bundled_suites_are_held_out() -> None:
    for row in (read_rows(TINY)[0], read_rows(FRONTIER)[0]):
        assert bundled().holds(row["program"], row["inputs"])


@pytest.mark.parametrize("name", ["tiny", "frontier"])
def test_halves_share_no_problem_and_are_alike(name: str) -> None:
    suite = load_suite(SUITES / f"{name}.toml")
    test, validation = (
        [items for _, items in suite_items(suite, part)] for part in (Part.TEST, Part.VALIDATION)
    )
    for items, others in zip(test, validation, strict=True):
        assert not {item.item_id for item in items} & {item.item_id for item in others}
        assert Counter(item.stratum for item in items) == Counter(item.stratum for item in others)
    assert sum(map(len, test)) >= 300


@given(st.sets(st.text(max_size=4), max_size=40), st.floats(0, 0.99), st.integers(1, 4))
def test_every_problem_is_in_exactly_one_half(names: set[str], share: float, strata: int) -> None:
    items = [Item(name, "b", {}, stratum=str(len(name) % strata)) for name in sorted(names)]
    halves = [part_of(items, part, share) for part in Part]
    assert sorted(item.item_id for half in halves for item in half) == sorted(names)
    again = [part_of(items[::-1], part, share) for part in Part]
    assert [sorted(i.item_id for i in half) for half in again] == [
        sorted(i.item_id for i in half) for half in halves
    ]


def test_a_suite_is_another_when_its_rows_change(tmp_path: Path, rows: list[dict]) -> None:
    suite = load_suite(FILE)
    path = tmp_path / "rows.parquet"

    def digest(table: list[dict]) -> str:
        pq.write_table(pa.Table.from_pylist(table), path)
        entry = Entry(benchmark="tiny_code_o", dataset=f"bundled:{path}")
        return suite_digest(suite.model_copy(update={"benchmarks": (entry,)}))

    assert digest(rows) != digest(rows[1:])


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("suite = 'x'\nbenchmarks = []", "benchmarks"),
        ("suite = 'x'\ncolour = 1\n[[benchmarks]]\nbenchmark = 'tiny_code_o'\ndataset = 'd'", "colour"),
        ("suite = 'x'\n[[benchmarks]]\nbenchmark = 'b'\ndataset = 'd'\nattempts = 4", "greedy"),
        ("suite = 'x'\n[[benchmarks]]\nbenchmark = 'b'\ndataset = 'd'\nk = [2]", "attempts"),
        ("suite = ", "no usable suite"),
        (
            "suite = 'x'\n[[benchmarks]]\nbenchmark = 'b'\ndataset = 'd'\ntempreature = 1",
            r"Got: benchmarks\.0\.tempreature: unknown key\n",
        ),
        ("suite = 'my suite'\n[[benchmarks]]\nbenchmark = 'b'\ndataset = 'd'", "suite"),
        ("suite = 'validity'\n[[benchmarks]]\nbenchmark = 'b'\ndataset = 'd'", "another name"),
    ],
)
def test_a_wrong_suite_file_is_refused_by_what_is_wrong(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "suite.toml"
    path.write_text(text)
    with pytest.raises(BenchmarkError, match=part):
        load_suite(path)


def test_a_shipped_suite_is_read_by_its_name() -> None:
    assert load_suite("bundled:frontier") == load_suite(SUITES / "frontier.toml")
    with pytest.raises(BenchmarkError, match=r"there is no suite file .*configs/suites/absent\.toml"):
        load_suite("bundled:absent")


def test_a_missing_suite_or_benchmark_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"(?s)there is no suite file.*bundled:frontier, .*bundled:tiny"):
        load_suite(tmp_path / "absent.toml")
    with pytest.raises(BenchmarkError, match="'gsm9k' is no benchmark"):
        benchmark("gsm9k")


def test_a_wrong_file_is_refused_with_the_column_that_is_missing(tmp_path: Path, rows: list[dict]) -> None:
    path = tmp_path / "rows.parquet"
    entry = Entry(benchmark="tiny_code_o", dataset=f"bundled:{path}")
    pq.write_table(pa.Table.from_pylist([{**row, "level": str(row["level"])} for row in rows]), path)
    with pytest.raises(BenchmarkError, match="row 0 has no usable column 'level'"):
        load_items(entry)
    pq.write_table(pa.Table.from_pylist(rows).drop_columns(["outputs"]), path)
    with pytest.raises(BenchmarkError, match="row 0 has no usable column 'outputs'"):
        load_items(entry)
    with pytest.raises(BenchmarkError, match="not the file that the suite was written for"):
        load_items(entry.model_copy(update={"sha256": "0" * 64}))
    path.unlink()
    with pytest.raises(BenchmarkError, match="there is no benchmark file"):
        load_items(entry)


@pytest.mark.sandbox
@pytest.mark.parametrize("name", ["tiny", "frontier"])
def test_true_answers_are_right_and_others_wrong(name: str) -> None:
    suite = load_suite(SUITES / f"{name}.toml")
    with open_sandbox("auto", Limits(), workers=2) as sandbox:
        for entry, items in suite_items(suite, Part.TEST):
            chosen, known = items[::4], benchmark(entry.benchmark)
            for answer, reason, verdict in (
                (_true, FinishReason.STOP, "correct"),
                (_false, FinishReason.STOP, "wrong"),
                (_true, FinishReason.LENGTH, "format_error"),
            ):
                responses = [Response(answer(item), reason) for item in chosen]
                scores = known.grade(chosen, responses, "compact", sandbox)
                assert {score.verdict for score in scores} == {verdict}
                assert {score.correct for score in scores} == {verdict == "correct"}


def _arguments(text: str) -> str:
    return text.removesuffix(",)").removesuffix(")").removeprefix("(").replace(" ", "")


def _true(item: Item) -> str:
    fields = item.fields
    match fields["problem_type"]:
        case "code_o":
            return f"\n={fields['outputs'][0].replace(' ', '')}"
        case "code_i":
            return _arguments(fields["inputs"][0])
    return fields["program"]


def _false(item: Item) -> str:
    """An answer of the right form that no problem of the suite has; hidden examples count for `code_f`."""
    fields = item.fields
    if fields["problem_type"] == "code_o":
        return "\n='no output'"
    if fields["problem_type"] == "code_i":
        return _wrong_input(fields)
    table = dict(zip(fields["inputs"][:4], fields["outputs"][:4], strict=True))
    cases = "".join(f" if a=={key}:\n  return {value}\n" for key, value in table.items())
    return f"def f(*a):\n{cases} return None"


def _wrong_input(fields: dict) -> str:
    """An input on which the program runs and gives something else."""
    function = compile_function(fields["program"])
    arguments = parse_arguments(fields["inputs"][0])
    kinds = {int: Type.INT, list: Type.LIST, str: Type.STR}
    rng = np.random.default_rng(0)
    for _ in range(2000):
        chosen = tuple(random_value(rng, kinds[type(argument)]) for argument in arguments)
        try:
            output = canonical(function(*chosen))
        except (ArithmeticError, LookupError, TypeError, ValueError):
            continue
        if output != fields["outputs"][0]:
            return _arguments(canonical(chosen))
    raise AssertionError("every input gives the output")


def test_overlap_is_what_is_shared() -> None:
    words = [f"w{number}" for number in range(NGRAM + 1)]
    problems = [" ".join(words), "five six seven"]
    found = contamination(problems, [" ".join(words[:NGRAM]).upper()])
    assert (found.overlapping, found.items, found.documents) == (1, 2, 1)
    assert (found.mean_share, found.highest) == (0.25, 0.5)
    assert contamination(problems, []).mean_share == 0.0
    assert contamination([*problems, problems[0]], []).items == 2, "asked twice, it counts once"
    assert contamination(problems, ["five six seven"]).highest == 1.0, "a short text is one run"


def test_no_run_of_words_is_kept_that_the_suite_does_not_have() -> None:
    """Memory follows the suite, however many problems a run has."""

    def peak(count: int) -> int:
        documents = (" ".join(f"w{number}-{word}" for word in range(60)) for number in range(count))
        tracemalloc.start()
        try:
            assert contamination(["one two three"], documents).documents == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)
    assert peak(200) < 2 * peak(10)


def test_a_problem_is_read_in_the_columns_that_people_can_read() -> None:
    item = Item("a", "b", {"question": "one", "packed": "two", "number": 3})
    assert item_text(item) == "one\ntwo"
    assert item_text(item, {"question", "number"}) == "one"


def test_a_line_of_json_ends_at_its_line_feed_alone(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes('{"text": "a\u2028b\x85c"}\r\n\n{"text": "d"}'.encode())
    assert [row["text"] for row in read_rows(path)] == ["a\u2028b\x85c", "d"]
