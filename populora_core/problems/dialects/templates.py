"""Prompt templates: text files that a person can edit, with `$field` marks that are filled exactly once.

A value is inserted as it is: marks inside a program or a message are not marks. A literal dollar sign in a
template is written `$$`. The line end that closes a file belongs to the file, not to the prompt.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from string import Template

from populora_core.support.errors import ProblemError

TEMPLATE_ROOT = Path(__file__).resolve().parent.parent / "templates"


class TemplateFolder:
    """The templates of one dialect.

    Raises:
        ProblemError: from `fill`, for a missing file or a mark without a value.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._template = cache(self._read)

    def fill(self, name: str, own: str | None = None, /, **values: str) -> str:
        """The text of template `name` with every mark replaced; values without a mark are left out.

        Args:
            own: the text that a problem type brings, in place of the file.
        """
        template = self._template(name) if own is None else Template(own)
        try:
            return template.substitute(values)
        except (KeyError, ValueError) as error:
            raise ProblemError(
                f"the template {self._folder / name}.txt cannot be filled",
                expected=f"marks among {', '.join('$' + field for field in sorted(values))}",
                got=str(error),
                fix="correct the mark; write $$ for a dollar sign",
            ) from None

    def digest(self, *parts: str) -> str:
        """sha256 over the names and texts of all templates, and over `parts`."""
        texts = [(path.name, path.read_text(encoding="utf-8")) for path in sorted(self._folder.glob("*.txt"))]
        return hashlib.sha256(repr((texts, parts)).encode()).hexdigest()

    def _read(self, name: str) -> Template:
        path = self._folder / f"{name}.txt"
        try:
            return Template(path.read_text(encoding="utf-8").removesuffix("\n"))
        except FileNotFoundError:
            present = ", ".join(sorted(other.name for other in self._folder.glob("*.txt")))
            raise ProblemError(
                f"there is no template {path}",
                expected="one template for each prompt of each problem type",
                got=present or "no template at all",
                fix=f"write {path.name}, or leave this problem type out for this dialect; a type of yours brings its"
                f" texts: templates = {{'{self._folder.name}/propose': ..., '{self._folder.name}/solve': ...}}",
            ) from None
