"""Output of commands: the console, a display of long work, what was pushed to the hub."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from populora_core.support.hub import Kind, push

console = Console(emoji=False)  # `s[a:b:c]` is code, not a picture


@contextmanager
def narrated(first: str = "") -> Iterator[Callable[[str], None]]:
    """A display of long work: the current line on a terminal, every line elsewhere; on standard error."""
    console = Console(stderr=True, emoji=False)
    if not console.is_terminal:
        if first:
            print(first, file=sys.stderr, flush=True)
        yield lambda line: print(line, file=sys.stderr, flush=True)
        return
    with console.status(f"[dim]{escape(first)}[/]") as status:
        yield lambda line: status.update(f"[dim]{escape(line)}[/]")


def pushed(folder: Path, repository: str | None, kind: Kind = "model") -> None:
    """Push a folder, where a repository is named, and say where it went."""
    if repository is not None:
        with narrated(f"pushing to {repository} ..."):
            address = push(folder, repository, kind)
        print(f"pushed: {address}")
