"""Published benchmark files, which do not come with the repository; tests that need one say aloud that it is absent."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[1].parent / "shared" / "data"


def published(name: str) -> list[dict[str, Any]]:
    """The rows of a published file; the test is skipped where it is absent."""
    file = FOLDER / name
    if not file.is_file():
        pytest.skip(f"{file} is absent: the published rows of {name} are not tested")
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return [json.loads(line) for line in data.decode().splitlines() if line.strip()]
