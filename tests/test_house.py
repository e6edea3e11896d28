"""The floor plan holds: every import points down, nothing goes in a circle, nothing stands loose."""

from __future__ import annotations

import ast
from pathlib import Path
from statistics import median, quantiles

import pytest
from house import (
    CORE,
    FLOORS,
    MOST_LINES,
    PLUGINS,
    ROOT,
    House,
    circles,
    derived_floors,
    files_of_tests,
    function_lengths,
    makers,
    module_lengths,
    private_names,
    reaches,
    room_of,
)

HOUSE = House(ROOT)
TINY = {
    "populora_core/__init__.py": "",
    "populora_core/support/errors.py": "",
    "populora_core/store/tables.py": "from populora_core.support.errors import Error",
    "populora_core/runs/run.py": "import populora_core.store.tables",
    "bench/speed.py": "from populora_core.runs import run",
}


def built(root: Path, **changed: str) -> House:
    """A small house of four rooms, one on each floor, with some modules' text replaced; `/` is written `__`."""
    texts = TINY | {f"{name.replace('__', '/')}.py": text for name, text in changed.items()}
    for name, text in texts.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return House(root)


def test_every_room_has_a_floor() -> None:
    assert {room for room in HOUSE.rooms if room not in FLOORS} == set()


def test_no_circle_among_rooms() -> None:
    assert circles(HOUSE.ties) == []


def test_no_circle_among_modules() -> None:
    assert circles(HOUSE.imports) == []


def test_at_most_one_import_climbs() -> None:
    assert len(HOUSE.climbs(FLOORS)) <= 1, HOUSE.climbs(FLOORS)


def test_the_core_names_no_plug_in() -> None:
    """What it may use of one comes in by an entry point, so that anybody's counts as much as ours."""
    named = [
        name for name, file in HOUSE.modules.items() if name.startswith(CORE) and PLUGINS in file.read_text()
    ]
    assert named == ["populora_core.commands.app"], "whose warnings are shown as ours"


def test_plug_ins_do_not_use_each_other() -> None:
    rooms = {room_of(name) for name in HOUSE.modules if name.startswith(f"{PLUGINS}.")}
    assert [tie for tie in sorted(HOUSE.ties) if {*tie} <= rooms] == []


def test_the_floors_that_the_imports_draw_are_no_more_than_the_plan_has() -> None:
    assert max(derived_floors(HOUSE.rooms, HOUSE.ties).values()) <= max(FLOORS.values())


def test_nothing_stands_loose_at_the_top_of_the_core() -> None:
    assert HOUSE.loose == []


def test_modules_and_functions_stay_short() -> None:
    long = {name for name, lines in module_lengths(HOUSE).items() if lines > MOST_LINES}
    assert long <= {"verifier_image.runner"}, "one file, so that the image holds one file"
    lengths = function_lengths(HOUSE)
    assert median(lengths) <= 7
    assert quantiles(lengths, n=10)[-1] <= 22


def test_what_is_made_once_is_a_stage_or_a_shard() -> None:
    """Beside a stage's own, only answers to a suite and a study's average have shards of their own key."""
    made = makers(HOUSE)
    assert made["stage"] == ["populora_core.stages.engine"]
    assert set(made["shard"]) <= {
        "populora_core.runs.session",
        "populora_core.stages.engine",
        "populora_core.stages.evaluation",
        "populora_plugins.study.mixtures",
    }


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("with StageWriter(run, 3, 'mine') as writer:\n    pass", "stage"),
        ("done = Shards(compute, key, folder)", "shard"),
        ("done = session.shards(key, folder)", "shard"),
        ("done = ctx.shards.map(parts)", None),
    ],
)
def test_a_maker_is_seen_by_what_it_calls(tmp_path: Path, text: str, way: str | None) -> None:
    made = makers(built(tmp_path, populora_core__runs__run=text))
    assert [each for each, names in made.items() if names] == ([way] if way else [])


def test_the_benchmarks_stay_small() -> None:
    files = (file for name, file in HOUSE.modules.items() if name.split(".")[0] == "bench")
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= 3000


def test_tests_keep_to_what_is_public() -> None:
    """Else a test holds the code as it is written, and not what it does."""
    private = {name for tree in HOUSE.trees.values() for name in private_names(tree)}
    found = [
        f"{file.name}:{line} {name}"
        for file in files_of_tests()
        for line, name in reaches(ast.parse(file.read_text(encoding="utf-8")), private)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from populora_core.runs.run import _begun", ["_begun"]),
        ("run._begun()", ["_begun"]),
        ("monkeypatch.setattr(run, '_begun', 1)", ["_begun"]),
        ("with patch.object(run, '_begun'):\n    pass", ["_begun"]),
        ("class Run:\n    def _begun(self):\n        return self._begun()", []),
        ("import os\nos._exit(0)", []),
    ],
)
def test_a_test_that_reaches_into_a_module_is_seen(text: str, found: list[str]) -> None:
    private = private_names(ast.parse("def _begun():\n    pass"))
    assert [name for _, name in reaches(ast.parse(text), private)] == found


def test_floors_follow_from_imports(tmp_path: Path) -> None:
    house = built(tmp_path)
    assert house.climbs(FLOORS) == circles(house.imports) == house.loose == []
    floors = {"bench": 4, "runs": 3, "store": 2, "support": 1, CORE: 1}
    assert derived_floors(house.rooms, house.ties) == floors


@pytest.mark.parametrize(
    "text",
    [
        "from populora_core.runs.run import Run",
        "from populora_core.runs import run",
        "from importlib import import_module\nimport_module('populora_core.runs.run')",
        "import populora_core.runs.run as run",
        "from ..runs.run import Run",
        "def late():\n    from populora_core.runs.run import Run",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from populora_core.runs.run import Run",
    ],
)
def test_an_import_that_climbs_is_seen_however_it_is_written(tmp_path: Path, text: str) -> None:
    house = built(tmp_path, populora_core__store__tables=text)
    assert house.climbs(FLOORS) == [("populora_core.store.tables", "populora_core.runs.run")]
    assert circles(house.ties) == [["runs", "store"]]


def test_two_rooms_of_one_floor_do_not_use_each_other(tmp_path: Path) -> None:
    house = built(
        tmp_path,
        populora_core__model__base="",
        populora_core__store__tables="from populora_core.model.base import Base",
    )
    assert house.climbs(FLOORS) == [("populora_core.store.tables", "populora_core.model.base")]


def test_a_circle_inside_a_room_is_seen(tmp_path: Path) -> None:
    house = built(
        tmp_path,
        populora_core__store__a="from populora_core.store.b import b",
        populora_core__store__b="from populora_core.store.c import c",
        populora_core__store__c="from populora_core.store.a import a",
    )
    assert circles(house.ties) == []
    assert circles(house.imports) == [[f"populora_core.store.{name}" for name in "abc"]]


def test_a_loose_module_is_seen(tmp_path: Path) -> None:
    assert built(tmp_path, populora_core__session="").loose == ["session"]
