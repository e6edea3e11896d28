"""Output of commands: the console, lines and tables, a display of long work, what was pushed to the hub."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from populora_core.support.hub import Kind, push

console = Console(emoji=False)  # `s[a:b:c]` is code, not a picture


def say(line: str) -> None:
    """Print a line as it is, however long."""
    console.print(line, soft_wrap=True, highlight=False, markup=False)


def titled_table(
    title: str | None,
    header: Sequence[str],
    rows: Iterable[Sequence[RenderableType]],
    right: Collection[str] = (),
    **style: Any,
) -> Table:
    """A table under its title; the columns named in `right` hold numbers."""
    table = Table(title=title, title_justify="left", **style)
    for name in header:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


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
