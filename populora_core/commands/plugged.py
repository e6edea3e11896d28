"""Commands of plug-ins: each joins by the entry-point group `populora.commands`, under its own name.

An entry point is the place of a `typer.Typer` whose commands join ours; several may name the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint

import typer

from populora_core.support.entries import how_to_install, installed_entries
from populora_core.support.errors import ConfigError

GROUP = "populora.commands"
ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}


def add_plugged(app: typer.Typer) -> None:
    """Add the command of every plug-in; one that cannot be imported stays visible, and says what it needs."""
    added: list[typer.Typer] = []
    for entry in installed_entries(GROUP):
        try:
            found = entry.load()
            if not isinstance(found, typer.Typer):
                raise TypeError(f"a {type(found).__name__}")
        except Exception as error:
            need = needed(entry, error)
            app.command(entry.name, help=f"{need.problem}.", context_settings=ANYTHING)(_refusing(need))
        else:
            if found not in added:
                app.add_typer(found)
                added.append(found)


def needed(entry: EntryPoint, error: Exception) -> ConfigError:
    """The error that says which extra brings a command, or what is wrong with its package."""
    if entry.extras and isinstance(error, ImportError):
        return ConfigError(
            f"`{entry.name}` comes with the extra `{','.join(entry.extras)}`, which is not installed",
            got=str(error),
            fix=how_to_install(entry),
        )
    return ConfigError(
        f"`{entry.name}` cannot be loaded",
        expected=f"a typer.Typer at {entry.value}, which the entry point of {GROUP} names",
        got=f"{type(error).__name__}: {error}",
        fix="install its package again, or remove it",
    )


def _refusing(need: ConfigError) -> Callable[[], None]:
    def refuse() -> None:
        raise need

    return refuse
