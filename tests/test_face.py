"""The public names: there, described, light, and enough for the examples."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import populora_core

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


def imports_of(tree: ast.AST) -> set[str]:
    """ "package.module.name" of each name that is imported from somewhere."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {f"{node.module}.{alias.name}" for node in found for alias in node.names}


@pytest.mark.parametrize("name", populora_core.__all__)
def test_a_public_name_is_there_and_says_what_it_is(name: str) -> None:
    assert getattr(populora_core, name).__doc__


def test_type_checkers_see_the_names_that_are_there() -> None:
    tree = ast.parse(Path(populora_core.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    assert imports_of(block) == {place.replace(":", ".") for place in populora_core.PLACES.values()}


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert populora_core.__version__ == project["version"]


def test_another_name_is_no_part_of_it() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sessions'"):
        getattr(populora_core, "sessions")  # noqa: B009


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import populora_core, sys; assert 'pydantic' not in sys.modules and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_uses_public_names_alone(path: Path) -> None:
    tree = ast.parse(path.read_text())
    public = {f"populora_core.{name}" for name in populora_core.__all__}
    assert {name for name in imports_of(tree) if name.startswith("populora_core")} <= public
    assert not any(
        alias.name.startswith("populora_core.")
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    )
