"""A process that runs commands and tells what they touched outside of what they were given.

    python tests/watched.py PLAN.json       {"desk": FOLDER, "warm": [CASE], "cases": [CASE]}

A case is {"inside": [FOLDER], "outside": [FOLDER], "caches": [FOLDER], "commands": [[WORD]]}; for each a line of JSON
says what was imported, opened, changed or started that it does not allow. Python tells of itself by audit hooks; of
code that is not Python, as DuckDB's and Arrow's, the kernel tells who opens what lies outside.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import site
import struct
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

STARTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.fork", "os.forkpty", "pty.spawn")
TALKS = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto", "urllib.Request")
CHANGES = {
    "os.chmod": 1, "os.chown": 1, "os.link": 2, "os.mkdir": 1, "os.remove": 1, "os.rename": 2, "os.rmdir": 1,
    "os.symlink": 2, "os.truncate": 1, "os.utime": 1, "shutil.rmtree": 1, "shutil.move": 2,
}  # fmt: skip
ROOT = Path(__file__).resolve().parent.parent
SYSTEM = ("/dev/null", "/dev/urandom", "/proc/", "/sys/", "/etc/", "/usr/", "/lib", "/bin/")
OPENED = 0x3E7  # read, written, given other rights, opened, moved, made, removed

readable = tuple(
    os.path.realpath(path)
    for path in {
        *sysconfig.get_paths().values(),
        sys.prefix,
        sys.base_prefix,
        *site.getsitepackages(),
        *sys.path,
        ROOT,
    }
    if path
)
writable = (os.path.realpath(tempfile.gettempdir()) + "/populora-watched",)
case: dict[str, list[str]] | None = None
told: list[str] = []


def within(path: str, folders: tuple[str, ...] | list[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def judge(path: object, changes: bool, what: str) -> None:
    assert case is not None
    if isinstance(path, int) or path is None:
        return
    place = os.fsdecode(path)  # type: ignore[arg-type]
    place = place if changes else os.path.realpath(place)
    if within(place, [*case["inside"], *case["caches"]]) and not within(place, case["outside"]):
        return
    if (
        not changes
        and not within(place, case["outside"])
        and (within(place, readable) or place.startswith(SYSTEM))
    ):
        return
    if place == "/dev/null":
        return
    told.append(f"{what} {place}")


def hook(event: str, arguments: tuple[object, ...]) -> None:
    if case is None:
        return
    if event == "open":
        path, _, flags = arguments
        writes = bool(int(flags) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))  # type: ignore[call-overload]
        if not isinstance(path, int) and os.path.lexists(
            path
        ):  # a folder's own entries are asked for by name alone
            judge(os.path.realpath(os.fsdecode(path)), writes, "writes" if writes else "reads")  # type: ignore[arg-type]
    elif event in CHANGES:
        descriptors = [each for each in arguments[CHANGES[event] :] if isinstance(each, int) and each > 2]
        at = (
            f"/proc/self/fd/{descriptors[-1]}" if descriptors and "." in event and event != "os.mkdir" else ""
        )
        for path in arguments[: CHANGES[event]]:  # of a link itself, not of what it leads to
            folder, name = os.path.split(os.fsdecode(path))  # type: ignore[arg-type]
            judge(os.path.join(os.path.realpath(os.path.join(at, folder)), name), True, event)
    elif event in ("os.listdir", "os.scandir"):
        judge(arguments[0], False, event)
    elif event in STARTS or event in TALKS:
        told.append(f"{event} {str(arguments)[:200]}")


class Outside:
    """The kernel's word on who touches a folder or what lies in it."""

    def __init__(self, folders: list[str]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK)
        self._names = {libc.inotify_add_watch(self._fd, os.fsencode(path), OPENED): path for path in folders}
        assert -1 not in self._names

    def events(self) -> Iterator[str]:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._fd, 1 << 16):
                while data:
                    watch, mask, _, length = struct.unpack_from("iIII", data)
                    name = data[16 : 16 + length].rstrip(b"\0").decode()
                    data = data[16 + length :]
                    if not (
                        mask & 0x40000000 and not name
                    ):  # the folder itself was listed: Python tells of that
                        yield f"touched ({mask:#x}) {self._names.get(watch)}/{name}"

    def close(self) -> None:
        os.close(self._fd)


def imported(before: set[str]) -> Iterator[str]:
    for name in sorted(set(sys.modules) - before):
        file = getattr(sys.modules[name], "__file__", None)
        if name.partition(".")[0] in BAIT or (file and not within(os.path.realpath(file), readable)):
            yield f"imports {name} from {file}"
            del sys.modules[name]


BAIT = ("harmful", "pytest", "this", "antigravity")


def perform(asked: dict[str, object]) -> list[str]:
    """What the case's commands touched, and how those ended that ended in a traceback."""
    global case
    told.clear()
    outside = Outside(asked["outside"])  # type: ignore[arg-type]
    for words in asked["commands"]:  # type: ignore[attr-defined]
        before = set(sys.modules)
        sys.argv = ["populora", *words]
        said = io.StringIO()
        first = len(told)
        case = asked  # type: ignore[assignment]
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                main()
        except SystemExit as ending:
            ending_told = f"exit {ending.code}" if ending.code not in (None, 0, 1, 2) else ""
        except BaseException:
            ending_told = "TRACEBACK " + traceback.format_exc()[-1500:]
        else:
            ending_told = ""
        finally:
            case = None
        told.extend(imported(before))
        told.extend(outside.events())
        if ending_told:
            told.append(ending_told)
        told[first:] = [f"{' '.join(words[:1])}: {line}" for line in dict.fromkeys(told[first:])]
        if os.environ.get("WATCHED_SAID"):
            print("   ", words[:4], said.getvalue()[:300].replace("\n", " | "), file=sys.stderr)
    outside.close()
    return list(told)


if __name__ == "__main__":
    from populora_core.commands.app import main

    plan = json.loads(Path(sys.argv[1]).read_text())
    os.chdir(plan["desk"])
    for warm in plan["warm"]:  # what only the first call of a command does
        perform(warm)
    sys.addaudithook(hook)
    for number, asked in enumerate(plan["cases"]):
        print(json.dumps({"case": number, "told": perform(asked)}), flush=True)
