"""Commands of plug-ins: each joins by the entry-point group `populora.commands`, under its own name.

An entry point is the place of a `typer.Typer` whose commands join ours; several may name the same one. Another
package's join after ours, and only where each has a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint

import typer
from typer.main import get_group

from populora_core.support.entries import how_to_install, installed_entries, other_package
from populora_core.support.errors import ConfigError

GROUP = "populora.commands"
ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}


def add_plugged(app: typer.Typer) -> list[str]:
    """Add the commands of every plug-in; one that cannot be imported stays visible, and says what it needs.

    Args:
        app: with all commands of ours that are none of a plug-in.

    Returns:
        A sentence for each `typer.Typer` of another package that is left out, since it would replace a command.
    """
    added: list[typer.Typer] = []
    left_out: list[str] = []
    for entry in sorted(installed_entries(GROUP), key=lambda entry: bool(other_package(entry))):
        found = _commands(entry)
        if found in added:
            continue
        package = other_package(entry)
        taken = get_group(app).commands.keys() & get_group(found).commands.keys() if package else set()
        if taken:
            left_out.append(
                f"the commands of the package {package} are left out: populora has {', '.join(sorted(taken))} "
                "already; remove the package, or ask its authors for another name"
            )
            continue
        app.add_typer(found)
        added.append(found)
    return left_out


def _commands(entry: EntryPoint) -> typer.Typer:
    """The commands at an entry point; where they cannot be loaded, one of its name that says why."""
    try:
        found = entry.load()
        if not isinstance(found, typer.Typer):
            raise TypeError(f"a {type(found).__name__}")
    except Exception as error:
        need, found = needed(entry, error), typer.Typer()
        found.command(entry.name, help=f"{need.problem}.", context_settings=ANYTHING)(_refusing(need))
    return found


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
