"""What README and the pages show can be typed as it stands: configurations are taken, commands are understood."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main
from conftest import ran
from house import CORE, FLOORS, PLUGINS, files_of_tests

from populora_core.commands.app import app
from populora_core.config.load import build_config
from populora_core.runs.preflight import check_names, places
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.sampler import torch_sampler
from populora_core.stages.engine import run_stage
from populora_core.stages.table import STAGES
from populora_core.support import trust
from populora_core.support.shipped import REPOSITORY

PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    REPOSITORY / "SECURITY.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    *sorted((REPOSITORY / "populora_plugins").glob("*/*.md")),
]
README_CHARACTERS = 9_000
README_WIDTH = 160  # of a line of text; tables and pictures cannot wrap
ARCHITECTURE = REPOSITORY / "docs" / "architecture.md"
COMMAND = re.compile(r"(?:\S*/bin/)?populora +([a-z][^`#]*)")


def fenced(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def snippets(language: str) -> list[tuple[str, str]]:
    return [(page.name, text) for page in PAGES for text in fenced(page.read_text(), language)]


def shown() -> list[tuple[str, str]]:
    """(page, what follows `populora`) of every command on a line of its own."""
    lines = [(page.name, line.strip()) for page in PAGES for line in page.read_text().splitlines()]
    return [(page, found[1]) for page, line in lines if (found := COMMAND.match(line))]


def mentioned() -> list[tuple[str, str]]:
    """(page, what follows `populora`) of every command in the midst of a text."""
    spans = [(page.name, span) for page in PAGES for span in re.findall(r"`([^`]+)`", page.read_text())]
    return [(page, found[1]) for page, span in spans if (found := COMMAND.fullmatch(" ".join(span.split())))]


def parse(*words: str) -> int:
    """The exit status of a command line whose commands do nothing: 2 where it is not understood."""
    command = typer.main.get_command(app)
    commands = [command]
    for each in commands:
        each.callback = None
        commands += getattr(each, "commands", {}).values()
    with pytest.raises(SystemExit) as ended:
        command.main(list(words), prog_name="populora")
    return int(ended.value.code or 0)


@pytest.mark.parametrize(("page", "text"), snippets("toml"))
def test_a_configuration_is_taken_as_it_stands(
    page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_operators.py").write_text(
        "".join(code for _, code in snippets("python") if "halve" in code)
    )
    monkeypatch.syspath_prepend(tmp_path)
    data = tomllib.loads(text)
    built = build_config(data, page)
    trust.remember(places(built))  # as every command does with a configuration of the user's own
    check_names(built, page)
    config = built.as_json()
    for section, settings in data.items():
        for key, value in settings.items():
            assert config[section][key] == value or value.items() <= config[section][key].items()


@pytest.mark.parametrize(("page", "line"), shown())
def test_a_command_on_a_line_of_its_own_can_be_typed(page: str, line: str) -> None:
    assert parse(*shlex.split(line)) == 0


@pytest.mark.parametrize(("page", "line"), mentioned())
def test_a_command_in_a_text_has_the_options_that_it_names(page: str, line: str) -> None:
    assert parse(*shlex.split(line), "--help") == 0, "a text may leave out what its sentence says, no more"


def test_a_run_that_an_example_shows_says_of_which_settings() -> None:
    texts = (file.read_text() for file in (REPOSITORY / "examples").rglob("*.py"))
    lines = [
        line
        for text in texts
        for line in re.findall(r"^ *(?:PYTHONPATH=\S+ )?populora run .*", text, re.MULTILINE)
    ]
    assert lines and all(re.search(r"--(preset|config|base) ", line) for line in lines)


@pytest.mark.parametrize(
    "line", ["run configs/demo.toml", "resume runs/demo --anew --help", "repeat runs/demo --help"]
)
def test_a_command_that_cannot_be_typed_is_noticed(line: str) -> None:
    assert parse(*shlex.split(line)) == 2


def test_nobody_is_told_to_install_what_others_publish_under_our_name() -> None:
    named = re.compile(r"""pip\s+install\s+(?:-\S+\s+)*["'`]*populora""")
    tracked = ran(["git", "ls-files", "-z"], cwd=REPOSITORY, check=True)
    paths = [REPOSITORY / name for name in tracked.stdout.split("\0")]
    texts = {path: path.read_bytes().decode(errors="ignore") for path in paths if path.is_file()}
    assert texts, "no file is tracked here"
    found = {path: match[0] for path, text in texts.items() if (match := named.search(text))}
    assert not found, "write pip install -e '.[EXTRA]'"


def headings(page: Path) -> set[str]:
    """The anchors of a page, as renderers of Markdown make them from its headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), link
        assert not anchor or anchor in headings(target), link


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/verifier.md"])
def test_the_tests_that_stand_for_a_wall_are_there(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    tests = {file.name: file.read_text() for file in files_of_tests() if file.name.startswith("test_")}
    files, functions = (
        set(re.findall(r"\btest_\w+\.py", text)),
        set(re.findall(r"\btest_\w+\b(?!\.py)", text)),
    )
    assert len(functions) > 10
    assert files <= set(tests)
    assert {name for name in functions if not any(f"def {name}(" in code for code in tests.values())} == set()
    for file, name in re.findall(r"(test_\w+\.py)::(test_\w+)", text):
        assert f"def {name}(" in tests[file], f"{name} stands elsewhere"


def test_the_readme_can_be_read_in_one_go() -> None:
    text = (REPOSITORY / "README.md").read_text()
    assert len(text) <= README_CHARACTERS
    assert [
        line for line in text.splitlines() if len(line) > README_WIDTH and not line.startswith(("|", "!["))
    ] == []


def test_the_page_of_commands_is_that_of_the_command(tmp_path: Path) -> None:
    target = tmp_path / "commands.md"
    options = ["--name", "populora", "--title", "Commands", "--output", str(target)]
    command = [sys.executable, "-m", "typer", "populora_core.commands.app", "utils", "docs", *options]
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # so `populora` is on the PATH
    ran(command, cwd=REPOSITORY, check=True, env=os.environ | {"PATH": beside})
    assert target.read_text() == (REPOSITORY / "docs" / "commands.md").read_text(), (
        "make docs writes it again"
    )
    assert str(REPOSITORY) not in target.read_text()


def floor_plan() -> list[tuple[int, str]]:
    """Floor and room of each line of the page, from the top down."""
    lines = re.findall(
        r"^\| (\d+) \| `(?:populora_core/|populora_plugins/)?(\w+)/` \|",
        ARCHITECTURE.read_text(),
        re.MULTILINE,
    )
    return [(int(floor), room) for floor, room in lines]


def test_the_page_has_a_line_for_each_room_on_its_floor() -> None:
    places = {room: floor for room, floor in FLOORS.items() if room not in (CORE, PLUGINS)}
    there = {
        room
        for room in places
        if any(REPOSITORY.glob(f"{room}/*")) or any(REPOSITORY.glob(f"populora_*/{room}/*"))
    }
    plan = floor_plan()
    assert {room: floor for floor, room in plan} == {room: places[room] for room in there}
    assert plan == sorted(plan, key=lambda line: -line[0])


def test_decisions_stand_under_their_rooms_the_lowest_floor_first() -> None:
    page = (REPOSITORY / "docs" / "decisions.md").read_text()
    headings = [heading.split(", ") for heading in re.findall(r"^## (.+)$", page, re.MULTILINE)]
    assert headings.pop() == ["tests"]
    floors = [FLOORS[room] for rooms in headings for room in rooms]
    assert floors == sorted(floors)


def test_the_glossary_stays_short() -> None:
    words = ARCHITECTURE.read_text().partition("## Words")[2]
    assert 20 <= len(re.findall(r"\*\*.+?\*\*", words)) <= 45


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_token_is_drawn_along_the_way_that_architecture_tells(
    copy_of: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    core, real, ways = REPOSITORY / "populora_core", torch_sampler.draw, set()

    def way_from_solve() -> list[tuple[str, str]]:
        """The calls of ours under way since `solve.run`, and their files; comprehensions are none."""
        calls, frame = [], sys._getframe(2)
        while frame.f_code.co_name != "run" or not frame.f_code.co_filename.endswith("solve.py"):
            code, frame = frame.f_code, frame.f_back
            if Path(code.co_filename).is_relative_to(core) and not code.co_name.startswith("<"):
                calls.append((code.co_qualname, Path(code.co_filename).relative_to(core).as_posix()))
        return calls[::-1]

    def draw(*arguments: Any) -> Any:
        if arguments[-1] is None:  # tokens are drawn, not given as the probe's are
            ways.add((*way_from_solve(), (real.__qualname__, "sampler/torch_sampler.py")))
        return real(*arguments)

    monkeypatch.setattr(torch_sampler, "draw", draw)
    with Session(Run.open(copy_of())) as session:
        run_stage(session, 1, STAGES["solve"], force=True)
    told = re.findall(r"^\| \d \| `([\w.]+)` \| `([\w/.]+)` \|", ARCHITECTURE.read_text(), re.MULTILINE)
    (way,) = ways
    assert list(way) == [(call.replace("LocalCompute", "InlineCompute"), file) for call, file in told]
    assert len(told) <= 7
    assert len({file for _, file in told}) <= 4


def test_what_troubleshooting_quotes_is_what_the_program_says() -> None:
    rows = [
        line.split(" | ")[0]
        for line in (REPOSITORY / "docs" / "troubleshooting.md").read_text().splitlines()
        if line.startswith("| ")
    ]
    quoted = {span for row in rows for span in re.findall("`([^`]+)`", row) if " " in span}
    quoted.remove("populora: command not found")  # which the shell says
    said = "".join(
        path.read_text() for room in (CORE, PLUGINS, "flows") for path in (REPOSITORY / room).rglob("*.py")
    )
    assert len(quoted) > 10
    assert [span for span in sorted(quoted) if span not in said] == []


OURS_ALONE = {"pages", "sharing"}  # one name is asked for, and our plug-in has it


def test_the_table_of_entry_points_has_every_group_that_another_package_can_use() -> None:
    page = (REPOSITORY / "docs" / "how-to.md").read_text()
    rows = re.findall(r"^\| (`populora\..+?) \|", page, re.MULTILINE)
    told = {group for row in rows for group in re.findall(r"`(?:populora)?\.(\w+)`", row)}
    code = "".join(path.read_text() for room in (CORE, PLUGINS) for path in (REPOSITORY / room).rglob("*.py"))
    asked = set(re.findall(r'\b(?:group=|GROUP = |installed_entries\()"populora\.(\w+)"', code))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert {group.removeprefix("populora.") for group in project["entry-points"]} <= asked
    assert told == asked - OURS_ALONE


def test_what_the_table_of_changes_names_is_there() -> None:
    section = ARCHITECTURE.read_text().partition("## To change X")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) >= 10
    for row in rows:
        _, _, opened, run, _ = row.split("|")
        for path in re.findall(r"`([^`]+)`", opened):
            own = path.startswith(("verifier_image/", f"{PLUGINS}/", "pyproject"))
            assert (REPOSITORY / path if own else REPOSITORY / "populora_core" / path).exists(), path
        for path in re.findall(r"`([^`]+)`", run):
            assert (REPOSITORY / path).is_file(), path
