"""Results of a shard's function as bytes: a table as an Arrow file, anything else as JSON."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

_ARROW = b"ARROW1"  # what an Arrow file begins with, and no JSON


def encode(result: Any) -> bytes:
    """The bytes of a result."""
    if not isinstance(result, pa.Table):
        return json.dumps(result).encode()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, result.schema) as file:
        file.write_table(result)
    return sink.getvalue().to_pybytes()


def decode(data: bytes) -> Any:
    """The result that the bytes are of."""
    if not data.startswith(_ARROW):
        return json.loads(data)
    with pa.ipc.open_file(pa.py_buffer(data)) as file:
        return file.read_all()
