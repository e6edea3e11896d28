"""Every setting, read from the sections themselves: key, default, what it may be, what it means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from populora_core.config.fields import Section
from populora_core.config.load import Config, closest
from populora_core.support.errors import ConfigError

LOWER, UPPER = {Ge: ("≥", "ge"), Gt: (">", "gt")}, {Le: ("≤", "le"), Lt: ("<", "lt")}
ABSURD = 1e6  # a bound from here on only keeps nonsense out


@dataclass(frozen=True, slots=True)
class DescribedSetting:
    """One key of a configuration.

    Attributes:
        default: as a configuration would say it.
        kind: its type, in words, with the bounds of its value.
    """

    key: str
    default: str
    kind: str
    meaning: str


@dataclass(frozen=True, slots=True)
class DescribedSection:
    """A section: what its settings are for, and the settings."""

    name: str
    meaning: str
    settings: tuple[DescribedSetting, ...]


def groups() -> list[DescribedSection]:
    """All sections, in the order in which a configuration shows them."""
    found = []
    for name, field in Config.model_fields.items():
        section: type[Section] = field.annotation  # type: ignore[assignment]
        meaning = " ".join((section.__doc__ or "").split("\n\n")[0].split())
        found.append(DescribedSection(name, meaning, tuple(_settings(section, name))))
    return found


def matching(key: str) -> list[DescribedSection]:
    """The section of that name, or the settings whose key is it or ends with it.

    Raises:
        ConfigError: no setting has it.
    """
    known = groups()
    found = []
    for group in known:
        own = tuple(
            setting
            for setting in group.settings
            if key in (group.name, setting.key) or setting.key.endswith(f".{key}")
        )
        if own:
            found.append(DescribedSection(group.name, group.meaning, own))
    if not found:
        keys = [setting.key for group in known for setting in group.settings]
        raise ConfigError(
            f"no setting is called {key}",
            got=key,
            fix=closest(key, keys),
        )
    return found


def _settings(section: type[Section], prefix: str) -> Iterator[DescribedSetting]:
    for name, field in section.model_fields.items():
        key = f"{prefix}.{name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _settings(field.annotation, key)
        else:
            yield DescribedSetting(key, _toml(field.default), _kind(field), field.description or "")


def _kind(field: FieldInfo) -> str:
    """The type with the narrowest bound on either side."""
    words = [_words(field.annotation)]
    for signs, narrowest in ((LOWER, max), (UPPER, min)):
        bounds = [
            (getattr(limit, name), sign)
            for limit in field.metadata
            for kind, (sign, name) in signs.items()
            if isinstance(limit, kind) and abs(getattr(limit, name)) < ABSURD
        ]
        if bounds:
            bound, sign = narrowest(bounds)
            words.append(f"{sign} {bound:g}")
    return " ".join(words)


def _words(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(map(str, inner))
    if origin in (Union, UnionType):
        return " or ".join(map(_words, inner))
    if origin is tuple:
        return f"list of {_words(inner[0])}"
    if origin is dict:
        return "table"
    plain = {int: "whole number", float: "number", str: "text", bool: "true or false", type(None): "none"}
    return plain.get(annotation, _words(inner[0]) if inner else str(annotation))


def _toml(value: object) -> str:
    """The value as TOML has it."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)
