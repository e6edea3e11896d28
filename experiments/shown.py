"""Dialects as `assert`, with other numbers of examples before a question: see `experiments.by_prompt`.

Four examples are the first four seeds, of which two are of other kinds than those that `assert` shows.
"""

from __future__ import annotations

from populora_plugins.repl.dialects import ReplDialect
from populora_plugins.repl.notation import ASSERT

none = ReplDialect("assert-0", ASSERT, shown=0)
four = ReplDialect("assert-4", ASSERT, shown=4)
