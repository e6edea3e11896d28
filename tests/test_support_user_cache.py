"""Folders of the user's outside any run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from populora_core.benchmarks.fetched import folder
from populora_core.support.errors import ConfigError
from populora_core.support.user_cache import user_cache


@pytest.mark.parametrize(
    ("place", "variable", "standard"),
    [
        (user_cache, "POPULORA_CACHE", "XDG_CACHE_HOME"),
        (folder, "POPULORA_BENCHMARKS", "XDG_DATA_HOME"),
    ],
)
def test_a_user_without_a_home_is_told_which_variable_to_set(
    place: Callable[[], Path],
    variable: str,
    standard: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a container whose user id is in no list of users."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in (variable, standard, "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(ConfigError, match="no home folder") as refused:
        place()
    assert f"set {variable} to a folder" in refused.value.fix
    monkeypatch.setenv(standard, str(tmp_path / "standard"))
    assert place().is_relative_to(tmp_path / "standard" / "populora")
    monkeypatch.setenv(variable, str(tmp_path / "own"))
    assert place() == tmp_path / "own"
