"""Coverage of the problem space: cells, what is new, and that longer is not the same as different."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populora_core.problems.complexity import Complexity, measure
from populora_core.problems.coverage import Cell, Construct, cell, constructs
from populora_core.problems.normal import ngrams, novelty
from populora_core.store.views import VIEWS

STATEMENTS = ("y = x + 1", "y += x", "x = sorted(x)", "if x:\n  y = 2", "for i in x:\n  y += i*2")
CELLS = st.builds(
    Cell,
    st.tuples(*[st.integers(0, 6)] * 4),
    st.sets(st.sampled_from(list(Construct))).map(lambda found: tuple(sorted(found))),
)
ROWS = st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["code_o", "code_i"]), CELLS), max_size=40)


def program(*statements: str) -> str:
    return "\n ".join(["def f(x):", "y = 0", *(s.replace("\n", "\n ") for s in statements), "return y"])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return x", ""),
        ("return -1", ""),
        ("return x + 1", "arithmetic"),
        ("x += 1; return x", "arithmetic"),
        ("return not x", "logic"),
        ("return 1 if x else 2", "branch"),
        ("return len(x)", "call"),
        ("return x.upper()", "method"),
        ("return x[0]", "index"),
        ("return x[1:]", "slice"),
        ("return [x, 1]", "container"),
        ("return [y for y in x]", "comprehension"),
        ("return f'{x}'", "format"),
        ("return (lambda y: y)", "function"),
        ("def g(): return x\n return g", "function"),
        ("class A: pass\n return A", "class"),
        ("raise x", "exception"),
        ("while x: pass\n return x", "loop"),
        ("a, b = x\n return a", ""),
        ("y: list[int] = x\n return y", ""),
        ("for y in x:\n  if y > 1: return x[y] * 2", "arithmetic branch index logic loop"),
    ],
)
def test_the_constructs_of_a_program(body: str, expected: str) -> None:
    assert constructs(f"def f(x):\n {body}") == tuple(expected.split())


def test_cells_are_logarithmic_bins_and_constructs() -> None:
    assert str(cell("def f(x):\n return x[0] + 1", Complexity(8, 4, 7, 4))) == "3-2-2-2-arithmetic+index"
    assert str(cell("def f(x):\n return x", Complexity(1, 0, 1, 0))) == "0-0-0-0-none"


@given(CELLS)
def test_a_cell_can_be_read_back(found: Cell) -> None:
    assert Cell.parse(str(found)) == found


# Longer is not different


@given(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=4), st.integers(3, 12))
def test_a_program_that_says_the_same_more_often_is_longer_and_not_new(body: list[str], times: int) -> None:
    seen = ngrams(program(*body * 3))
    longer = program(*body * times)
    assert novelty(longer, seen) == 0.0
    assert constructs(longer) == constructs(program(*body))
    assert measure(longer).lines_of_code >= measure(program(*body * 3)).lines_of_code


@given(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=4), st.integers(1, 12))
def test_variables_that_only_come_first_leave_the_rest_as_known_as_it_was(body: list[str], n: int) -> None:
    """More variables shift the number of every one after them, and that alone makes nothing new."""
    idle = [f"z{i} = 0" for i in range(n)]
    seen = ngrams(program(*body)) | ngrams(program(*idle))
    seams = 2 * 3  # runs of four words across the two places where the parts meet
    assert len(ngrams(program(*idle, *body)) - seen) <= seams


def test_which_variables_are_equal_still_counts() -> None:
    assert novelty("def f(x, y):\n return x + y", ngrams("def f(x, y):\n return x + x")) > 0.0


# The view


def coverage(rows: list[tuple[int, str, Cell]]) -> list[dict]:
    """The view over problems of these generations, types and cells."""
    problems = pa.table(
        {
            "generation": pa.array([generation for generation, _, _ in rows], pa.int32()),
            "problem_type": pa.array([kind for _, kind, _ in rows], pa.string()),
            "teacher_id": pa.array(["t0"] * len(rows), pa.string()),
            "cell": pa.array([str(found) for _, _, found in rows], pa.string()),
            "novelty": pa.array([0.5] * len(rows), pa.float64()),
            "lines_of_code": pa.array([3] * len(rows), pa.int32()),
        }
    )
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA tables")
        connection.register("given", problems)
        connection.execute("CREATE VIEW tables.problems AS FROM given")
        sql = f"FROM ({VIEWS['coverage'].sql()}) ORDER BY problem_type, generation"
        return connection.sql(sql).to_arrow_table().to_pylist()


@settings(max_examples=50)  # a database each
@given(ROWS)
def test_coverage_only_grows_and_counts_every_cell_once(rows: list[tuple[int, str, Cell]]) -> None:
    found = coverage(rows)
    assert {(row["generation"], row["problem_type"]) for row in found} == {(g, kind) for g, kind, _ in rows}
    for kind in ("code_o", "code_i"):
        own = [row for row in found if row["problem_type"] == kind]
        for name, part in (("cells", lambda c: c), ("construct_sets", lambda c: c.constructs)):
            reached: set = set()
            for row in own:
                now = {part(c) for g, k, c in rows if (g, k) == (row["generation"], kind)}
                assert row[name] == len(now)
                if name == "cells":
                    assert row["new_cells"] == len(now - reached)
                reached |= now
                assert row[f"cumulative_{name}"] == len(reached)
