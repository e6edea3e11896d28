"""Arguments and options that several commands have, the groups that `--help` shows commands in, and short names."""

from __future__ import annotations

import os
from glob import escape
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from populora_core.support.errors import PopuloraError, first_line


def run_folder_named(given: str) -> Path:
    """The run that a person means: a folder, or the beginning of the name of one run there or in runs/."""
    from populora_core.store.record import RECORD  # pydantic, which --help does without

    path = Path(given)
    if not path.exists():
        whole = Path("runs", path)
        if (whole / RECORD).is_file():
            return whole
        for place in (path, whole):
            found = [record.parent for record in place.parent.glob(f"{escape(place.name)}*/{RECORD}")]
            if len(found) == 1:
                return found[0]
    return path


def expanded(given: Path | None) -> Path | None:
    """The path with `~` expanded, which bash leaves as it is in --option=~/x."""
    return None if given is None else Path(os.path.expanduser(given))


RUNS, LOOK, MACHINES, SCIENCE = "Run a population", "Look into runs", "Machines", "Science"
GROUPS = (RUNS, LOOK, MACHINES, SCIENCE)


class Prefixed(TyperGroup):
    """A group that lists its commands by topic, and takes the beginning of a name, where no other begins so."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=lambda name: GROUPS.index(self._group(name)))

    def _group(self, name: str) -> str:
        panel = getattr(self.commands[name], "rich_help_panel", None)
        return panel if panel in GROUPS else SCIENCE

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = self.list_commands(ctx)
        found = [cmd_name] if cmd_name in known else [name for name in known if name.startswith(cmd_name)]
        if len(found) > 1:
            ctx.fail(f"{cmd_name!r} begins several commands: {', '.join(found)}")
        return super().get_command(ctx, found[0] if found else cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; what typer would tell by the bare word "Aborted." is told with its cause."""
        try:
            return super().invoke(ctx)
        except typer.Abort:
            raise PopuloraError(
                "a question was not answered",
                got="Ctrl-C or the end of the input",
                fix="give the same command again and answer; its --help says which option answers for you",
            ) from None
        except EOFError as error:
            raise PopuloraError(
                "what this command read from ended too early",
                expected="a process or a file that is there to its end",
                got=first_line(error),
                fix="look for memory shortage, then give the same command again, or populora resume for a run: nothing "
                "committed was lost",
            ) from error


RunDir = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="a run directory, or the beginning of its name", parser=run_folder_named
    ),
]
RunDirs = Annotated[
    list[Path],
    typer.Argument(metavar="DIR...", help="one run, or several", parser=run_folder_named),
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a setting, e.g. run.seed=7")
]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="PLACE",
        help="let the run name this: code package.module:name that you have read, a store or cluster, a base, a file; "
        "remembered here",
    ),
]

Push = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="also push it with its card to this private repository of the hub"),
]
