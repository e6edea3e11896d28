"""Commands about the store that a run's machines share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from populora_core.support.typed import shown, typed
from populora_core.terminal.options import MACHINES, Prefixed, expanded

app = typer.Typer()
store_app = typer.Typer(
    cls=Prefixed, no_args_is_help=True, help="The store that a run's machines share (store.url)."
)
app.add_typer(store_app, name="store", rich_help_panel=MACHINES)

Url = Annotated[
    str, typer.Argument(metavar="URL", help="file:///folder or s3://bucket/prefix, as in store.url")
]


@app.command(rich_help_panel=MACHINES)
def pull(
    url: Url,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="a new or an older folder of the run", callback=expanded)
    ],
) -> None:
    """Make a run directory from the run's shared store, or bring one up to date; `resume` goes on from there.

    It shares the store at URL from then on, whichever it shared before.
    """
    from populora_core.terminal.screen import narrated, say
    from populora_plugins.cluster.pull import pull as pull_run

    with narrated(f"bringing the run from {url} ..."):
        done = pull_run(url, directory)
    say(f"{directory}: {done.brought} stages brought, {done.kept} were here")
    if done.left:
        say(f"it shares {url} from now on, and no longer {done.left}")
    place = shown(directory)
    say(typed(f"populora resume {place} goes on from here; populora inspect {place} looks into it"))


@store_app.command()
def check(url: Url) -> None:
    """Try whether a store refuses a second writer, keeps bytes as they are, and lists and deletes them."""
    from populora_core.sharing.places import open_objects
    from populora_core.terminal.screen import say
    from populora_plugins.cluster.trials import try_out

    for line in try_out(open_objects(url)):
        say(line)


@store_app.command()
def sweep(
    url: Url,
    days: Annotated[float, typer.Option(min=1.0, help="only what is older than this")] = 7.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be removed and stop")] = False,
) -> None:
    """Remove objects that no manifest names and what was never finished, both left by killed writers."""
    from populora_core.sharing.places import open_objects
    from populora_core.terminal.screen import say
    from populora_plugins.cluster.sweeping import sweep as sweep_store

    swept = sweep_store(open_objects(url), days, dry_run)
    for name in (*(item.key for item in swept.stored), *(f"unfinished {key}" for key in swept.unfinished)):
        say(name)
    say(
        f"{'would remove' if dry_run else 'removed'} {len(swept.stored)} objects of {swept.bytes / 2**20:.1f} MiB "
        f"and {len(swept.unfinished)} unfinished files"
    )
