"""Results as lines of JSON, to which every measurement appends its own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from populora_core.support.aliases import Row


def append_lines(file: Path, rows: Iterable[Row]) -> None:
    """Append each row as a line of JSON."""
    with file.open("a") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
