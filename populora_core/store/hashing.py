"""The content hash of a table: what stage keys are made of, so it must depend on the rows alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from populora_core.support.errors import SchemaError


def content_hash(table: pa.Table) -> str:
    """The sha256 of a table's rows.

    Equal for equal column names, types, values, nulls and order, whatever the chunking, slicing, encoding or
    Parquet writer. Floats count by their bits: 0.0 and -0.0 differ, a NaN equals itself.

    Every column is fed as self-delimiting streams (validity, lengths, values), so that no two tables with
    different rows feed the same bytes.

    Raises:
        SchemaError: a column type that no table declares.
    """
    digest = hashlib.sha256()
    for name, column in zip(table.column_names, table.columns, strict=True):
        digest.update(f"{name}\0{_type_name(column.type)}\0{len(column)}\0".encode())
        for stream in _streams(column.chunks, column.type):
            digest.update(stream)
    return digest.hexdigest()


def _type_name(type_: pa.DataType) -> str:
    """The type without its child's name, which Parquet changes from `item` to `element`."""
    return f"list<{_type_name(type_.value_type)}>" if pa.types.is_list(type_) else str(type_)


def _streams(chunks: Sequence[pa.Array], type_: pa.DataType) -> Iterator[memoryview]:
    chunks = [chunk for chunk in chunks if len(chunk)]  # an empty array may lack its buffers
    for chunk in chunks:
        yield _bytes(chunk.is_valid())
    if pa.types.is_list(type_):
        for chunk in chunks:
            yield _bytes(pc.fill_null(pc.list_value_length(chunk), 0))
        yield from _streams([chunk.flatten() for chunk in chunks], type_.value_type)
    elif pa.types.is_string(type_):
        filled = [pc.fill_null(chunk, "") for chunk in chunks]
        for chunk in filled:
            yield _bytes(pc.binary_length(chunk))
        for chunk in filled:
            yield _text(chunk)
    elif pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_floating(type_):
        for chunk in chunks:
            yield _bytes(pc.fill_null(chunk, pa.scalar(0).cast(type_)))
    else:
        raise SchemaError(
            f"a column of type {type_} has no content hash",
            expected="booleans, integers, floats, text, or lists of them",
        )


def _bytes(array: pa.Array) -> memoryview:
    return np.ascontiguousarray(array.to_numpy(zero_copy_only=False)).data.cast("B")


def _text(array: pa.StringArray) -> memoryview:
    """The characters of the array's own slice of its buffer."""
    _, offsets, characters = array.buffers()
    if characters is None:
        return memoryview(b"")
    bounds = np.frombuffer(offsets, dtype=np.int32)[[array.offset, array.offset + len(array)]]
    return memoryview(characters)[int(bounds[0]) : int(bounds[1])]
