"""Runs, stores and adapters that somebody sent, changed at random: no command that looks touches anything outside.

Every case changes a real small run in a few places and has each command look at it, in a process that is watched (see
`watched.py`): by audit hooks for what Python imports, opens, changes and starts, by the kernel for everything else.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shared_run import begin, make

from populora_core.support import owner

pytestmark = [pytest.mark.thorough, pytest.mark.loop]

SEED, CASES, STORES, CHANGES, COMMANDS = 3, 24, 30, 3, 5
WATCHED = Path(__file__).with_name("watched.py")
PLACES = (
    "harmful:thing",
    "pytest:main",
    "this:zen",
    "antigravity:fly",
    "not_here_at_all:x",
    "harmful.part:x",
)
ODD = (
    None,
    -1,
    1e308,
    "",
    "x" * 9000,
    [],
    {},
    [[]],
    True,
    "\x1b[2J",
    "<script>alert(1)</script>",
    "'; SELECT 1; --",
)
NOT_THERE = (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, duckdb.Error)
"""What a change raises where an earlier one took away what it changes."""
Change = Callable[[Path, random.Random, Path], None]


def edited(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def spots(document: Any) -> list[tuple[Any, Any]]:
    """Every container with a key of it, of a JSON document."""
    keys = (
        list(document)
        if isinstance(document, dict)
        else range(len(document))
        if isinstance(document, list)
        else []
    )
    found = [(document, key) for key in keys]
    for key in keys:
        found += spots(document[key])
    return found


def hostile(draw: random.Random, outside: Path) -> Any:
    lead_out = (
        str(outside / "secret.json"), str(outside), "../../outside/secret.json", "../../../outside/model",
        (outside / "store").as_uri(), str(outside / "suite.toml"), f"file:{outside}/secret.json",
        str(outside / "model"), str(outside / "secret.parquet"), f"{outside}/*", "~/secret",
    )  # fmt: skip
    return draw.choice((draw.choice(PLACES), draw.choice(lead_out), draw.choice(lead_out), draw.choice(ODD)))


def names_code(run: Path, draw: random.Random, outside: Path) -> None:
    def change(document: Any) -> Any:
        config, place = document["config"], draw.choice(PLACES)
        section, key = draw.choice([
            ("base", "dialect"), ("match", "scheme"), ("grade", "teacher_reward"), ("update", "estimator"),
            ("anchors", "source"), ("evolve", "fitness"), ("evolve", "selection"), ("evolve", "replacement"),
            ("propose", "types"), ("evolve", "mutations"), ("evolve", "crossovers"),
        ])  # fmt: skip
        config[section][key] = [place] if isinstance(config[section].get(key), list) else place
        return document

    edited(run / "run.json", change)


def names_paths(run: Path, draw: random.Random, outside: Path) -> None:
    def change(document: Any) -> Any:
        config = document["config"]
        section, key, value = draw.choice([
            ("base", "path", str(outside / "model")), ("evaluate", "suite", str(outside / "suite.toml")),
            ("update", "corpus", str(outside / "secret.json")), ("store", "url", (outside / "store").as_uri()),
            ("anchors", "parameters", {"path": str(outside / "secret.json")}),
            ("adapters", "start_from", {"solo": [str(outside / "model")], "student": [str(outside / "model")]}),
            ("evaluate", "suite", "../../outside/suite.toml"), ("base", "path", "bundled:../../../outside"),
        ])  # fmt: skip
        config[section][key] = value
        if section == "update":
            config["update"]["corpus_share"] = 0.2
        return document

    edited(run / "run.json", change)


def changes_a_document(run: Path, draw: random.Random, outside: Path) -> None:
    path = draw.choice(
        sorted([*run.rglob("manifest.json"), *run.glob("*.json"), *run.glob("blocks/**/*.json")])
    )

    def change(document: Any) -> Any:
        for _ in range(draw.randint(1, 3)):
            if found := spots(document):
                holder, key = draw.choice(found)
                holder[key] = hostile(draw, outside)
        return document

    edited(path, change)


def changes_rows(run: Path, draw: random.Random, outside: Path) -> None:
    """Rows under a manifest that has their hash."""
    path = draw.choice(sorted(run.glob("generations/*/*/*.parquet")))
    table = pq.read_table(path)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(table.num_columns)
        field = table.schema.field(place)
        if pa.types.is_string(field.type) and draw.random() < 0.8:
            values = [str(hostile(draw, outside)) for _ in range(table.num_rows)]
            table = table.set_column(place, field, pa.array(values, field.type))
        elif draw.random() < 0.3:
            table = table.remove_column(place)
        else:
            table = table.set_column(
                place, field.name, pa.array(["../../outside/secret.json"] * table.num_rows)
            )
    pq.write_table(table, path)
    data = path.read_bytes()

    def change(document: Any) -> Any:
        for file in document["files"]:
            if file["name"] == path.name:
                file |= {
                    "bytes": len(data),
                    "sha256": hashlib.sha256(data).hexdigest(),
                    "rows": table.num_rows,
                }
        return document

    edited(path.with_name("manifest.json"), change)


def links(run: Path, draw: random.Random, outside: Path) -> None:
    path = draw.choice(sorted(each for each in run.rglob("*") if not each.is_symlink()))
    target = outside / draw.choice(("secret.json", "secret.parquet", "secret.toml", "model"))
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(draw.choice((target, os.path.relpath(target, path.parent))))


def leaves_more(run: Path, draw: random.Random, outside: Path) -> None:
    """A file or folder that no one asked for, under a name that somebody may look for."""
    name = draw.choice([
        "report.html", "catalogue.duckdb.wal", "catalogue.mark", "redraws.json", "heartbeat.json", "lock", "suite.toml",
        "generations/0009", "generations/0001/solve/..", "blocks", "members/student-00-g0000/g0009", "conftest.py",
        "sitecustomize.py", "duckdb.py", "evaluations", "superseded", ".duckdbrc", "pyproject.toml", "logging.py",
    ])  # fmt: skip
    path = run / name
    if path.exists() or path.is_symlink():
        return
    if draw.random() < 0.5:
        path.symlink_to(outside / draw.choice(("secret.json", "model")))
    else:
        path.write_text("import harmful\n" if name.endswith(".py") else '{"0001/solve": 1}')


def has_a_catalogue(run: Path, draw: random.Random, outside: Path) -> None:
    """Views of the sender's, as `stale` and others ask for them."""
    view = draw.choice(["main.problems", "tables.source", "main.stages", "main.members", "main.attempts"])
    files, given = draw.choice([
        ("secret.json", "read_text({})"), ("secret.parquet", "read_parquet({})"), ("secret.*", "glob({})"),
        ("secret.*", "read_csv({}, ignore_errors = true)"),
    ])  # fmt: skip
    read = given.format(f"'{outside}/{files}'")
    with duckdb.connect(run / "catalogue.duckdb") as connection:
        connection.execute(f"CREATE OR REPLACE VIEW {view} AS SELECT *, 'x' AS digest FROM {read}")


def describes_an_adapter(run: Path, draw: random.Random, outside: Path) -> None:
    path = draw.choice(sorted(run.glob("members/*/*/adapter_config.json")))
    key, value = draw.choice([
        ("base_model_name_or_path", str(outside / "model")), ("auto_mapping", {"base_model_class": "harmful:thing"}),
        ("target_modules", "(.*)*x"), ("peft_type", "PROMPT_TUNING"), ("r", float("inf")), ("lora_alpha", 10**400),
        ("revision", "../../x"), ("tokenizer_name_or_path", str(outside / "model")), ("modules_to_save", ["lm_head"]),
        ("layer_replication", [[0, 10**9]]), ("trust_remote_code", True), ("r", -1), ("r", "8"), ("lora_alpha", None),
    ])  # fmt: skip
    edited(path, lambda document: document | {key: value})


CHANGERS: tuple[Change, ...] = (
    names_code, names_paths, changes_a_document, changes_rows, links, leaves_more, has_a_catalogue,
    describes_an_adapter,
)  # fmt: skip


def bait(outside: Path, desk: Path) -> None:
    """What must stay untouched, under names and in forms that a careless reader would take."""
    (outside / "model").mkdir(parents=True)
    (outside / "store").mkdir()
    (outside / "secret").write_text("mine\n")  # the reader's home is there, too
    (outside / "secret.json").write_text('{"mine": 1}\n')
    (outside / "secret.toml").write_text("mine = 1\n")
    pq.write_table(pa.table({"mine": [1]}), outside / "secret.parquet")
    entry = 'benchmark = "harmful:thing"\ndataset = "file:/secret"\n'
    (outside / "suite.toml").write_text(f'suite = "mine"\n[[benchmarks]]\n{entry}')
    for name in ("config.json", "adapter_config.json", "tokenizer_config.json"):
        (outside / "model" / name).write_text("{}")
    desk.mkdir()
    for name in ("harmful", "conftest", "sitecustomize"):
        (desk / f"{name}.py").write_text("import this\n")


def looks(run: Path, new: Path, members: Sequence[str]) -> list[list[str]]:
    at = str(run)
    return [
        ["inspect", at], ["inspect", at, "--generation", "1"], ["inspect", at, "--generation", "1", "--stage", "solve"],
        ["inspect", at, "--member", members[0]], ["inspect", str(run.parent)],
        ["query", at, "SELECT * FROM problems LIMIT 3"], ["query", at, "SELECT count(*) FROM attempts", "--trusted"],
        ["report", at, "--output", f"{new}/report.html"], ["report", at, at, "--output", f"{new}/comparison.html"],
        ["report", at], ["prune", at, "--dry-run", "--keep", "1"],
        ["export", at, members[0], "--to", f"{new}/exported"],
        ["problems", at, "--to", f"{new}/problems"], ["environment", at, "--to", f"{new}/environment"],
        ["fork", at, "--generation", "1", "--to", f"{new}/fork"],
    ]  # fmt: skip


def watch(folder: Path, cases: list[dict[str, Any]], warm: list[dict[str, Any]]) -> list[list[str]]:
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"desk": str(folder / "desk"), "warm": warm, "cases": cases}))
    home = {
        "HOME": str(folder / "outside"),
        owner.FOLDER: str(folder / "home"),
        "XDG_CACHE_HOME": str(folder / "home"),
    }
    (folder / "home").mkdir()
    done = subprocess.run(
        [sys.executable, str(WATCHED), str(plan)], capture_output=True, text=True, env=os.environ | home
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(cases), done.stderr[-3000:]
    return [line["told"] for line in lines]


def case(folder: Path, inside: Path, commands: list[list[str]]) -> dict[str, Any]:
    return {
        "inside": [str(inside)],
        "outside": [
            str(folder / "outside"),
            str(folder / "outside" / "model"),
            str(folder / "outside" / "store"),
        ],
        "caches": [str(folder / "home")],
        "commands": commands,
    }


@pytest.mark.parametrize("place", ["~/secret", "{outside}/secret.json"])
def test_bait_that_is_taken_is_told_of(finished: Path, tmp_path: Path, place: str) -> None:
    bait(tmp_path / "outside", tmp_path / "desk")
    taken = f"FROM read_text('{place.format(outside=tmp_path / 'outside')}')"
    (told,) = watch(
        tmp_path, [case(tmp_path, finished, [["query", str(finished), taken, "--trusted"]])], warm=[]
    )
    assert any(line.startswith("query: touched") and "/secret" in line for line in told), told


def test_no_command_that_looks_touches_what_lies_outside_a_received_run(
    finished: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    bait(outside, tmp_path / "desk")
    members = sorted(path.name for path in (finished / "members").iterdir())
    cases, made = [], []
    for number in range(-1, CASES):  # the first is left as it is, and not judged
        draw, root = random.Random(SEED * 1000 + number), tmp_path / f"case{number}"
        shutil.copytree(finished, root / "runs" / "run")
        (root / "new").mkdir()
        changes = [draw.choice(CHANGERS) for _ in range(draw.randint(1, CHANGES))] if number >= 0 else []
        for change in changes:
            try:
                change(root / "runs" / "run", draw, outside)
            except NOT_THERE:
                continue
        every = looks(root / "runs" / "run", root / "new", members)
        cases.append(case(tmp_path, root, every if number < 0 else draw.sample(every, COMMANDS)))
        made.append(f"case {number}: {', '.join(change.__name__ for change in changes)}")
    found = watch(tmp_path, cases[1:], cases[:1])
    told = [f"{name}\n  " + "\n  ".join(lines) for name, lines in zip(made[1:], found, strict=True) if lines]
    assert not told, "\n".join(told)


def changes_a_store(store: Path, draw: random.Random, outside: Path) -> None:
    path = draw.choice(sorted(each for each in store.rglob("*") if each.is_file()))
    if draw.random() < 0.3:
        path.unlink()
        path.symlink_to(draw.choice((outside / "secret.json", outside / "model")))
        return

    def change(document: Any) -> Any:
        for _ in range(draw.randint(1, 3)):
            holder, key = draw.choice(spots(document))
            value = hostile(draw, outside)
            if isinstance(holder, dict) and draw.random() < 0.3:
                holder[str(value)[:200]] = holder.pop(key)  # a name that leads out
            else:
                holder[key] = value
        return document

    edited(path, change)


def test_no_command_that_looks_touches_what_lies_outside_a_store_or_an_adapter(
    finished: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    bait(outside, tmp_path / "desk")
    make(begin(tmp_path / "first", (tmp_path / "store").as_uri()).directory)
    cases = []
    for number in range(-1, STORES):
        draw, root = random.Random(SEED * 2000 + number), tmp_path / f"case{number}"
        shutil.copytree(tmp_path / "store", root / "store")
        shutil.copytree(next(finished.glob("members/student-00-*/g*")), root / "members" / "a" / "adapter")
        (root / "new").mkdir()
        for _ in range(draw.randint(1, CHANGES) if number >= 0 else 0):
            with suppress(*NOT_THERE):
                changes_a_store(root / "store", draw, outside)
                describes_an_adapter(root, draw, outside)
        url, run, other = (root / "store").as_uri(), str(root / "new" / "run"), str(root / "new" / "other")
        start = f'adapters.start_from={{students=["{root}/members/a/adapter"]}}'
        looking = [
            ["pull", url, run],
            ["inspect", run],
            ["store", "sweep", url, "--days", "7", "--dry-run"],
            ["run", "--preset", "quick", "--run-dir", other, "--set", start, "--dry-run"],
        ]
        cases.append(case(tmp_path, root, looking))
    found = watch(tmp_path, cases[1:], cases[:1])
    told = [f"case {number}\n  " + "\n  ".join(lines) for number, lines in enumerate(found) if lines]
    assert not told, "\n".join(told)
