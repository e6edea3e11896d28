"""Data from outside: text is read by one parser, against a strict model, and no path leads out.

A run directory or a store may have been written by somebody else, damaged or on purpose.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter, ValidationError

from populora_core.support.errors import ArtifactError, DamagedText
from populora_core.support.plain import read_plain

Model = TypeVar("Model")

_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_MEMBER = r"(teacher|student|solo)-[0-9]{2,4}-g[0-9]{4,9}"


def _utc(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None or not text.endswith("+00:00"):
        raise ValueError("a time is in UTC, and says so")
    return text


Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
PlainName = Annotated[str, StringConstraints(pattern=f"^{_PART}$", max_length=200)]
RelativePath = Annotated[str, StringConstraints(pattern=f"^{_PART}(/{_PART})*$", max_length=1000)]
MemberId = Annotated[str, StringConstraints(pattern=f"^{_MEMBER}$")]
AdapterPath = Annotated[str, StringConstraints(pattern=f"^members/{_MEMBER}/g[0-9]{{4,9}}$")]
Time = Annotated[str, AfterValidator(_utc)]
Whole = Annotated[int, Field(ge=0, lt=1 << 63)]


def parse_json(text: str | bytes, where: object) -> Any:
    """The plain data of a JSON document.

    Args:
        where: names the document in the error.

    Raises:
        DamagedText: it is no JSON, or nested too deeply to be read.
    """
    return _parse(json.loads, text, f"{where} is not JSON")


def parse_toml(text: str | bytes, where: object) -> dict[str, Any]:
    """The plain data of a TOML document; raises DamagedText as `parse_json` does."""
    found: dict[str, Any] = _parse(_toml, text, f"{where} is not valid TOML")
    return found


def read_json(path: Path) -> Any:
    """The plain data of a JSON file; raises OSError, and DamagedText as `parse_json` does."""
    return parse_json(read_plain(path), path)


def read_toml(path: Path) -> dict[str, Any]:
    """The plain data of a TOML file; see `read_json`."""
    return parse_toml(read_plain(path), path)


def validated(model: TypeAdapter[Model], text: str | bytes, where: object) -> Model:
    """A JSON document as the model has it, with no value converted to another type.

    Raises:
        DamagedText: it is no JSON, or not as the model has it.
    """
    try:
        return model.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise DamagedText(f"{where}: {place + ': ' if place else ''}{first['msg']}") from error


def wrong_keys(error: ValidationError) -> list[str]:
    """`key: what is wrong with it` for each, but not that a list is too short whose entries are wrong themselves."""
    found = error.errors()
    inner = {each["loc"][0] for each in found if len(each["loc"]) > 1}
    return [
        ": ".join(filter(None, [".".join(map(str, each["loc"])), _wrong(each["type"], each["msg"])]))
        for each in found
        if len(each["loc"]) != 1 or each["loc"][0] not in inner
    ]


def _wrong(kind: str, message: str) -> str:
    return "unknown key" if kind == "extra_forbidden" else message.removeprefix("Value error, ")


def below(folder: Path, path: str | Path) -> Path:
    """The path, relative to the folder, once it is known to lie below it with every link followed.

    The last wall before anything is written, moved or removed there.

    Raises:
        ArtifactError: it leads out of the folder.
    """
    try:
        place = folder / path
        inside = folder.resolve() in place.resolve().parents
    except (OSError, ValueError):  # a loop of links, a name that no file can have
        inside = False
    if not inside:
        raise ArtifactError(
            f"a path leads out of {folder}",
            expected="a file or folder below it, with every link followed",
            got=repr(str(path)[:200]),
            fix="nothing was touched there; take the link away, or do not use what somebody sent you",
        )
    return place


def require_no_way_out(folder: Path, depth: int) -> None:
    """Raise ArtifactError where a link in the folder leads out of it, down to so many levels below."""
    for entry in os.scandir(folder):
        if entry.is_symlink():
            below(folder, entry.name)
        elif depth and entry.is_dir():
            with suppress(FileNotFoundError):  # a run at work renames its temporary folders
                require_no_way_out(Path(entry.path), depth - 1)


def _parse(load: Callable[[Any], Any], text: str | bytes, problem: str) -> Any:
    try:
        return load(text)
    except RecursionError:
        raise DamagedText(f"{problem}: it is nested too deeply") from None
    except ValueError as error:
        raise DamagedText(f"{problem}: {error}") from error


def _toml(text: str | bytes) -> dict[str, Any]:
    return tomllib.loads(text if isinstance(text, str) else text.decode())
