"""How commands are shown: as the person at the terminal can type them, also where `populora` is not on their PATH."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

NAME = "populora"
_COMMAND = re.compile(rf"(?<![\w/.-]){NAME} (?=[a-z])")


def typed(text: str) -> str:
    """The text with each `populora COMMAND` in it as it can be typed from here."""
    return _COMMAND.sub(lambda found: f"{_program()} ", text)


def shown(path: Path) -> str:
    """A path as a shell takes it, from the working directory where it lies below."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def _program() -> str:
    own = Path(sys.executable).with_name(NAME)
    if not own.exists():  # the project is not installed here
        return f"{shown(Path(sys.executable))} -m flows.cli"
    found = shutil.which(NAME)
    return NAME if found is not None and Path(found).samefile(own) else shown(own)
