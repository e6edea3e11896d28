"""The questions of docs/analytics.md over ten million attempts on two cores, and what publishing a catalogue costs.

    populora bench analytics --json

A synthetic run of 500 generations is written by the real stage writer into a temporary folder (some 4 GB, removed at
the end), and its blocks are made as a training run makes them. Every question is asked of a catalogue that was just
opened, in turn with the others, so that no one is asked while its own rows are at hand; a figure is the median over the
rounds. Wall-clock seconds: a person waits for them.
"""

from __future__ import annotations

import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bench.analytics_run import ATTEMPTS, SyntheticRun
from bench.harness import Row, Say, median, single
from populora_core.config import REPOSITORY
from populora_core.store.blocks import BLOCKS, compact
from populora_core.store.catalogue import Catalogue, publish

COOKBOOK = REPOSITORY / "docs" / "analytics.md"
CORES = 2
ROWS = 10_000_000
PUBLISHES = 15


def questions(page: Path = COOKBOOK) -> dict[str, str]:
    """The page's queries by the headings that they stand under."""
    parts = re.findall(r"^## ([^\n]+)$(?:(?!^## ).)*?^```sql\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return dict(parts)
