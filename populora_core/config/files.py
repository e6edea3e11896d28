"""Configurations as plain data: files, of which one may extend another, and settings given beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from populora_core.support.errors import ConfigError, DamagedText
from populora_core.support.received import parse_toml, read_toml

EXTENDS = "extends"


def read_config(path: Path) -> dict[str, Any]:
    """The sections of a TOML file; what it extends gives every key that it does not set itself.

    `extends = "FILE"`, relative to the file that says so, stands above the first section. Sections are merged
    key by key; a key's value replaces the whole value that it had, tables and lists included.

    Raises:
        ConfigError: a file is missing, is not valid TOML, or extends itself by way of others.
    """
    return _read(path, ())


def apply_override(data: dict[str, Any], override: str) -> None:
    """Set one key of plain data, as `section.key=value` says it; a value that is not TOML is taken as text.

    A key may lie in a table of its section: `trackers.wandb.mode=online`.

    Raises:
        ConfigError: it does not name a section and a key.
    """
    key, equals, text = override.partition("=")
    *sections, name = parts = key.strip().split(".")
    if not equals or not sections or not all(parts):
        raise ConfigError(
            f"cannot read the setting {override!r}",
            expected="section.key=value, for instance run.seed=7",
            fix="quote it in the shell when the value holds spaces",
        )
    table = data
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{section} is not a section", got=repr(table), fix="use [section] in the file")
    try:
        table[name] = parse_toml(f"value = {text}", override)["value"]
    except DamagedText:
        table[name] = text


def _read(path: Path, descent: tuple[Path, ...]) -> dict[str, Any]:
    data = _parse(path, descent)
    if EXTENDS not in data:
        return data
    name = data.pop(EXTENDS)
    if not isinstance(name, str):
        raise ConfigError(
            f"{path}: {EXTENDS} names no file",
            expected=f'{EXTENDS} = "demo.toml", a path relative to this file',
            got=repr(name),
        )
    above, descent = path.parent / name, (*descent, path)
    if above.resolve() in (file.resolve() for file in descent):
        raise ConfigError(
            f"{path} extends itself",
            expected="a chain of files that ends",
            got=" -> ".join(map(str, (*descent, above))),
            fix=f"take {EXTENDS} out of one of them",
        )
    return merged(_read(above, descent), data)


def _parse(path: Path, descent: tuple[Path, ...]) -> dict[str, Any]:
    if not path.is_file():
        if descent:
            raise ConfigError(
                f"{descent[-1]} extends a file that is not there",
                expected=f"a TOML file, relative to {descent[-1].parent}",
                got=str(path),
                fix=f"correct the path in {EXTENDS}",
            )
        raise ConfigError(
            f"there is no configuration file {path}",
            expected="a TOML file",
            fix="name another with --config; populora run takes one of ours with --preset, such as quick",
        )
    try:
        return read_toml(path)
    except DamagedText as error:
        raise ConfigError(error.problem, fix="correct that line") from error


def merged(above: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of both; where both set a key, it has the value of `own`."""
    found = dict(above)
    for section, settings in own.items():
        inherited = above.get(section)
        if isinstance(inherited, dict) and isinstance(settings, dict):
            settings = inherited | settings
        found[section] = settings
    return found
