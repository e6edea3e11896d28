"""Configurations that extend others, and the shipped ones that do."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from populora_core.config.files import read_config
from populora_core.config.load import load_config
from populora_core.population.variation import CROSSOVERS, MUTATIONS
from populora_core.support.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "configs"
ABLATIONS = sorted((CONFIGS / "ablations").glob("*.toml"))
DERIVED = [CONFIGS / "solo.toml", CONFIGS / "solo-total.toml", *ABLATIONS]


def files(folder: Path, **texts: str) -> Path:
    """Write NAME.toml for each; the first one's path."""
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(text)
    return folder / f"{next(iter(texts))}.toml"


def test_what_a_file_does_not_set_comes_from_the_one_that_it_extends(tmp_path: Path) -> None:
    path = files(
        tmp_path,
        child="extends = 'parent.toml'\n[solve]\nattempts = 3\n[match]\nscheme = 'uniform'",
        parent="extends = 'grandparent.toml'\n[run]\nseed = 1\n[solve]\nattempts = 5\nmax_tokens = 40",
        grandparent="[run]\nseed = 9\ngenerations = 7\n[solve]\ntop_p = 0.5",
    )
    assert read_config(path) == {
        "run": {"seed": 1, "generations": 7},
        "solve": {"attempts": 3, "max_tokens": 40, "top_p": 0.5},
        "match": {"scheme": "uniform"},
    }


def test_a_value_replaces_the_whole_value_that_it_had(tmp_path: Path) -> None:
    path = files(
        tmp_path,
        child="extends = 'parent.toml'\n[evolve]\nparameters = {tournament = {size = 2}}\nmutations = []",
        parent="[evolve]\nparameters = {average = {}}\nmutations = ['copy_parent']",
    )
    assert read_config(path) == {"evolve": {"parameters": {"tournament": {"size": 2}}, "mutations": []}}


def test_the_path_counts_from_the_file_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "below").mkdir()
    files(tmp_path, parent="[run]\nseed = 4")
    path = files(tmp_path / "below", child="extends = '../parent.toml'")
    monkeypatch.chdir(tmp_path / "below")
    assert load_config(path).run.seed == load_config("child.toml").run.seed == 4


@pytest.mark.parametrize(
    ("texts", "parts"),
    [
        ({"a": "extends = 'b.toml'"}, ["a.toml extends a file that is not there", "b.toml"]),
        ({"a": "extends = 'a.toml'"}, ["a.toml extends itself", "->"]),
        (
            {"a": "extends = 'b.toml'", "b": "extends = './c.toml'", "c": "extends = 'b.toml'"},
            ["c.toml extends itself", "a.toml -> ", "c.toml -> "],
        ),
        ({"a": "extends = ['b.toml']", "b": ""}, ["a.toml: extends names no file", "['b.toml']"]),
        ({"a": "extends = 'b.toml'", "b": "[run\nseed = 1"}, ["b.toml is not valid TOML", "line 1"]),
        ({"a": "extends = 'b.toml'", "b": "[solve]\natempts = 3"}, ["solve.atempts: unknown key"]),
        ({"a": "extends = 'b.toml'\n[solve]\natempts = 3", "b": ""}, ["solve.atempts: unknown key"]),
        ({"a": "extends = 'b.toml'\nsolve = 3", "b": "[solve]\nattempts = 3"}, ["solve", "got 3"]),
        ({"a": "[run]\nextends = 'b.toml'", "b": ""}, ["run.extends: unknown key"]),
    ],
)
def test_a_chain_that_cannot_be_read_is_refused_by_name(
    tmp_path: Path, texts: dict[str, str], parts: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(files(tmp_path, **texts))
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("population", "parts"),
    [
        ("solo = 1", ["plays alone", "4 teachers and 4 students", "teachers = 0 and students = 0"]),
        ("solo = 1\nteachers = 0\nstudents = 2", ["plays alone", "0 teachers and 2 students"]),
        ("teachers = 0", ["no one proposes", "solo = 1"]),
        ("students = 0", ["no one solves"]),
        ("solo = 2\nteachers = 0\nstudents = 0", ["population.solo", "less than or equal to 1"]),
    ],
)
def test_a_population_that_cannot_play_is_refused(tmp_path: Path, population: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(files(tmp_path, a=f"[population]\n{population}"))
    for part in parts:
        assert part in str(caught.value)


# What is shipped


@pytest.mark.parametrize("path", DERIVED, ids=lambda path: path.stem)
def test_a_shipped_config_holds_only_what_differs(path: Path) -> None:
    own = tomllib.loads(path.read_text())
    above = load_config(path.parent / own.pop("extends")).as_json()
    here = load_config(path).as_json()
    for section, settings in own.items():
        for key in settings:
            assert here[section][key] != above[section][key], f"{section}.{key}"


@pytest.mark.parametrize("path", DERIVED, ids=lambda path: path.stem)
def test_a_shipped_config_is_described(path: Path) -> None:
    assert f"`{path.stem}`" in (ROOT / "docs" / "evolution.md").read_text()


@pytest.mark.parametrize("operator", [*MUTATIONS, *CROSSOVERS])
def test_every_operator_can_be_had_alone(operator: str) -> None:
    evolve = load_config(CONFIGS / "ablations" / f"only-{operator}.toml").evolve
    assert (*evolve.mutations, *evolve.crossovers) == (operator,)
    assert evolve.crossover_probability == float(operator in CROSSOVERS)


def test_the_single_agent_is_asked_for_one_members_share_or_for_everything() -> None:
    """A member of the demo trains on as many completions as `solo`, on average; all of them as `solo-total`."""

    def completions(name: str) -> int:
        config = load_config(CONFIGS / f"{name}.toml")
        return config.proposals + config.attempts

    demo = load_config(CONFIGS / "demo.toml").population
    assert completions("solo") * (demo.teachers + demo.students) == completions("demo")
    assert completions("solo-total") == completions("demo")
