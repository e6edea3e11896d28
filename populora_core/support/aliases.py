"""Types that many rooms name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
"""A row that a query or a file gives: column -> value. Rows of tables have types: `store/rows.py`."""

Progress = Callable[[int], None]
"""A callback with the number of further items done."""

Say = Callable[[str], None]
"""A callback with a line for the person who waits."""
