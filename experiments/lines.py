"""The arguments of a script, and its results as lines of JSON, to which every measurement appends its own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from populora_core.support.aliases import Row


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the script's docstring as it stands."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def read_lines(file: Path) -> list[Row]:
    """The rows of a file, a line of JSON each; none where there is no file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def append_lines(file: Path, rows: Iterable[Row]) -> None:
    """Append each row as a line of JSON."""
    with file.open("a") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
