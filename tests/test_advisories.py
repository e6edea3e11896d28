"""`make advisories` never says that all is well of what could not be looked up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from advisories import summary
from conftest import ran

FINE = {"name": "fine", "version": "1.0", "vulns": []}
OWN = {
    "name": "torch",
    "skip_reason": "Dependency not found on PyPI and could not be audited: torch (2.13.0+cpu)",
}
EDITABLE = {"name": "populora-core", "skip_reason": "distribution marked as editable"}
UNKNOWN = {"name": "lost", "skip_reason": "Dependency not found on PyPI and could not be audited: lost (1.0)"}
AFFECTED = {"name": "weak", "version": "2.0", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}]}


def test_packages_without_an_advisory_are_well() -> None:
    assert summary([FINE, OWN, EDITABLE]) == (
        ["builds that no database knows: torch", "none of 1 packages is affected by a known advisory"],
        True,
    )


def test_an_advisory_is_named_with_the_version_that_answers_it() -> None:
    assert summary([FINE, AFFECTED]) == (["weak 2.0: CVE-1, fixed in 2.1"], False)


@pytest.mark.parametrize("entries", [[UNKNOWN], [FINE, UNKNOWN]], ids=["all", "some"])
def test_what_could_not_be_looked_up_is_not_well(entries: list[dict]) -> None:
    (line,), well = summary(entries)
    assert not well
    assert f"1 of {len(entries)} packages could not be looked up (lost)" in line and "can be reached" in line


def test_a_failure_of_the_tool_is_one_sentence_with_what_it_said(tmp_path: Path) -> None:
    tool = tmp_path / "pip-audit"
    tool.write_text("#!/bin/sh\necho Traceback >&2\necho 'no route to host' >&2\nexit 1\n")
    tool.chmod(0o755)
    script = Path(__file__).with_name("advisories.py")
    done = ran([sys.executable, script, tool, tmp_path])
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.count("\n") == 1
    assert "no advisory could be looked up" in done.stdout and "no route to host" in done.stdout
