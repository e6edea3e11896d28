"""Functions that the configuration names, and their settings.

A registry maps a name to a function, or to its place as "package.module:function". A function of a user's own
joins in two ways: put into the registry, or named in the configuration by its place, which also reaches
worker processes. Its settings are its keyword-only arguments, whose defaults are the operator's; what their
annotations do not allow, by type or by pydantic's `Field`, is refused before any work.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from populora_core.support.errors import PopulationError

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Dropped = Annotated[float, Field(ge=0.0, lt=1.0)]  # what survives is divided by 1 - drop
Strength = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


def is_place(name: str) -> bool:
    """Whether a name is a place "package.module:function" and not a key."""
    return ":" in name


def find(registry: Mapping[str, Callable[..., Any] | str], name: str, what: str, setting: str) -> Any:
    """The function of this name.

    Args:
        what: what the registry holds, for the error ("selection").
        setting: the key of the configuration that names it.

    Raises:
        PopulationError: no such key, or a place that cannot be imported or holds no function.
    """
    entry = registry.get(name, name if is_place(name) else None)
    try:
        function = pkgutil.resolve_name(entry) if isinstance(entry, str) else entry
    except (ImportError, AttributeError, ValueError) as error:
        raise _unknown(registry, name, what, setting, str(error)) from error
    if not callable(function):
        raise _unknown(registry, name, what, setting, repr(name))
    return function


def settings_of(name: str, function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The function's keyword-only arguments with their defaults, overridden by what is given.

    Raises:
        PopulationError: a setting that the function does not have, a value that its annotation does not allow,
            or a required setting that is missing.
    """
    known = {
        argument.name: argument.default
        for argument in inspect.signature(function).parameters.values()
        if argument.kind is argument.KEYWORD_ONLY
    }
    if unknown := sorted(given.keys() - known.keys()):
        raise PopulationError(
            f"{name} has no parameter {unknown[0]!r}",
            expected=", ".join(known) or "no parameters",
            came=", ".join(unknown),
            remedy="correct the name or leave the parameter out",
        )
    hints = _hints(function)
    for key, value in given.items():
        try:
            TypeAdapter(hints.get(key, Any)).validate_python(value, strict=True)
        except ValidationError as error:
            raise PopulationError(
                f"{name} cannot take this value of its parameter {key!r}",
                expected=error.errors()[0]["msg"],
                came=repr(value),
                remedy="correct the value or leave the parameter out",
            ) from error
    settings = known | dict(given)
    if missing := [key for key, value in settings.items() if value is inspect.Parameter.empty]:
        raise PopulationError(
            f"{name} needs a value of its parameter {missing[0]!r}",
            expected=", ".join(known),
            came=", ".join(sorted(given)) or "none",
            remedy="give the parameter, or give the function a default",
        )
    return settings


def bound(
    registry: Mapping[str, Callable[..., Any] | str],
    name: str,
    what: str,
    setting: str,
    given: Mapping[str, Any],
) -> Callable[..., Any]:
    """The function of this name with its settings (see `find` and `settings_of`)."""
    function = find(registry, name, what, setting)
    return partial(function, **settings_of(name, function, given))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function's arguments; none where a user's cannot be read."""
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        return {}


def _unknown(registry: Mapping[str, Any], name: str, what: str, setting: str, came: str) -> PopulationError:
    return PopulationError(
        f"{name!r} is no {what}",
        expected="one of " + ", ".join(sorted(registry)) + "; or a function as package.module:function",
        came=came,
        remedy=f"name a registered one in {setting}",
    )
