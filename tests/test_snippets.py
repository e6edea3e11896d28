"""What the pages show is run: every command, question and piece of code.

What needs a person, a server, a network, hours or another package is not run as it stands: a test is named that makes
the same calls.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import pytest
from command import populora
from conftest import GENERATIONS, ran
from house import files_of_tests
from test_docs import COMMAND, PAGES, REPOSITORY

from populora_core import open_run

pytestmark = [pytest.mark.thorough, pytest.mark.loop, pytest.mark.sandbox]

TESTS = {file.name: file for file in files_of_tests()}

ELSEWHERE = {
    "play": "test_play.py",
    "serve": "test_serving.py",
    "environment": "test_environment.py",
    "assemble": "test_lifecycle_assemble.py",
    "pull": "test_sharing_store.py",
    "store check": "test_sharing_store.py",
    "store sweep": "test_sharing_store.py",
    "study --config": "test_study.py",
    "study release": "test_study_release.py",
    "study report runs/": "test_study.py",
    "run --base": "test_any_base.py",
    "try --base": "test_gguf.py",
    "run --preset quick --set 'propose.types": "test_other_packages.py",
    "run --plain --preset quick --set base.path=countdown": "test_other_packages.py",
}
"""The beginning of a command that needs a person, a server, a network, hours or another package -> who runs it."""
NUMBERS = {
    "--generation 50": f"--generation {GENERATIONS}",
    "--generation 25": f"--generation {GENERATIONS - 1}",
    "runs/other --generation 4": f"runs/other --generation {GENERATIONS - 1}",
    "--generations 70": f"--generations {GENERATIONS + 1} --plain",
    "evaluate runs/demo": "evaluate runs/demo --sample 8",
    'SELECT ..."': 'SELECT count(*) FROM problems"',
    'SELECT run, ..."': 'SELECT run, count(*) FROM problems GROUP BY run"',
}
"""What a page says of the demo's fifty generations -> the same of the small run here, and of a few held-out problems;
and what it leaves open."""
CODE = {
    "import populora_core": (),
    "import json": (),
    "def halve": ("test_docs.py",),
    "from populora_core.population": ("test_population_evolution.py", "test_population_variation.py"),
    "from openai import OpenAI": ("test_serving.py",),
    "from pathlib import Path": ("test_environment.py",),
    "from datasets import load_dataset": ("test_lifecycle_curriculum.py",),
}
"""How a piece of Python begins -> the tests that read it from its page or make the same calls of ours; none where it is
run here."""


def fenced(page: Path, *languages: str) -> list[str]:
    """The blocks of a page that are in these languages, as a reader pairs the fences."""
    found, language, block = [], None, ""
    for line in page.read_text().splitlines(keepends=True):
        if not line.startswith("```"):
            block += line
        elif language is None:
            language, block = line.strip("`\n"), ""
        else:
            found += [block] if language in languages else []
            language = None
    assert language is None, f"{page} has an odd fence"
    return found


def commands() -> Iterator[tuple[str, str]]:
    """(page, what follows `populora`) of every command in a block of a page, the tutorial's first."""
    for page in sorted(PAGES, key=lambda page: page.name != "tutorial.md"):
        for block in fenced(page, "", "sh", "bash") if page.name != "commands.md" else ():
            for line in block.splitlines():
                if found := COMMAND.match(line.strip()):
                    yield page.name, found[1].strip()


def elsewhere(line: str) -> str | None:
    """The test that runs a command in the place of this one."""
    return next((test for begins, test in ELSEWHERE.items() if line.startswith(begins)), None)


def smaller(line: str) -> str:
    for theirs, ours in NUMBERS.items():
        line = line.replace(theirs, ours)
    return line


@pytest.fixture(scope="module")
def folder(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a clone's after its demo, with runs to compare; the held-out suite is a small one."""
    folder = tmp_path_factory.mktemp("stranger")
    for name in ("demo", "demo-seed1", "demo-seed2", "a", "b"):
        shutil.copytree(finished, folder / "runs" / name)
    shutil.copytree(REPOSITORY / "configs", folder / "configs")
    for study in ("study-1", "study-3"):
        shutil.copytree(REPOSITORY / "bench/results" / study, folder / "bench/results" / study)
    suite = (folder / "configs/suites/tiny.toml").read_text()
    (folder / "configs/suites/frontier.toml").write_text(
        suite.replace("validation = 0.5", "validation = 0.95")
    )
    return folder


def test_every_command_of_the_pages_works_in_their_order(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = 0
    for page, line in commands():
        if elsewhere(line) is None:
            words = [path for word in shlex.split(smaller(line)) for path in sorted(glob(word)) or [word]]
            answer = populora(*words, PREFECT_HOME=str(folder / "prefect"))
            assert answer.returncode == 0, (page, line, answer.stdout, answer.stderr)
            done += 1
    assert done >= 20
    for made in ("runs/other/report.html", "exported", "rows.parquet", "ab.html", "comparison.html"):
        assert (folder / made).exists(), made


def test_a_command_that_is_run_elsewhere_is_there() -> None:
    lines = [line for _, line in commands()]
    for begins, test in ELSEWHERE.items():
        assert any(line.startswith(begins) for line in lines), f"no page shows {begins} any more"
        assert f'"{begins.split()[0]}"' in TESTS[test].read_text(), begins


def test_every_question_of_the_pages_is_answered(finished: Path) -> None:
    asked = [
        (page.name, question)
        for page in PAGES
        if page.name != "analytics.md"  # whose questions have a test of their own
        for block in fenced(page, "sql")
        for question in re.split(r";[^\n]*\n", block)
        if question.strip()
    ]
    assert len(asked) >= 4
    with open_run(finished) as run:
        for page, question in asked:
            assert run.query(question).arrow().num_columns, (page, question)


def taken(block: str) -> set[str]:
    """The names that a piece of code imports from our packages; without such, all that it imports or defines."""
    nodes = [*ast.walk(ast.parse(block))]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if (node.module or "").startswith("populora")]
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef)} if not ours else set()
    return defined | {alias.name for node in ours or imports for alias in node.names}


def test_every_piece_of_code_of_the_pages_is_run_or_has_a_test_of_its_calls(folder: Path) -> None:
    blocks = [block for page in PAGES for block in fenced(page, "python")]
    assert len(blocks) == len(CODE)
    for block in blocks:
        (tests,) = (tests for begins, tests in CODE.items() if block.startswith(begins))
        if tests:
            texts = "".join(TESTS[test].read_text() for test in tests)
            names = taken(block)
            assert names and all(re.search(rf"\b{name}\b", texts) for name in names), (tests, block)
            continue
        done = ran(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n{block}"],
            cwd=folder,
        )
        assert done.returncode == 0, (block, done.stderr)
