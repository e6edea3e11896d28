"""The parts of the host that a sandbox sees: a Python interpreter, its libraries, the runner, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from populora_core.sandbox.jobs import Limits
from populora_core.sandbox.literals import MAX_LITERAL_DEPTH
from populora_core.sandbox.policy import ALLOWED_MODULES
from populora_core.support.errors import SandboxUnavailable
from populora_core.support.shipped import shipped

RUNNER = shipped("verifier_image", "runner.py")
RUNNER_INSIDE = "/runner.py"
PYTHON_FLAGS = ("-s", "-S", "-B", "-W", "ignore")
"""No -I, which would ignore PYTHONHASHSEED; what it guards against is absent, as the environment is empty."""

SPARE_UIDS = (61184, 4336)
"""First and number of the user ids that children take in turn: what systemd keeps for transient users."""

CODECS = (
    "ascii", "big5", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp437", "cp850", "cp866", "cp932", "cp949",
    "euc_jp", "euc_kr", "gb18030", "gb2312", "gbk", "idna", "iso2022_jp", "iso8859_1", "iso8859_15", "iso8859_2",
    "iso8859_5", "iso8859_7", "iso8859_9", "koi8_r", "koi8_u", "latin_1", "mac_roman", "punycode",
    "raw_unicode_escape", "rot_13", "shift_jis", "unicode_escape", "utf_16", "utf_16_be", "utf_16_le", "utf_32",
    "utf_32_be", "utf_32_le", "utf_7", "utf_8_sig",
)  # fmt: skip
"""The encodings of `str.encode` that programs can use beyond UTF-8; any other is a LookupError."""

PRELOADED = (*ALLOWED_MODULES, *(f"encodings.{codec}" for codec in CODECS))
"""Modules that the runner imports before the first program, since a child can open no file to import from."""

RUNNER_BYTES = 128 << 20  # interpreter, buffers, and a child's copies of both, beyond what a program may take
PROGRESS = 0.1
"""The share of its CPU limit that a program must use in each wall limit, or else it sleeps and is ended."""

_NEEDED_CAPABILITIES = (5, 6, 7, 8, 21)  # CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SETPCAP, CAP_SYS_ADMIN

_PROBE = """
import importlib, json, sys, sysconfig
sys.path.append(sys.argv[1])
for name in ["runner", *sys.argv[2:]]:
    importlib.import_module(name)
with open("/proc/self/maps") as maps:
    files = [line.split(maxsplit=5)[5].strip() for line in maps if ".so" in line]
standard = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
print(json.dumps({"standard": standard, "shared": files}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The real interpreter behind `sys.executable`, however many virtual environments lie between.

    Attributes:
        loader: the dynamic loader, under the path that the executable names it by; None if it is static.
        folders: the standard library and the folders of every shared library it loads; none inside another.
        library_folders: those of shared libraries, the interpreter's own before the system's.
    """

    executable: Path
    loader: Path | None
    folders: tuple[Path, ...]
    library_folders: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Contents:
    """The content of a sandbox; what is not listed here does not exist inside.

    Attributes:
        binds: read-only; path on the host and path inside.
        argv: the command that becomes PID 1.
        spare_uids: whether the runner starts as root with the right to change user ids, and each child gets
            an id of its own; otherwise everything inside is one unprivileged user.
    """

    binds: tuple[tuple[Path, Path], ...]
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    spare_uids: bool


def sandbox_contents(limits: Limits, hash_seed: int) -> Contents:
    """The contents of one worker's sandbox.

    Args:
        hash_seed: PYTHONHASHSEED of the worker and all its children, in [1, 2**32).

    Raises:
        SandboxUnavailable: the machine is not Linux, or the interpreter cannot be found.
    """
    interpreter = find_interpreter(limits.modules)
    spare_uids = can_spare_uids()
    files = [interpreter.executable, *interpreter.folders]
    if interpreter.loader is not None:
        files.append(interpreter.loader)
    return Contents(
        binds=(*((path.resolve(), path) for path in files), (RUNNER, Path(RUNNER_INSIDE))),
        argv=(str(interpreter.executable), *PYTHON_FLAGS, RUNNER_INSIDE, runner_settings(limits, spare_uids)),
        environment={
            "PYTHONHASHSEED": str(hash_seed),
            "LD_LIBRARY_PATH": os.pathsep.join(map(str, interpreter.library_folders)),
        },
        spare_uids=spare_uids,
    )


def runner_settings(limits: Limits, spare_uids: bool, socket: str | None = None) -> str:
    """The runner's argument, JSON.

    Args:
        socket: path, inside, of the socket that the runner connects to instead of its standard input and output.
    """
    settings = {
        **asdict(limits),
        "progress_seconds": PROGRESS * limits.cpu_seconds,
        "literal_depth": MAX_LITERAL_DEPTH,
        "modules": (*PRELOADED, *limits.modules),
        "uids": SPARE_UIDS if spare_uids else None,
        "socket": socket,
    }
    return json.dumps(settings)


def runner_digest() -> str:
    """The first 16 hex digits of the SHA-256 of the runner's source."""
    return hashlib.sha256(RUNNER.read_bytes()).hexdigest()[:16]


@cache
def find_interpreter(modules: tuple[str, ...] = ()) -> Interpreter:
    """The interpreter and all it needs to start and import what programs may import, `modules` among it."""
    if sys.platform != "linux":
        raise SandboxUnavailable(
            "the sandbox needs Linux",
            got=sys.platform,
            fix="run on Linux, in a virtual machine for instance",
        )
    executable = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    if not executable.exists():
        executable = Path(sys.executable).resolve()
    probe = subprocess.run(
        [str(executable), *PYTHON_FLAGS, "-c", _PROBE, str(RUNNER.parent), *PRELOADED, *modules],
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        raise SandboxUnavailable(
            "the Python interpreter for the sandbox does not start",
            expected=f"{executable} to import the runner and the modules that programs may import",
            got=probe.stderr.strip()[-500:],
            fix="install the complete standard library of this Python (python3-full on Debian and Ubuntu)",
        )
    found = json.loads(probe.stdout)
    standard = {Path(path) for path in found["standard"]}
    shared = {Path(path).parent for path in found["shared"]}
    own = Path(sys.base_prefix)
    library_folders = sorted(shared, key=lambda folder: (not folder.is_relative_to(own), folder))
    return Interpreter(executable, _loader(executable), _outermost(standard | shared), tuple(library_folders))


def can_spare_uids() -> bool:
    """True if this process may give each program a user id of its own: root, capable, and the ids exist."""
    if os.geteuid() != 0:
        return False
    status = Path("/proc/self/status").read_text(errors="replace")  # the kernel cuts names inside a letter
    effective = int(next(line for line in status.splitlines() if line.startswith("CapEff:")).split()[1], 16)
    if not all(effective >> capability & 1 for capability in _NEEDED_CAPABILITIES):
        return False
    first, count = SPARE_UIDS
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inside, _, length = map(int, line.split())
        if inside <= first and first + count <= inside + length:
            return True
    return False


def _outermost(folders: set[Path]) -> tuple[Path, ...]:
    return tuple(sorted(folder for folder in folders if not folders & set(folder.parents)))


def _loader(executable: Path) -> Path | None:
    """The PT_INTERP entry of a 64-bit little-endian ELF file."""
    content = executable.read_bytes()
    (table,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    for entry in range(table, table + size * count, size):
        (kind,) = struct.unpack_from("<I", content, entry)
        if kind == 3:
            (offset,) = struct.unpack_from("<Q", content, entry + 8)
            (length,) = struct.unpack_from("<Q", content, entry + 32)
            return Path(content[offset : offset + length].rstrip(b"\0").decode())
    return None
