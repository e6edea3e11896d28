"""requirements.lock: every package that the project asks for, pinned by hash, from no place in particular."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

REPOSITORY = Path(__file__).resolve().parents[1]
LOCK = (REPOSITORY / "requirements.lock").read_text()
PINNED = re.compile(r"^([a-z0-9._-]+)(?:\[[^]]*\])?==([^ ]+)", re.MULTILINE)


def test_it_names_no_index_and_no_path() -> None:
    assert "://" not in LOCK
    assert not re.search(r"^(-|\.|/)|@ ", LOCK, re.MULTILINE)


def test_every_package_has_a_version_and_hashes() -> None:
    blocks = re.split(r"\n(?=\S)", LOCK.strip())
    assert len(blocks) > 100
    assert all(PINNED.match(block) and "--hash=sha256:" in block for block in blocks)


def test_what_the_project_asks_for_is_in_it_at_a_version_that_fits() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    asked = [Requirement(text) for text in project["dependencies"] + project["optional-dependencies"]["dev"]]
    pinned = {canonicalize_name(name): Version(version) for name, version in PINNED.findall(LOCK)}
    for requirement in asked:
        name = canonicalize_name(requirement.name)
        assert name == "torch" or requirement.specifier.contains(pinned[name]), requirement
    assert "torch" not in pinned
