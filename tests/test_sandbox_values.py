"""Values of plain data in every backend: what goes in comes out, with its order, as Python writes it."""

from __future__ import annotations

from collections.abc import Iterator
from unicodedata import ucd_3_2_0

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandboxed import BACKEND_NAMES, opened

from populora_core.problems.parsing import read_arguments
from populora_core.sandbox.jobs import Job, Limits, Sandbox
from populora_core.sandbox.literals import literal, parse_literal
from populora_core.sandbox.verify import verify_or_raise

# What a newer Unicode assigns is printable in newer Pythons alone, so only what the oldest assigns is drawn.
CHARACTERS = st.characters(max_codepoint=0x2FF) | st.characters(min_codepoint=0x300).filter(
    lambda sign: ucd_3_2_0.category(sign) != "Cn"
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers(-(10**400), 10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, -0.0, 1.0, 1e300, 5e-324])
    | st.text(CHARACTERS, max_size=5)
    | st.sampled_from(
        ["\ud800", "\x00\n'\"", "\u2028", "字", "e\u0301", "\U0001d49c", "\U0010fffd", "\U0001f600"]
    )
)
HASHABLE = st.recursive(SCALARS, lambda part: st.tuples(part, part), max_leaves=3)


def plain(largest_set: int) -> st.SearchStrategy[object]:
    """Values of plain data whose sets have at most so many items."""
    return st.recursive(
        SCALARS | st.sets(HASHABLE, max_size=largest_set),
        lambda part: (
            st.lists(part, max_size=3)
            | st.lists(part, max_size=3).map(tuple)
            | st.dictionaries(HASHABLE, part, max_size=4)
        ),
        max_leaves=8,
    )


VALUES = st.lists(plain(1), min_size=1, max_size=30)  # a larger set has an order that the hash seed decides
WITH_SETS = st.lists(plain(5), min_size=1, max_size=30)
SEVERAL, FEW = (
    settings(max_examples=many, suppress_health_check=[HealthCheck.function_scoped_fixture])
    for many in (60, 20)
)


@pytest.fixture(scope="module", params=BACKEND_NAMES)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with opened(request.param, Limits(), hash_seed=7) as pool:
        yield pool


@pytest.fixture(scope="module")
def gvisor() -> Iterator[Sandbox]:
    slow = Limits(cpu_seconds=8, wall_seconds=16)  # a page costs several times as much there
    with opened("gvisor", slow, hash_seed=7) as pool:
        yield pool


def comes_out_as_python_writes_it(sandbox: Sandbox, values: list[object]) -> None:
    inputs = tuple(read_arguments(repr(value)) for value in values)
    assert inputs == tuple(f"({value!r},)" for value in values)
    program = "def f(x):\n    return [x, repr(x)]"
    (result,) = verify_or_raise(sandbox, [Job("j", program, inputs)], determinism=True)
    assert result.outputs == tuple(repr([value, repr(value)]) for value in values)


def comes_out_with_its_sets_in_the_order_of_their_text(sandbox: Sandbox, values: list[object]) -> None:
    inputs = tuple(read_arguments(repr(value)) for value in values)
    (result,) = verify_or_raise(sandbox, [Job("j", "def f(x):\n    return x", inputs)], determinism=True)
    assert result.outputs == tuple(map(literal, values))
    assert [parse_literal(output) for output in result.outputs] == values


@pytest.mark.sandbox
@SEVERAL
@given(values=VALUES)
def test_a_value_goes_in_and_comes_out_as_python_writes_it(sandbox: Sandbox, values: list[object]) -> None:
    comes_out_as_python_writes_it(sandbox, values)


@pytest.mark.sandbox
@SEVERAL
@given(values=WITH_SETS)
def test_a_set_goes_in_and_comes_out_in_the_order_of_its_items_text(
    sandbox: Sandbox, values: list[object]
) -> None:
    comes_out_with_its_sets_in_the_order_of_their_text(sandbox, values)


@pytest.mark.sandbox
@pytest.mark.docker
@pytest.mark.foreign
@pytest.mark.thorough
@FEW
@given(values=VALUES, with_sets=WITH_SETS)
def test_the_same_comes_out_of_gvisor(gvisor: Sandbox, values: list[object], with_sets: list[object]) -> None:
    comes_out_as_python_writes_it(gvisor, values)
    comes_out_with_its_sets_in_the_order_of_their_text(gvisor, with_sets)


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        ("{8, 0}", "[8, 0]"),
        ("{0, 8}", "[0, 8]"),
        ("{1: 'a', 0: 'b', True: 'c'}", "[1, 0]"),
    ],
)
def test_a_program_meets_items_and_keys_in_the_order_that_was_written(
    arguments: str, seen: str, sandbox: Sandbox
) -> None:
    job = Job("j", "def f(x):\n    return list(x)", (read_arguments(arguments),))
    assert verify_or_raise(sandbox, [job], determinism=True)[0].outputs == (seen,)


@pytest.mark.sandbox
def test_an_order_that_the_hash_seed_decides_is_not_stored(sandbox: Sandbox) -> None:
    program = "def f(words):\n    return {word: len(word) for word in set(words)}"
    words = [letter * 2 for letter in "abcdefghijklmnop"]
    (result,) = verify_or_raise(sandbox, [Job("j", program, (repr((words,)),))], determinism=True)
    assert result.outputs == (repr(dict.fromkeys(words, 2)),)
