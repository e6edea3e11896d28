"""Bad input to every command, file and option ends with a sentence and an exit code, never with a traceback.

Each case damages one file or replaces one argument of a command that works, from a seeded generator, and runs the
command in this process as its entry point does.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command import populora
from conftest import write_lines
from shared_run import MEMBER, begin, make
from store_run import STUDENT, write_run

from populora_core.benchmarks import fetched
from populora_core.commands import answers

pytestmark = [pytest.mark.thorough, pytest.mark.sandbox]

SEED, OPTION_CASES, FILE_CASES = 11, 320, 220
ROOT = Path(__file__).resolve().parent.parent
DEEP = "[" * 60_000

HOSTILE = (
    "", " ", "-", "--", ".", "..", "/", "-1", "0", "1e9", "10" * 20, "nan", "inf",
    "-inf", "true", "None", "x" * 5000, "a/" * 3000, "é\u202e", "\udcff", "%s%n", "'; DROP TABLE members; --",
    "$(touch x)", "file://", "http://[", "\x1b[31m", "=", "a=b", "run.seed", "run.seed=", "[" * 3000,
    "{" * 3000, "1" * 5000, "1e-300", "0x10", "run.generations=1000000000", "sandbox.workers=100000000",
    "adapters.rank=100000000", "sandbox.cpu_seconds=1e-300", "run.seed=true", "run.seed=1" + "0" * 4500, "run.seed=nan",
)  # fmt: skip

SUITE = """
suite = "own"
[[benchmarks]]
benchmark = "gsm8k"
dataset = "openai/gsm8k"
config = "main"
max_tokens = 32
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, a store, configurations and a file of programs: all that commands read."""
    folder = tmp_path_factory.mktemp("source")
    write_run(begin(folder / "run", "").directory)
    make(begin(folder / "first", (folder / "store").as_uri()).directory)
    shutil.copy(ROOT / "configs" / "quick.toml", folder / "config.toml")
    shutil.copy(ROOT / "configs" / "demo.toml", folder)  # which that extends
    study = (ROOT / "configs" / "study-tiny.toml").read_text()
    (folder / "study.toml").write_text(study.replace('config = "', f'config = "{ROOT}/configs/'))
    write_lines(folder / "rows.jsonl", [{"id": "1", "program": "def f(x): return x", "inputs": ["(1,)"]}])
    write_lines(folder / "gsm8k.jsonl", [{"question": "1 + 1?", "answer": "1 + 1 = 2\n#### 2"}])
    (folder / "suite.toml").write_text(SUITE)
    (folder / "results").mkdir()
    shutil.copy(ROOT / "bench" / "results" / "study-1" / "verdicts.json", folder / "results")
    return folder


def commands(at: Path) -> dict[str, list[str]]:
    """Commands that only read, or make something new below `at`."""
    run, store, new = str(at / "run"), str(at / "store"), str(at / "new")
    return {
        "run": ["run", "--config", f"{at}/config.toml", "--run-dir", new, "--set", "run.seed=3", "--dry-run"],
        "inspect": ["inspect", run, "--generation", "1"],
        "inspect a stage": ["inspect", run, "--generation", "1", "--stage", "solve"],
        "inspect a member": ["inspect", run, "--member", STUDENT],
        "inspect a problem": ["inspect", run, "--problem", "prob-g0001-t00-code_o-0000"],
        "query": ["query", run, "SELECT count(*) FROM problems", "--format", "json"],
        "report": ["report", run, "--output", f"{at}/report.html"],
        "prune": ["prune", run, "--keep", "1", "--every", "0", "--dry-run"],
        "export": ["export", f"{at}/first", MEMBER, "--to", new, "--generation", "0", "--base-name", "a/b"],
        "fork": ["fork", run, "--generation", "1", "--to", new, "--set", "run.seed=3"],
        "pull": ["pull", store, new],
        "store check": ["store", "check", store],
        "store sweep": ["store", "sweep", store, "--days", "7", "--dry-run"],
        "study": ["study", "--config", f"{at}/study.toml", "--dry-run"],
        "study report": ["study", "report", f"{at}/results", "--output", f"{at}/study.html"],
        "suite fetch": ["suite", "fetch", "gsm8k", "--from", f"{at}/gsm8k.jsonl", "--suite", f"{at}/suite.toml"],
        "doctor": ["doctor", "--require", "sandbox"],
        "verify": ["verify", f"{at}/rows.jsonl", "--time-limit", "1", "--memory-limit", "32"],
    }  # fmt: skip


READERS = {
    "config.toml": ("run",),
    "rows.jsonl": ("verify",),
    "gsm8k.jsonl": ("suite fetch",),
    "suite.toml": ("suite fetch",),
    "study.toml": ("study",),
    "results/verdicts.json": ("study report",),
    "run/run.json": ("inspect", "query", "report", "prune", "fork"),
    "run/redraws.json": ("inspect", "fork"),
    "run/heartbeat.json": ("inspect",),
    "run/generations/0001/solve/manifest.json": ("inspect", "inspect a stage", "query", "report", "fork"),
    "run/generations/0001/solve/attempts.parquet": ("inspect a problem", "query", "report"),
    "run/generations/0002/evolve/population.parquet": ("inspect a member", "prune"),
    "run/catalogue.duckdb": ("query", "inspect", "report"),
    "first/run.json": ("export",),
    "first/members": ("export",),
    "store/run.json": ("pull", "store sweep"),
    "store/history/000001": ("pull",),
    "store/stages": ("pull", "store sweep"),
    "store/objects": ("pull",),
}


def said(arguments: list[str]) -> str:
    """What the command said; it ended by itself or with an exit code, and showed no traceback."""
    done = populora(*arguments)
    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(fetched.FOLDER_VARIABLE, str(tmp_path / "benchmarks"))


@pytest.mark.parametrize("name", commands(Path()))
def test_what_is_damaged_works_undamaged(source: Path, name: str) -> None:
    done = populora(*commands(source)[name])
    shutil.rmtree(source / "new", ignore_errors=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("part", range(8))
def test_no_argument_ends_a_command_with_a_traceback(source: Path, part: int) -> None:
    draw = random.Random(SEED + part)
    for _ in range(OPTION_CASES // 8):
        arguments = draw.choice(list(commands(source).values()))
        dry = [place for place, word in enumerate(arguments) if word == "--dry-run"]
        places = [place for place in range(1, len(arguments)) if place not in dry]
        changed = list(arguments)
        changed[draw.choice(places)] = draw.choice(HOSTILE)
        if draw.random() < 0.2:
            changed.insert(draw.choice(places), draw.choice(HOSTILE))
        said(changed)
        shutil.rmtree(source / "new", ignore_errors=True)


@pytest.mark.parametrize("name", READERS)
def test_no_damaged_file_ends_a_command_with_a_traceback(source: Path, tmp_path: Path, name: str) -> None:
    draw = random.Random(f"{SEED} {name}")
    for number in range(-(-FILE_CASES // len(READERS))):
        copy = tmp_path / f"{number}"
        shutil.copytree(source, copy)
        (copy / "run" / "redraws.json").write_text('{"0001/solve": 7}')
        path = copy / name
        victim = (
            draw.choice(sorted(each for each in path.rglob("*") if each.is_file())) if path.is_dir() else path
        )
        victim.parent.mkdir(parents=True, exist_ok=True)
        old = victim.read_bytes() if victim.exists() else b"{}"
        victim.unlink(missing_ok=True)  # objects may be links
        victim.write_bytes(draw.choice(DAMAGES)(old, draw))
        command = commands(copy)[draw.choice(READERS[name])]
        told = said(command)
        assert len(told) < 100_000
        shutil.rmtree(copy)


def truncated(old: bytes, draw: random.Random) -> bytes:
    return old[: draw.randrange(len(old) + 1)]


def flipped(old: bytes, draw: random.Random) -> bytes:
    data = bytearray(old or b"x")
    for _ in range(draw.randrange(1, 20)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)


def replaced(old: bytes, draw: random.Random) -> bytes:
    texts = (
        *("", "null", "[]", "{}", "7", '"x"', DEEP, '{"a":' * 60_000),
        *("\ufeff{}", "a = " + DEEP, "NaN", "\0" * 100),
    )
    return draw.choice(texts).encode()


def noise(old: bytes, draw: random.Random) -> bytes:
    return draw.randbytes(draw.randrange(1, 2000))


def of_another_type(old: bytes, draw: random.Random) -> bytes:
    """One value of a JSON document becomes another; of anything else, one word."""
    values = (None, True, -1, 1 << 70, 1.5, "x" * 3000, "../../x", [], {}, [[]], "\x00", 1e308)
    try:
        document = json.loads(old)
    except ValueError:
        words = old.split(b" ")
        words[draw.randrange(len(words))] = str(draw.choice(values)).encode()
        return b" ".join(words)
    place, steps = document, draw.randrange(1, 5)
    while isinstance(place, dict | list) and place:
        key = draw.choice(list(place) if isinstance(place, dict) else range(len(place)))
        steps -= 1
        if steps == 0 or not isinstance(place[key], dict | list):
            place[key] = draw.choice(values)
            break
        place = place[key]
    return json.dumps(document).encode()


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(truncated, flipped, replaced, noise),
    *(of_another_type, of_another_type),
)


def test_a_query_of_a_huge_cell_ends(source: Path) -> None:
    told = said(["query", str(source / "run"), "SELECT repeat('x', 200000000)"])
    assert "1 row" in told
    assert len(told) < 6 * answers.LONGEST, "a frame of five lines, as wide as the widest cell may be"
