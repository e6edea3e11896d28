"""Output of commands: the console, lines and tables, a display of long work, what was pushed to the hub."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text, TextType

from populora_core.support.hub import Kind, push
from populora_core.support.visible import visible


class Screen(Console):
    """A console that obeys no text: `[b]` is no markup, `:x:` no picture, and an escape sequence is shown by signs.

    Styles come as `rich.text.Text`. What a model or a folder's name may hold is made `visible` before it is measured,
    where columns should line up.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, markup=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


console = Screen()


def say(*parts: str | tuple[str, str]) -> None:
    """Print a line as it is, however long; a part in a style is a pair of both."""
    console.print(Text.assemble(*parts), soft_wrap=True)


def titled_table(
    title: TextType | None,
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
    errors = Screen(stderr=True)
    if not errors.is_terminal:
        if first:
            errors.print(first, soft_wrap=True)
        yield lambda line: errors.print(line, soft_wrap=True)
        return
    with errors.status(Text(first, "dim")) as status:
        yield lambda line: status.update(Text(line, "dim"))


def pushed(folder: Path, repository: str | None, kind: Kind = "model") -> None:
    """Push a folder, where a repository is named, and say where it went."""
    if repository is not None:
        with narrated(f"pushing to {repository} ..."):
            address = push(folder, repository, kind)
        say(f"pushed: {address}")
