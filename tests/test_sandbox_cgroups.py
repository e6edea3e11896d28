"""A cgroup round the processes of bubblewrap and launcher, where this user may make one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from sandboxed import opened

from populora_core.sandbox import backends, cgroups
from populora_core.sandbox.host import RUNNER_BYTES
from populora_core.sandbox.jobs import MIB, Job, Limits
from populora_core.sandbox.status import Status

pytestmark = pytest.mark.sandbox

needs_groups = pytest.mark.skipif(not cgroups.usable(), reason="this user may make no cgroup here")
LIMITS = Limits(cpu_seconds=1, wall_seconds=8, memory_bytes=64 * MIB)


def groups_of(pid: int) -> dict[str, str]:
    """Controller, empty for the unified hierarchy -> the group of a process."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return {names: path for _, names, path in (line.split(":", 2) for line in lines)}


def ours() -> set[Path]:
    """The groups that this process made; others make theirs beside them."""
    name = f"{cgroups.PREFIX}{os.getpid()}-*"
    return {folder for parent in cgroups.parents() for folder in parent.glob(name)}


@needs_groups
@pytest.mark.parametrize("kind", ["bubblewrap", "launcher"])
def test_a_sandbox_runs_in_a_group_of_its_own_and_takes_it_along(kind: str) -> None:
    before = ours()
    with opened(kind, LIMITS) as pool:
        made = ours() - before
        (limit,) = {
            int(path.read_text())
            for folder in made
            for path in (folder / "memory.max", folder / "memory.limit_in_bytes")
            if path.exists()
        }
        assert limit == LIMITS.memory_bytes + RUNNER_BYTES
        for pid in pool.pids:
            assert any(cgroups.PREFIX in group for group in groups_of(pid).values())
        assert pool.run([Job("job", "def f(x): return x", ("(1,)",))])[0].status is Status.OK
    assert not any(folder.exists() for folder in made)


@needs_groups
def test_what_a_group_runs_cannot_take_more_than_its_memory() -> None:
    group = cgroups.make(32 * MIB)
    assert group is not None
    hog = ["/usr/bin/env", "python3", "-c", "x = bytearray(200 << 20); print('taken')"]
    done = subprocess.run(group.around(hog), capture_output=True)
    group.remove()
    assert done.returncode == -9
    assert done.stdout == b""
    assert not any(folder.exists() for folder in group.folders)


@needs_groups
def test_groups_of_processes_that_are_gone_are_swept() -> None:
    left = [place / f"{cgroups.PREFIX}1-0-0" for place in cgroups.parents()]  # process 1 did not start then
    for folder in left:
        folder.mkdir()
    cgroups.usable.cache_clear()
    assert cgroups.usable(), "a process sweeps when it finds out"
    assert not any(folder.exists() for folder in left)


def test_the_unified_hierarchy_gives_the_nearest_part_that_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As systemd lays it out: the process in a leaf, which gives nothing on, below a part delegated to the user."""
    leaf = tmp_path / "user.slice" / "app.slice" / "shell.scope"
    leaf.mkdir(parents=True)
    for folder, given in ((leaf, ""), (leaf.parent, "cpu memory pids"), (leaf.parent.parent, "memory pids")):
        (folder / "cgroup.subtree_control").write_text(given + "\n")
    told = tmp_path / "told"
    told.write_text("0::/user.slice/app.slice/shell.scope\n")
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    monkeypatch.setattr(cgroups, "OWN", told)
    assert cgroups.parents() == (leaf.parent,)
    told.write_text("0::/nowhere\n")
    assert cgroups.parents() == ()


@pytest.mark.parametrize(
    ("usable", "said"), [(True, "cgroup limits on memory"), (False, "2.3 times its memory")]
)
def test_doctor_says_which_bound_holds(monkeypatch: pytest.MonkeyPatch, usable: bool, said: str) -> None:
    monkeypatch.setattr(cgroups, "usable", lambda: usable)
    assert said in backends.bounds("bubblewrap")
