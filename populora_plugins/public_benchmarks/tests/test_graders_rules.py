"""The rules of the code benchmarks, as pure functions: EvalPlus' tolerances, LiveCodeBench's lines, packed values."""

from __future__ import annotations

import base64
import json
import math
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest
from benchmark_rows import pack, stdin
from hypothesis import given
from hypothesis import strategies as st

from populora_core.support.errors import BenchmarkError
from populora_plugins.public_benchmarks.codec import decode, encode
from populora_plugins.public_benchmarks.evalplus_rules import mbpp_arguments, right
from populora_plugins.public_benchmarks.livecodebench_cases import (
    Case,
    TestType,
    read_cases,
    right_output,
    right_value,
)

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.complex_numbers(allow_nan=False)
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.integers() | st.text(), inner)
    ),
    max_leaves=10,
)


@given(VALUES)
def test_values_come_back_as_they_were(value: Any) -> None:
    back = decode(encode(value))
    assert back == value and type(back) is type(value)


def test_sets_huge_integers_and_nan_come_back() -> None:
    assert decode(encode({1, (2, "a")})) == {1, (2, "a")}
    assert decode(encode(7**20_000)) == 7**20_000
    assert math.isnan(decode(encode(math.nan)))


def test_a_subclass_counts_as_its_type_and_an_object_as_nothing() -> None:
    class Everything:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    class Number(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    assert decode(encode(Number(3))) == 3 and decode(encode(Number(3))) != 4
    answer = decode(encode(Everything()))
    assert type(answer) is object and answer != decode(encode(Everything()))
    assert type(decode(encode(map(str, [])))) is object


@pytest.mark.parametrize("text", ["", "{}", "1.5", '["x"]', '["i", "1+1"]', '["d", [[1]]]', '["t"]'])
def test_what_is_no_packed_value_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError, KeyError, IndexError)):
        decode(text)


COLLIDING = [hex(number * (2**61 - 1)) for number in range(100_000)]
"""Integers whose hash is 0: a set compares each with all before it."""


@pytest.mark.parametrize("name", ["s", "d"])
def test_sets_and_dicts_of_colliding_keys_are_refused(name: str) -> None:
    items = [["i", number] for number in COLLIDING]
    with pytest.raises(ValueError, match="of one hash"):
        decode(json.dumps([name, items if name == "s" else [[item, 1] for item in items]]))
    assert len(decode(json.dumps(["l", items]))) == len(COLLIDING)


def test_a_list_of_colliding_numbers_is_no_right_set() -> None:
    answer = [int(number, 16) for number in COLLIDING]
    assert right("similar_elements", [], answer, answer, 0) is False
    assert right("similar_elements", [], answer[:1000] * 3, answer[:1000], 0) is True
    assert right("similar_elements", [], [7] * 10_000 + [8], [8, 7], 0) is True, "equal numbers are one"


@pytest.mark.parametrize(
    ("answer", "expected", "atol", "verdict"),
    [
        (1, 1, 0, True),
        (True, 1, 0, True),  # as == in Python
        (1.0, 1, 0, True),
        ([1], (1,), 0, False),
        (0.1 + 0.2, 0.3, 0, True),
        ([0.1 + 0.2], [0.3], 0, True),
        ((0.3,), [0.3], 0, False),
        ([0.3, 1.0], [0.3], 0, False),
        (0.31, 0.3, 0, False),
        (0.31, 0.3, 0.1, True),
        (3, 3.05, 0.1, False),  # of another type
        ("a", "b", 0.1, False),
        ([], [], 0, True),
        (None, 0.5, 0, False),
        (math.inf, math.inf, 0, True),
        (math.nan, math.nan, 0, False),
        ([[0.1 + 0.2]], [[0.3]], 0, False),  # no floats by EvalPlus' reading
        ([[0.1 + 0.2]], [[0.3]], 1e-6, True),
    ],
)
def test_outputs_are_compared_as_evalplus_does(
    answer: Any, expected: Any, atol: float, verdict: bool
) -> None:
    assert right("f", [], answer, expected, atol) is verdict


@pytest.mark.parametrize(
    ("entry_point", "answer", "expected", "verdict"),
    [
        ("similar_elements", [2, 1, 1], (1, 2), True),
        ("similar_elements", 5, (1, 2), False),
        ("check_str", True, object(), True),
        ("check_str", "match", object(), True),
        ("check_str", False, None, True),
        ("check_str", None, object(), False),
        ("are_equivalent", False, True, True),
        ("sum_div", 0, 6, True),
        ("sum_div", 1, 6, False),
    ],
)
def test_problems_with_rules_of_their_own(
    entry_point: str, answer: Any, expected: Any, verdict: bool
) -> None:
    assert right(entry_point, [], answer, expected, 0) is verdict


@pytest.mark.parametrize(
    ("root", "verdict"), [(-0.5, True), (-0.50001, True), (0.0, False), ("x", False), (1e200, False)]
)
def test_any_root_of_the_polynomial_is_right(root: Any, verdict: bool) -> None:
    assert right("find_zero", [[1, 2, 0, 5e-9]], root, None, 1e-4) is verdict


@pytest.mark.parametrize(
    ("number", "arguments", "meant"),
    [
        (2, [[1], [2]], [(1,), (2,)]),
        (63, [[[1, 2], [3]]], [[(1, 2), (3,)]]),
        (75, [[[1]], 4], [[(1,)], 4]),
        (106, [[1], [2]], [[1], (2,)]),
        (115, [[[1, 1], [], 0]], [[{1}, {}, {}]]),
        (124, ["1", "2j"], [1.0, 2j]),
        (250, [[1], 2], [(1,), 2]),
        (252, ["1+2j"], [1 + 2j]),
        (259, [[[1], [2]]], [((1,), (2,))]),
        (278, [[1, [2]]], [(1, (2,))]),
        (307, [[1], 2, 3], [(1,), 2, 3]),
        (580, [[1, [2, [3]]]], [(1, (2, (3,)))]),
        (722, [{"a": [1]}, 2, [3]], [{"a": (1,)}, 2, [3]]),
        (9999, [[1], {"a": [1]}], [[1], {"a": [1]}]),
    ],
)
def test_mbpp_arguments_are_read_as_evalplus_does(
    number: int, arguments: list[Any], meant: list[Any]
) -> None:
    read = mbpp_arguments(f"Mbpp/{number}", arguments)
    assert read == meant and [type(value) for value in read] == [type(value) for value in meant]


@pytest.mark.parametrize(
    ("answer", "expected", "verdict"),
    [
        ("1 2\n", "1 2", True),
        ("  1 2  \n\n", "1 2\n", True),
        ("1\n2", "1 2", False),
        ("1.50 2", "1.5 2.0", True),
        ("1e2", "100", True),
        ("0.1", "0.10000001", False),
        ("50000000000000001", "50000000000000000", False),
        ("yes", "Yes", False),
        ("1 2 3", "1 2", False),
        ("1 2\ndebug", "1 2", False),
        ("", "1", False),
        ("", "", True),
        ("nan", "nan", True),
        ("ünï", "ünï", True),
    ],
)
def test_standard_output_is_compared_line_by_line_and_number_by_number(
    answer: str, expected: str, verdict: bool
) -> None:
    assert right_output(answer, expected) is verdict


@pytest.mark.parametrize(
    ("answer", "expected", "verdict"),
    [
        ([0, 1], "[0, 1]", True),
        ((0, 1), "[0, 1]", True),
        ([(0, 1)], "[[0, 1]]", False),  # only the outermost tuple counts as a list
        (0.1 + 0.2, "0.3", False),
        (True, "true", True),
        (None, "null", True),
        ("a", '"a"', True),
        (object(), "1", False),
    ],
)
def test_returned_values_are_compared_with_json(answer: Any, expected: str, verdict: bool) -> None:
    assert right_value(answer, expected) is verdict


def test_private_cases_are_read_packed_or_plain() -> None:
    cases = stdin(("1", "ü"))
    expected = [Case("1", "ü", TestType.STDIN)]
    assert read_cases(pack(cases), "x") == expected
    assert read_cases('[{"input": "1", "output": "ü", "testtype": "stdin"}]', "x") == expected


class Touch:
    """What a hostile pickle would run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def packed(value: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def test_a_hostile_pickle_runs_nothing(tmp_path: Path) -> None:
    target = tmp_path / "made"
    text = packed(Touch(target))
    with pytest.raises(BenchmarkError, match="cannot be read"):
        read_cases(text, "livecodebench x")
    assert not target.exists()
    pickle.loads(zlib.decompress(base64.b64decode(text)))
    assert target.exists()  # it would have


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not base64!",
        base64.b64encode(b"not zlib").decode(),
        base64.b64encode(zlib.compress(b"not a pickle")).decode(),
        packed({"input": 1}),
        packed("no json"),
        packed('[{"input": "1", "output": "1", "testtype": "magic"}]'),
        packed('[{"input": "1", "testtype": "stdin"}]'),
        packed('[{"input": "[1", "output": "1", "testtype": "functional"}]'),
        packed('[{"input": "[1]", "output": "none", "testtype": "functional"}]'),
    ],
)
def test_cases_that_are_none_name_whose_they_are(text: str) -> None:
    with pytest.raises(BenchmarkError, match="livecodebench x"):
        read_cases(text, "livecodebench x")
