"""Building the sandbox image, from a registry's Python image or, where none can be reached, from Debian packages."""

from __future__ import annotations

import io
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from docker.errors import BuildError, DockerException, ImageNotFound
from requests.exceptions import RequestException

from populora_core.sandbox.containers import connect_daemon, image_tag, reason
from populora_core.sandbox.host import RUNNER
from populora_core.support.aliases import Say
from populora_core.support.errors import SandboxUnavailable
from populora_core.support.typed import as_root

DEFAULT_BASE = "python:3.12-slim"
SUITE = "trixie"  # its Python 3.13 forks and compiles with a fifth less CPU time than 3.11: docs/lab-log.md
PACKAGES = ("python3-minimal", "libpython3-stdlib")
UNUSED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "var/cache",
    "var/lib/apt",
    "var/log",
)
"""Folders that a sandbox never reads."""

BUILD_SECONDS = 600


def build(base_image: str = DEFAULT_BASE, say: Say = print) -> str:
    """Build the image of this version's runner on top of a base image. The build itself uses no network.

    Args:
        base_image: pulled by the daemon if it is not there yet.
        say: hears what is done, a line at a time.

    Returns:
        The image's tag.

    Raises:
        SandboxUnavailable: no daemon answers, or the build fails.
    """
    client = connect_daemon()
    say(f"building {image_tag()} from {base_image}")
    try:
        client.images.build(
            fileobj=_build_context(),
            custom_context=True,
            tag=image_tag(),
            buildargs={"BASE_IMAGE": base_image},
            network_mode="none",
            rm=True,
            forcerm=True,
            timeout=BUILD_SECONDS,
        )
    except (BuildError, DockerException, RequestException) as error:
        raise SandboxUnavailable(
            "the sandbox image could not be built",
            expected=f"{base_image}, here or in a registry that the daemon can reach",
            got=reason(error),
            fix="populora image build --from-debootstrap needs Debian's packages only",
        ) from error
    return image_tag()


def debootstrap_base(say: Say = print) -> str:
    """Make a base image with Debian's Python from packages, or take the one that was made before.

    Returns:
        The image's tag.

    Raises:
        SandboxUnavailable: not root, no debootstrap, no daemon, or a package cannot be had.
    """
    tag = f"populora-python:{SUITE}"
    client = connect_daemon()
    try:
        client.images.get(tag)
        say(f"taking {tag}, which is there already (docker rmi {tag} to have it made again)")
        return tag
    except ImageNotFound:
        pass
    _require_debootstrap()
    say(f"installing Debian {SUITE} with Python into {tag}, some minutes")
    with tempfile.TemporaryDirectory(prefix="populora-debootstrap-") as folder:
        root = Path(folder, "root")
        _debootstrap(root, say)
        for name in UNUSED:
            shutil.rmtree(root / name, ignore_errors=True)
        archive = Path(folder, "root.tar")
        with tarfile.open(archive, "w") as packed:
            packed.add(root, arcname=".", filter=_without_devices)
        say(f"importing {archive.stat().st_size >> 20} MiB")
        client.api.timeout = BUILD_SECONDS
        try:
            client.api.import_image_from_file(str(archive), repository="populora-python", tag=SUITE)
        except (DockerException, RequestException) as error:
            raise SandboxUnavailable(
                "the base image could not be imported",
                got=reason(error),
                fix="see the daemon's log; it needs room for the image",
            ) from error
    return tag


def _build_context() -> io.BytesIO:
    """Dockerfile and runner with fixed times and owners, so that equal content makes an equal image layer."""
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as packed:
        for path in (RUNNER.parent / "Dockerfile", RUNNER):
            info = tarfile.TarInfo(path.name)
            info.size, info.mode = path.stat().st_size, 0o644
            packed.addfile(info, io.BytesIO(path.read_bytes()))
    context.seek(0)
    return context


def _require_debootstrap() -> None:
    if os.geteuid() != 0:
        raise SandboxUnavailable(
            "debootstrap needs root",
            got=f"user id {os.geteuid()}",
            fix=as_root("image build --from-debootstrap"),
        )
    if shutil.which("debootstrap") is None:
        raise SandboxUnavailable("debootstrap is not installed", fix="apt-get install debootstrap")


def _debootstrap(root: Path, say: Say) -> None:
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root)]
    last = ""
    step = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        try:
            for line in process.stdout:
                last = line.strip() or last
                words = last.split()[1:]  # "I: Unpacking libc6...": a line a kind of step, not one a package
                if words and words[0] != step:
                    step = words[0]
                    say(last)
        except BaseException:
            process.terminate()  # otherwise it would go on installing into a folder that is being removed
            raise
    if process.returncode != 0:
        raise SandboxUnavailable(
            "debootstrap failed",
            expected=f"Debian's packages of {SUITE} for {platform.machine()} to be reachable",
            got=last,
            fix="see the lines above; populora image build --base-image takes any image with Python",
        )


def _without_devices(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if info.isdev() else info
