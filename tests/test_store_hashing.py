"""The content hash depends on the rows of a table and on nothing else."""

from __future__ import annotations

import io
import math
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora_core.store.hashing import content_hash
from populora_core.support.errors import SchemaError

SCHEMA = pa.schema(
    {
        "i": pa.int32(),
        "f": pa.float64(),
        "b": pa.bool_(),
        "t": pa.string(),
        "ts": pa.list_(pa.string()),
        "fs": pa.list_(pa.float32()),
    }
)
one_nan = st.just(math.nan)  # others have other bits, hence other hashes, but equal text
words = st.text(st.characters(codec="utf-8"), max_size=4)
rows = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-3, 3),
        "f": st.none() | st.floats(allow_nan=False) | one_nan,
        "b": st.none() | st.booleans(),
        "t": st.none() | words,
        "ts": st.none() | st.lists(st.none() | words, max_size=3),
        "fs": st.none() | st.lists(st.none() | st.floats(width=32, allow_nan=False) | one_nan, max_size=3),
    }
)
tables = st.lists(rows, max_size=12).map(lambda found: pa.Table.from_pylist(found, SCHEMA))


@given(tables, st.integers(1, 4))
def test_a_parquet_round_trip_keeps_the_hash(table, row_group_size):
    for compression in ("none", "zstd"):
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression=compression, row_group_size=row_group_size)
        assert content_hash(pq.read_table(buffer)) == content_hash(table)


@given(tables, st.lists(st.integers(0, 12), max_size=4))
def test_chunking_keeps_the_hash(table, cuts):
    bounds = [0, *sorted(min(cut, len(table)) for cut in cuts), len(table)]
    parts = [table.slice(a, b - a) for a, b in pairwise(bounds)]
    assert content_hash(pa.concat_tables(parts)) == content_hash(table)


@given(tables, st.integers(0, 12), st.integers(0, 12))
def test_a_slice_has_the_hash_of_its_own_rows(table, start, length):
    part = table.slice(start, length)
    assert content_hash(part) == content_hash(pa.Table.from_pylist(part.to_pylist(), SCHEMA))


@given(tables, tables)
def test_equal_hashes_mean_equal_rows(one, other):
    assert (content_hash(one) == content_hash(other)) == (_exact(one) == _exact(other))


@given(tables.filter(len), st.data())
def test_changing_one_value_changes_the_hash(table, data):
    changed = table.to_pylist()
    row = data.draw(st.sampled_from(changed))
    name = data.draw(st.sampled_from(SCHEMA.names))
    row[name] = data.draw(rows)[name]
    other = pa.Table.from_pylist(changed, SCHEMA)
    assert (content_hash(other) == content_hash(table)) == (_exact(other) == _exact(table))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1, 2], [2, 1]),
        ([0], [None]),
        ([None, 0], [0, None]),
        ([0.0], [-0.0]),
        ([math.nan], [None]),
        ([""], [None]),
        (["ab", "c"], ["a", "bc"]),
        ([["a"], []], [[], ["a"]]),
        ([[], ["a"]], [None, ["a"]]),
        ([[None, "a"]], [["", "a"]]),
        ([["ab"]], [["a", "b"]]),
    ],
)
def test_columns_that_look_alike_have_different_hashes(one, other):
    type_ = pa.array(one + other).type
    tables = [pa.table({"x": pa.array(values, type_)}) for values in (one, other)]
    assert content_hash(tables[0]) != content_hash(tables[1])


def test_types_and_names_are_part_of_the_hash():
    hashes = [
        content_hash(pa.table({name: pa.array([1], type_)}))
        for name, type_ in [("x", pa.int32()), ("x", pa.int64()), ("y", pa.int32()), ("x", pa.uint32())]
    ]
    assert len(set(hashes)) == len(hashes)


def test_metadata_is_not_part_of_the_hash():
    table = pa.table({"x": [1]})
    assert content_hash(table.replace_schema_metadata({"written_by": "another tool"})) == content_hash(table)


def test_what_lies_under_a_null_is_not_part_of_the_hash():
    hidden = pa.Array.from_buffers(
        pa.string(),
        2,
        [pa.py_buffer(b"\x02"), pa.py_buffer(b"\x00\0\0\0\x01\0\0\0\x02\0\0\0"), pa.py_buffer(b"xy")],
    )
    assert hidden.to_pylist() == [None, "y"]
    assert content_hash(pa.table({"x": hidden})) == content_hash(pa.table({"x": [None, "y"]}))


def test_a_type_that_no_table_declares_is_refused():
    with pytest.raises(SchemaError, match="no content hash"):
        content_hash(pa.table({"x": [{"a": 1}]}))


def _exact(table: pa.Table) -> str:
    """The rows as text: unlike ==, it tells 0.0 from -0.0 and finds NaN equal to itself."""
    return repr(table.to_pylist())
