"""Counts of what the architecture promises: public names, files that a change touches, ways of making something once.

    python tests/counts.py

A change from outside the tree is an example: the files are the example itself and all that name it. A column is
declared and given in a copy of the tree, where `make docs` renders the rest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from house import BESIDE, CORE, PLUGINS, ROOT, House, makers

import populora_core

CODE = (CORE, PLUGINS, *BESIDE, "configs", "examples", "tests")
TABLES, ROWS, PAGE = f"{CORE}/store/tables.py", f"{CORE}/store/rows.py", "docs/data-contract.md"
NEW_COLUMN = 'Column("n_correct", INT, "Judged attempts that are right."),\n            '
COLUMN = {
    TABLES: ('Column("n_attempts",', NEW_COLUMN + 'Column("n_attempts",'),
    f"{CORE}/stages/grade.py": (
        '"n_attempts": len(each.attempts)',
        '"n_correct": round((each.solve_rate or 0.0) * len(each.attempts)), "n_attempts": len(each.attempts)',
    ),
    f"{CORE}/stages/table.py": ('"grade",\n        version=', '"grade",\n        version=1'),
}
"""File -> the text that stands there once, and what a column of `problem_results` makes of it."""
RENDERED = {ROWS: "tests/row_types.py", PAGE: "tests/data_contract_page.py"}


def public_names() -> list[str]:
    return list(populora_core.__all__)


def examples() -> list[Path]:
    """Additions from outside the tree, a file each."""
    return sorted((ROOT / "examples").glob("add_*.py"))


def touched_by(example: Path) -> list[str]:
    """The files of an addition: the example, and code or settings that name it."""
    name = re.compile(rf"\b{example.stem}\b")
    files = [file for top in CODE for kind in ("py", "toml") for file in (ROOT / top).rglob(f"*.{kind}")]
    naming = {file for file in [*files, ROOT / "pyproject.toml"] if name.search(file.read_text("utf-8"))}
    return sorted(file.relative_to(ROOT).as_posix() for file in naming | {example})


def with_a_column(copy: Path) -> list[str]:
    """Add a column to a table in a copy of the tree, which is made here; the files that change."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    before = {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}
    for name, content in before.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(content)
    for name, (old, new) in COLUMN.items():
        text = (copy / name).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name} has no single {old!r}"
        (copy / name).write_text(text.replace(old, new), encoding="utf-8")
    for name, renderer in RENDERED.items():
        in_copy(copy, renderer, name)
    return sorted(name for name, content in before.items() if (copy / name).read_bytes() != content)


def in_copy(copy: Path, *words: str) -> None:
    """Have Python do this in a copy of the tree, with the copy's modules; it belongs to no session of pytest."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    subprocess.run([sys.executable, *words], cwd=copy, check=True, env=outside | {"PYTHONPATH": str(copy)})


def report() -> Iterator[str]:
    yield f"{len(public_names())} public names"
    for example in examples():
        lines, files = len(example.read_text("utf-8").splitlines()), touched_by(example)
        yield f"{len(files)} files for {example.stem}, which has {lines} lines: {', '.join(files)}"
    with tempfile.TemporaryDirectory() as folder:
        files = with_a_column(Path(folder))
    yield f"{len(files)} files for a column (make docs renders {len(RENDERED)}) and its test: {', '.join(files)}"
    made = makers(House(ROOT))
    yield f"{len(made)} ways of making once"
    yield from (f"  {way}: {', '.join(names)}" for way, names in made.items())


if __name__ == "__main__":
    print(*report(), sep="\n")
