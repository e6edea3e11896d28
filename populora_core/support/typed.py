"""Commands as the person at the terminal can type them, even where `populora` is not on their PATH."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

from populora_core.support.shipped import IN_CLONE, REPOSITORY

NAME, MODULE = "populora", "populora_core.commands"
_COMMAND = re.compile(rf"(?<![\w/.-]){NAME} (?=[a-z])")
_INSTALL = re.compile(r"(?<![\w/.-])pip install -e (['\"])\.\[")


def typed(text: str) -> str:
    """The text with each `populora COMMAND`, and each extra to install, as it can be typed from here."""
    how, what = "-e ", "." if working_folder() == REPOSITORY else str(REPOSITORY)
    if not IN_CLONE:  # the index has no such package, but whoever installed it has its file
        how, what = "", "WHEEL"
    text = _COMMAND.sub(lambda found: f"{_program(NAME, MODULE)} ", text)
    return _INSTALL.sub(lambda found: f"{_program('pip', 'pip')} install {how}{found[1]}{what}[", text)


def as_root(arguments: str) -> str:
    """A command of ours by `sudo`, which looks for programs on a PATH of its own: by its whole path."""
    own = Path(sys.executable).with_name(NAME)
    program = [own] if own.exists() else [sys.executable, "-m", MODULE]
    return f"sudo {shlex.join(map(str, program))} {arguments}"


def shown(path: Path) -> str:
    """A path as a shell takes it, from the working directory where it lies below."""
    here = working_folder()
    return shlex.quote(str(path.relative_to(here) if here and path.is_relative_to(here) else path))


def working_folder() -> Path | None:
    """The working directory; None once it is removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def _program(name: str, module: str) -> str:
    own = Path(sys.executable).with_name(name)
    if not own.exists():  # it is not installed here
        return f"{shown(Path(sys.executable))} -m {module}"
    found = shutil.which(name)
    return name if found is not None and Path(found).samefile(own) else shown(own)
