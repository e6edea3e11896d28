"""The prompts of the public benchmarks: one template a model family, text files in `templates/`.

A family is the dialect that a run speaks with its base. `instruct` asks a chat model (Qwen2.5-Instruct and its
like), which is answered in prose with a box or a fenced block; `compact` is completed by a base model, whose
answer ends where it starts on something new.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from populora_core.problems.dialects.templates import TemplateFolder
from populora_core.support.errors import BenchmarkError

TEMPLATES = Path(__file__).resolve().parent / "templates"
COMPLETION = "compact"


def fill(family: str, name: str, **values: str) -> str:
    """Template `name` of the family with its marks replaced.

    Raises:
        BenchmarkError: there is no such template.
    """
    _path(family, name)
    return _folder(family).fill(name, **values)


def record(family: str, name: str) -> str:
    """Family, name and the first 12 hex digits of the template's sha256, as kept with every result."""
    digest = hashlib.sha256(_path(family, name).read_bytes()).hexdigest()
    return f"{family}/{name} {digest[:12]}"


@cache
def _folder(family: str) -> TemplateFolder:
    return TemplateFolder(TEMPLATES / family)


def _path(family: str, name: str) -> Path:
    path = TEMPLATES / family / f"{name}.txt"
    if not path.is_file():
        raise BenchmarkError(
            f"there is no template for the model family {family!r}",
            expected=", ".join(sorted(folder.name for folder in TEMPLATES.iterdir())),
            got=family,
            fix=f"write {path}",
        )
    return path
