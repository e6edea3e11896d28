"""The prompts of the public benchmarks: one template a model family, text files in `templates/`.

The dialect that a run speaks with its base tells the family. `instruct` asks a chat model (Qwen2.5-Instruct and its
like), whose chat template goes round the dialect's prompts, and which answers in prose with a box or a fenced block;
`compact` is completed by a base model, whose answer ends where it starts on something new.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from populora_core.problems.dialects import NO_MORE, dialect, is_templated
from populora_core.problems.dialects.templates import TemplateFolder

TEMPLATES = Path(__file__).resolve().parent / "templates"
COMPLETED, ASKED = "compact", "instruct"


@cache
def family(name: str) -> str:
    """The family of the templates that fit a dialect.

    Raises:
        ProblemError: there is no such dialect.
    """
    return ASKED if is_templated(dialect(name)) else COMPLETED


def is_completed(name: str) -> bool:
    """True if an answer in the dialect goes on with the prompt, and past its own end."""
    return family(name) == COMPLETED


def ends(name: str, stops: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Texts that end an answer in the dialect: where it is completed these, and the end of a text."""
    return (*stops, NO_MORE) if is_completed(name) else ()


def fill(name: str, template: str, /, **values: str) -> str:
    """The template of the dialect's family with its marks replaced."""
    return _folder(family(name)).fill(template, **values)


def record(name: str, template: str) -> str:
    """Family, template and the first 12 hex digits of its sha256, as kept with every result."""
    path = TEMPLATES / family(name) / f"{template}.txt"
    return f"{family(name)}/{template} {hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"


@cache
def _folder(of: str) -> TemplateFolder:
    return TemplateFolder(TEMPLATES / of)
