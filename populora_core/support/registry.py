"""Registries of what the configuration names: functions with settings, problem types, dialects, benchmarks.

A registry maps a name to a thing, or to its place as "package.module:name". Another package's joins in two ways
without a line changed here: by an entry point of the registry's group, under a name of its own, or by its place,
named in the configuration. Both reach worker processes. An entry point in the form `place [extra]` says which extra
brings the packages that it needs. A function's settings are its keyword-only arguments,
whose defaults are its own; what their annotations do not allow, by type or by pydantic's `Field`, is refused before
any work.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import EntryPoint
from typing import Annotated, Any, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from populora_core.support.entries import how_to_install, installed_entries
from populora_core.support.errors import PopulationError, PopuloraError
from populora_core.support.trust import lies_in, require_trusted

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Dropped = Annotated[float, Field(ge=0.0, lt=1.0)]  # what survives is divided by 1 - drop
Strength = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


def is_place(name: str) -> bool:
    """True if a name is a place "package.module:name" and not a key."""
    return ":" in name


class Registry(dict[str, Any]):
    """A registry of things that a configuration may name: our own by key, other packages' see above.

    Args:
        ours: name -> thing, or its place, imported on first use.
        group: of entry points, such as "populora.problem_types".
        what: one of them, for errors ("problem type").
        setting: the key of the configuration that names one.
        error: what is raised.
        protocol: what each must have; a class or a maker that takes no arguments is called. None for functions.
        makes: what the things that its functions make must have (see `make`).

    Attributes:
        made: the things of other packages that were loaded so far.
    """

    def __init__(
        self,
        ours: Mapping[str, Any],
        *,
        group: str,
        what: str,
        setting: str,
        error: type[PopuloraError] = PopulationError,
        protocol: type | None = None,
        makes: type | None = None,
    ) -> None:
        super().__init__(ours)
        self.group, self.what, self.setting = group, what, setting
        self._error, self._protocol, self._makes = error, protocol, makes
        self.made: dict[str, Any] = {}

    def names(self) -> list[str]:
        """Every name that is known here, those of installed packages too."""
        return sorted({*self, *(entry.name for entry in installed_entries(self.group))})

    def find(self, name: str) -> Any:
        """The thing of this name; another package's is made once.

        Raises:
            PopuloraError: no such name, a place that cannot be imported, or a thing that lacks what the kind must
                have: the error names it.
        """
        if is_place(name):
            if not lies_in(name):
                raise self._unknown(name, f"No module named {name.partition(':')[0].partition('.')[0]!r}")
            require_trusted(name)
        if name in self.made:
            return self.made[name]
        found = self[name] if name in self else self._place(name)
        thing = found.value.partition(" [")[0] if isinstance(found, EntryPoint) else found
        try:
            thing = pkgutil.resolve_name(thing) if isinstance(thing, str) else thing
            if self._protocol is not None and callable(thing):
                thing = thing()
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            if isinstance(found, EntryPoint) and found.extras and isinstance(error, ImportError):
                raise self._error(
                    f"the {self.what} {name} needs a package that is not installed",
                    expected=f"the extra `{','.join(found.extras)}`",
                    got=str(error),
                    fix=f"{how_to_install(found)}, or take {name} out of {self.setting}",
                ) from error
            raise self._unknown(name, str(error)) from error
        self._require(name, thing)
        if name not in self:
            self.made[name] = thing
        return thing

    def known(self, name: str) -> Any | None:
        """The thing of this name; None where looking at data must do without: not installed, or not the user's."""
        try:
            return self.find(name)
        except PopuloraError:
            return None

    def bound(self, name: str, given: Mapping[str, Any]) -> Callable[..., Any]:
        """The function of this name with its settings (see `find` and `settings_of`)."""
        function = self.find(name)
        return partial(function, **settings_of(name, function, given))

    def make(self, name: str, *arguments: Any) -> Any:
        """Call the function of this name and return what it makes.

        Raises:
            PopuloraError: see `find`; or what it made lacks what the kind must have: the error names it.
        """
        made = self.find(name)(*arguments)
        if self._makes is not None:
            self._require_parts(name, made, self._makes)
        return made

    def _place(self, name: str) -> str | EntryPoint:
        """The place that the name is, or the entry point by which an installed package registers it."""
        if is_place(name):
            return name
        for entry in installed_entries(self.group):
            if entry.name == name:
                return entry
        raise self._unknown(name, repr(name))

    def _require(self, name: str, thing: object) -> None:
        if self._protocol is not None:
            self._require_parts(name, thing, self._protocol)
        elif not callable(thing):
            raise self._unknown(name, repr(name))

    def _require_parts(self, name: str, thing: object, protocol: type) -> None:
        missing = [part for part in _parts(protocol) if not hasattr(thing, part)]
        if missing:
            part = missing[0]
            method = callable(getattr(protocol, part, None))
            raise self._error(
                f"the {self.what} {name} has no {'method' if method else 'attribute'} `{part}`",
                expected=", ".join(_parts(protocol)),
                got=f"{type(thing).__module__}.{type(thing).__qualname__} without {', '.join(missing)}",
                fix=f"add it; {protocol.__module__}.{protocol.__name__} says what it must do",
            )

    def _unknown(self, name: str, got: str) -> PopuloraError:
        return self._error(
            f"{name!r} is no {self.what}",
            expected=f"one of {', '.join(self.names())}; or a place as package.module:name",
            got=got,
            fix=f"name a known one in {self.setting}, or install the package that registers it in {self.group}",
        )


def _parts(protocol: type) -> list[str]:
    """The public names that a class must have to follow the protocol."""
    return [
        name for name in (*inspect.get_annotations(protocol), *vars(protocol)) if not name.startswith("_")
    ]


def settings_of(name: str, function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The function's keyword-only arguments with their defaults, overridden by the settings.

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
            got=", ".join(unknown),
            fix="correct the name or leave the parameter out",
        )
    hints = _hints(function)
    for key, value in given.items():
        try:
            TypeAdapter(hints.get(key, Any)).validate_python(value, strict=True)
        except ValidationError as error:
            raise PopulationError(
                f"{name} cannot take this value of its parameter {key!r}",
                expected=error.errors()[0]["msg"],
                got=repr(value),
                fix="correct the value or leave the parameter out",
            ) from error
    settings = known | dict(given)
    if missing := [key for key, value in settings.items() if value is inspect.Parameter.empty]:
        raise PopulationError(
            f"{name} needs a value of its parameter {missing[0]!r}",
            expected=", ".join(known),
            got=", ".join(sorted(given)) or "none",
            fix="give the parameter, or give the function a default",
        )
    return settings


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function's arguments; none where a user's cannot be read."""
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        return {}
