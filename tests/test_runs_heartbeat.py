"""The heartbeat tells who works on a run and where it stands, and the living from the dead."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from conftest import PATIENCE, ran, wait_for

from populora_core.runs import heartbeat
from populora_core.runs.heartbeat import HEARTBEAT, SILENT_SECONDS, Beat, Heartbeat, Life
from populora_core.support.processes import Owner

WORK = """
import sys
from pathlib import Path
from populora_core.runs.heartbeat import Heartbeat
with Heartbeat(Path(sys.argv[1]), lambda: ()) as heartbeat:
    heartbeat.at(3, "solve")
    sys.stdin.read()
"""


def _read(directory: Path) -> Beat:
    wait_for(lambda: Beat.read(directory) is not None)
    beat = Beat.read(directory)
    assert beat is not None
    return beat


def _now(seconds_ago: float = 0.0) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds_ago)).isoformat()


def test_a_run_at_work_says_at_once_who_where_and_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 3600.0)
    with Heartbeat(tmp_path, lambda: (os.getpid(),)) as beating:
        assert _read(tmp_path).life is Life.ALIVE
        beating.at(7, "verify")
        wait_for(lambda: _read(tmp_path).stage == "verify")
        beat = _read(tmp_path)
    assert (beat.pid, beat.host, beat.generation) == (os.getpid(), socket.gethostname(), 7)
    assert beat.process == str(Owner.this_process())
    assert beat.children == (str(Owner.this_process()),)
    assert beat.age < PATIENCE
    assert str(beat).startswith(f"pid {os.getpid()} on {socket.gethostname()}, verify of generation 7, ")


def test_it_goes_on_beating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.1)
    with Heartbeat(tmp_path, lambda: ()):
        first = _read(tmp_path)
        wait_for(lambda: _read(tmp_path).time > first.time)


def test_an_end_in_order_is_told(tmp_path: Path) -> None:
    with Heartbeat(tmp_path, lambda: ()) as heartbeat:
        heartbeat.at(1, "match")
    beat = _read(tmp_path)
    assert (beat.life, beat.stage) == (Life.ENDED, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == [HEARTBEAT]


def test_a_killed_process_is_dead_before_and_after_it_is_collected(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WORK, str(tmp_path)], stdin=subprocess.PIPE)
    wait_for(lambda: (beat := Beat.read(tmp_path)) is not None and beat.stage == "solve")
    assert _read(tmp_path).life is Life.ALIVE
    process.kill()
    wait_for(lambda: _read(tmp_path).life is Life.DEAD)
    process.wait()
    assert _read(tmp_path).life is Life.DEAD


def test_a_later_process_with_the_same_id_is_not_taken_for_it(tmp_path: Path) -> None:
    with Heartbeat(tmp_path, lambda: ()):
        beat = _read(tmp_path)
    me = Owner.this_process()
    beat = replace(beat, ended=False)
    assert beat.life is Life.ALIVE
    assert replace(beat, process=str(replace(me, started="1"))).life is Life.DEAD
    assert replace(beat, process=str(replace(me, boot="00000000"))).life is Life.DEAD, (
        "the machine was restarted"
    )


def test_a_process_out_of_sight_is_judged_by_its_last_beat() -> None:
    me = Owner.this_process()
    beat = Beat(1, "elsewhere", str(replace(me, boot="00000000")), 1, "solve", _now(), False)
    assert beat.life is Life.ALIVE
    assert replace(beat, time=_now(SILENT_SECONDS + 1)).life is Life.DEAD
    neighbour = replace(beat, host=socket.gethostname(), process=str(replace(me, namespace=me.namespace + 1)))
    assert neighbour.life is Life.ALIVE
    assert replace(neighbour, time=_now(SILENT_SECONDS + 1)).life is Life.DEAD


HIDDEN = """
import os, sys
from populora_core.support.processes import Owner
os.setgroups([]), os.setgid(65534), os.setuid(65534)
print(Owner.parse(sys.argv[1]).is_gone())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a /proc that hides processes")
def test_a_process_that_proc_hides_from_other_users_is_not_taken_for_gone() -> None:
    """Else one user's start removed another's containers."""
    mounted = 'mount -t proc -o hidepid=2 proc /proc && exec "$0" "$@"'
    asked = [sys.executable, "-c", HIDDEN, str(Owner.this_process())]
    done = ran(["unshare", "--mount", "sh", "-c", mounted, *asked])
    if "mount:" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout == "False\n", done.stderr


def test_a_file_that_is_no_heartbeat_is_none(tmp_path: Path) -> None:
    assert Beat.read(tmp_path) is None
    for text in ("", "{}", "[]", '{"children": 3}', '{"children": []}'):
        (tmp_path / HEARTBEAT).write_text(text)
        assert Beat.read(tmp_path) is None
    document = asdict(Beat(1, "here", "", 1, "solve", _now(), False))
    for odd in ({"time": "x"}, {"time": "2026-01-01"}, {"children": [1]}, {"pid": "1"}, {"ended": None}):
        (tmp_path / HEARTBEAT).write_text(json.dumps(document | odd))
        assert Beat.read(tmp_path) is None
    (tmp_path / HEARTBEAT).write_text(json.dumps(document | {"mark": "ä"}))
    assert _read(tmp_path).own_children == ()
    (tmp_path / HEARTBEAT).unlink()
    os.mkfifo(tmp_path / HEARTBEAT)  # whoever opens it waits for somebody to write
    assert Beat.read(tmp_path) is None


def test_a_beat_that_cannot_be_written_is_left_out(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    with Heartbeat(directory, lambda: ()) as heartbeat:
        _read(directory)
        shutil.rmtree(directory)
        heartbeat.at(1, "match")
    assert not directory.exists()
