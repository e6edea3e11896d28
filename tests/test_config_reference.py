"""Every setting is described, in the terminal as on the page."""

from __future__ import annotations

import json

import pytest
from configuration_page import render
from typer.testing import CliRunner

from populora_core.commands.app import app
from populora_core.config.load import build_config
from populora_core.support.errors import ConfigError
from populora_core.support.shipped import REPOSITORY
from populora_plugins.machine.settings_reference import groups, matching


def test_every_setting_has_a_meaning() -> None:
    assert [item.key for group in groups() for item in group.settings if not item.meaning] == []


def test_the_defaults_are_those_of_a_configuration_that_sets_nothing() -> None:
    plain = build_config({}, "nothing").as_json()
    for group in groups():
        for item in group.settings:
            value = plain
            for name in item.key.split("."):
                value = value[name]
            assert json.loads(item.default) == value, item.key


def test_the_page_is_up_to_date() -> None:
    page = (REPOSITORY / "docs" / "configuration.md").read_text()
    assert page == render(), "run: make docs"


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (
            "solve",
            [f"solve.{key}" for key in ("attempts", "extra_attempts", "temperature", "top_p", "max_tokens")],
        ),
        ("solve.attempts", ["solve.attempts"]),
        ("max_tokens", ["propose.max_tokens", "solve.max_tokens"]),
    ],
)
def test_a_name_finds_a_section_a_key_or_the_ends_of_keys(asked: str, found: list[str]) -> None:
    assert [item.key for group in matching(asked) for item in group.settings] == found


def test_a_bound_is_the_narrowest_and_nonsense_is_none() -> None:
    kinds = {item.key: item.kind for group in groups() for item in group.settings}
    assert kinds["adapters.rank"] == "whole number ≥ 1 ≤ 4096"
    assert kinds["run.generations"] == "whole number ≥ 1"
    assert kinds["store.keep_states"] == "whole number or all"


def test_the_command_shows_a_setting() -> None:
    said = CliRunner().invoke(app, ["config", "attempts"], env={"COLUMNS": "200"}).stdout
    assert "solve.attempts" in said
    assert "answers per problem" in said


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        matching("solve.atempts")
    assert "solve.attempts" in str(caught.value)
