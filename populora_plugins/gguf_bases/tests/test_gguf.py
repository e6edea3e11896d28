"""GGUF files as bases, and bases that lie as data in wheels of a package index."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from conftest import wait_for
from filelock import FileLock
from gguf_files import llama
from safetensors.torch import load_file
from test_cli import populora

from populora_core.config.load import build_config
from populora_core.config.sections import BaseSection
from populora_core.model.base import load_base
from populora_core.runs.any_base import base_settings
from populora_core.runs.preflight import check_folders
from populora_core.support.digest import file_sha256
from populora_core.support.errors import ArtifactError, BaseModelError, ConfigError
from populora_core.support.user_cache import FOLDER_VARIABLE
from populora_plugins.gguf_bases.dequantise import SOURCE, dequantised, is_gguf
from populora_plugins.gguf_bases.named import NAMED, NamedBase, named_base
from populora_plugins.gguf_bases.package_index import WheelPart, joined


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(("noise", "tied"), [(None, True), (0.05, True), (float("inf"), False)])
def test_a_gguf_file_is_a_base_whose_head_is_tied_where_it_is_the_embedding(
    tmp_path: Path, noise: float | None, tied: bool
) -> None:
    file = tmp_path / "small.gguf"
    embedding = llama(file, noise)
    found = base_settings(str(file))
    assert (found["path"], found["dialect"]) == (f"gguf:small@{file_sha256(file)}", "assert")
    folder = BaseSection(path=found["path"]).folder()
    weights = load_file(folder / "model.safetensors")
    assert ("lm_head.weight" not in weights) == tied
    assert all(tensor.dtype is torch.bfloat16 for tensor in weights.values())
    kept = weights["model.embed_tokens.weight"].float()
    assert (kept - embedding).norm() < 0.1 * embedding.norm()
    assert file_sha256(file) in (folder / SOURCE).read_text()
    assert load_base(folder).stop_ids == {1}


def test_a_gguf_file_without_all_weights_is_refused(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "small-00001-of-00002.gguf"
    llama(file, None, lacks="blk.0.ffn_up.weight")
    with pytest.raises(BaseModelError, match=r"(?s)small-00001.*1 missing.*up_proj.*one file"):
        dequantised(file)
    assert not list(cache.rglob("*.safetensors"))


def test_a_gguf_file_is_dequantised_once(tmp_path: Path) -> None:
    file = tmp_path / "small.gguf"
    llama(file, None)
    folder = BaseSection(path=dequantised(file)).folder()
    before = (folder / "model.safetensors").stat().st_mtime_ns
    dequantised(file)
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    assert [each.name for each in folder.parent.iterdir()] == [folder.name]


def test_dequantising_draws_no_bar(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "small.gguf"
    llama(file, None)
    dequantised(file)
    assert "%" not in "".join(capfd.readouterr())


@pytest.mark.thorough
def test_two_processes_dequantise_one_file(tmp_path: Path) -> None:
    file = tmp_path / "small.gguf"
    llama(file, None)
    code = f"import populora_plugins.gguf_bases.dequantise as g, pathlib; g.dequantised(pathlib.Path({str(file)!r}))"
    both = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]


@contextmanager
def small_files(size: int) -> Iterator[None]:
    """Inside, the system lets no file grow beyond so many bytes, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_refuses_the_checkpoint_is_told_from_a_file_that_cannot_be_read(
    cache: Path, tmp_path: Path
) -> None:
    file = tmp_path / "small.gguf"
    llama(file, None)
    with pytest.raises(ArtifactError, match="File too large") as refused, small_files(16 << 10):
        dequantised(file)
    assert FOLDER_VARIABLE in refused.value.fix and not [*(cache / "bases").iterdir()]
    assert BaseSection(path=dequantised(file)).folder().is_dir()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_while_the_checkpoint_is_written_is_named(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    file = tmp_path / "small.gguf"
    llama(file, None)
    monkeypatch.setattr("transformers.PreTrainedModel.save_pretrained", full)
    with pytest.raises(ArtifactError, match=os.strerror(code)) as refused:
        dequantised(file)
    assert FOLDER_VARIABLE in refused.value.fix


def named(monkeypatch: pytest.MonkeyPatch, size: int, sha256: str = "0" * 64) -> str:
    """A name for a base that neither a hub nor an index has."""
    base = NamedBase("no-one/small@" + "0" * 40, "MIT", "small", sha256, size, size, ())
    monkeypatch.setitem(NAMED, "small", base)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return "small"


def joined_file(cache: Path) -> Path:
    """The GGUF file of that base, as a process that was killed after its download leaves it."""
    (cache / "gguf").mkdir(parents=True)
    llama(cache / "gguf" / "small.gguf", None)
    return cache / "gguf" / "small.gguf"


def test_a_named_base_is_made_of_the_file_that_is_there(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No one else is asked, and what is not needed any more goes."""
    file = joined_file(cache)
    path = f"gguf:small@{file_sha256(file)}"
    assert named_base(named(monkeypatch, 9, file_sha256(file))) == path and not file.exists()
    assert "hub" not in capfd.readouterr().err and BaseSection(path=path).folder().is_dir()


@pytest.mark.parametrize("asked", ["small", f"gguf:small@{'0' * 64}"])
def test_a_named_base_is_made_of_no_other_file(
    asked: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever put it there keeps it."""
    file = joined_file(cache)
    named(monkeypatch, 9)
    with pytest.raises(BaseModelError, match=r"small\.gguf is not the file that is meant") as refused:
        base_settings(asked)
    assert refused.value.got == f"sha256 {file_sha256(file)}" and not [*cache.glob("bases/*")]


def test_one_process_at_a_time_makes_a_named_base(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The second waits, and finds what the first has made although the file that it was made of has gone."""
    file = joined_file(cache)
    name = named(monkeypatch, 9, file_sha256(file))
    with ThreadPoolExecutor(1) as second:
        with FileLock(file.with_suffix(".lock")):
            found = second.submit(named_base, name)
            wait_for(lambda: "waiting for another process" in capfd.readouterr().err)
            path = dequantised(file)
            file.unlink()
        assert found.result() == path


def test_what_a_named_base_takes_is_said_before_it_is_fetched(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BaseModelError, match=r"no room for small; nothing was downloaded"):
        named_base(named(monkeypatch, 10**18))
    told = capfd.readouterr().err
    assert "weights under MIT" in told and "To download: 1000000000.0 GB" in told and "Memory" in told


def in_the_hubs_cache(folder: Path, base: NamedBase, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put the base's files into a hub's cache; the path that it then has."""
    model, _, commit = base.hub.partition("@")
    snapshot = folder / f"models--{model.replace('/', '--')}" / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors").write_text("")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(folder), raising=False)
    return f"hub:{base.hub}"


def test_a_named_base_in_the_hubs_cache_needs_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    name = named(monkeypatch, 10**18)
    path = in_the_hubs_cache(tmp_path / "hub", NAMED[name], monkeypatch)
    assert named_base(name) == path and "To download" not in capfd.readouterr().err


def test_a_plan_of_a_named_base_fetches_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = named(monkeypatch, 10**18)
    path = in_the_hubs_cache(tmp_path / "hub", NAMED[name], monkeypatch)
    (next((tmp_path / "hub").rglob("*.safetensors"))).unlink()
    assert named_base(name, weights=False) == path


def test_the_base_of_a_recorded_path_is_made_again_although_the_hub_has_one_of_its_name(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's weights are others: a run that began with the dequantised ones cannot go on with these."""
    name = named(monkeypatch, 9, file_sha256(joined_file(cache)))
    in_the_hubs_cache(tmp_path / "hub", NAMED[name], monkeypatch)
    path = NAMED[name].path
    assert base_settings(path)["path"] == path and BaseSection(path=path).folder().is_dir()
    assert base_settings(path)["path"] == path  # which is there now


@pytest.mark.usefixtures("cache")
def test_a_base_that_was_made_elsewhere_is_no_name_of_the_hub() -> None:
    with pytest.raises(BaseModelError, match="is not on this machine") as refused:
        base_settings(f"gguf:mine@{'0' * 64}")
    assert "--base FILE.gguf makes it again" in refused.value.fix


def test_what_is_no_gguf_file_is_refused_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF and no more")
    with pytest.raises(BaseModelError, match=r"broken\.gguf cannot be read"):
        base_settings(str(file))
    assert not is_gguf(Path(__file__)) and not [*cache.glob("bases/*")]


@pytest.mark.parametrize(
    ("path", "told"), [(f"gguf:small@{'0' * 64}", "FILE.gguf"), (NAMED["smollm2-135m"].path, "package index")]
)
def test_a_run_whose_dequantised_base_is_gone_says_how_to_make_it_again(path: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_folders(build_config({"base": {"path": path}}, "run.json"), "run.json")


def wheel(folder: Path, package: str, member: str, data: bytes) -> WheelPart:
    """A wheel with a data file and code that must never run."""
    name = package.replace("-", "_")
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(member, data)
        packed.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        packed.writestr(
            f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        )
        packed.writestr(
            f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        packed.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return WheelPart(f"{package}==1.0", file_sha256(path), member)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def test_the_parts_in_wheels_are_joined_and_the_wheels_go(tmp_path: Path, index: Path) -> None:
    parts = [wheel(index, f"a-part{n}", f"a_part{n}/data/part.bin", bytes([n]) * 9) for n in (1, 2)]
    whole = bytes([1]) * 9 + bytes([2]) * 9
    joined(parts, hashlib.sha256(whole).hexdigest(), tmp_path / "out" / "whole", tmp_path / "wheels")
    assert (tmp_path / "out" / "whole").read_bytes() == whole
    assert not (tmp_path / "wheels").exists() and len([*(tmp_path / "out").iterdir()]) == 1


def test_a_broken_off_download_goes_on_from_the_wheels_that_are_there(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [wheel(index, f"a-part{n}", "part.bin", bytes([n])) for n in (1, 2)]
    (second,) = index.glob("a_part2*")
    hidden = second.rename(tmp_path / second.name)
    arguments = hashlib.sha256(b"\1\2").hexdigest(), tmp_path / "whole", tmp_path / "wheels"
    with pytest.raises(BaseModelError, match=r"a-part2==1\.0 could not be fetched"):
        joined(parts, *arguments)
    assert not (tmp_path / "whole").exists()
    (first,) = index.glob("a_part1*")
    first.unlink()
    hidden.rename(second)
    joined(parts, *arguments)
    assert (tmp_path / "whole").read_bytes() == b"\1\2"


def test_a_wheel_with_another_content_is_never_used(tmp_path: Path, index: Path) -> None:
    part = wheel(index, "a-part1", "part.bin", b"good")
    wheel(index, "a-part1", "part.bin", b"evil")
    with pytest.raises(BaseModelError, match="is not the file that is meant"):
        joined([part], hashlib.sha256(b"good").hexdigest(), tmp_path / "whole", tmp_path / "wheels")
    assert not (tmp_path / "whole").exists() and not [*(tmp_path / "wheels").iterdir()]


def test_every_named_base_names_licence_commit_and_the_hash_of_every_wheel() -> None:
    for base in NAMED.values():
        assert base.licence == "Apache-2.0" and len(base.hub.partition("@")[2]) == 40
        assert all(len(sha256) == 64 for sha256 in (base.sha256, *(part.sha256 for part in base.parts)))


@pytest.mark.sandbox
def test_try_says_of_a_base_what_it_can(tmp_path: Path) -> None:
    """A random base proposes nothing valid: the trial has no answers, and it cannot play."""
    file = tmp_path / "small.gguf"
    llama(file, None)
    told: subprocess.CompletedProcess[str] = populora(
        "try", "--base", file, "--threads", "1", "--type", "code_i"
    )
    assert told.returncode == 1, told.stderr
    assert "code_i" in told.stdout and "code_o" not in told.stdout
    assert "proposals valid" in told.stdout and "cannot" in told.stdout
    assert "tokens per second" in told.stdout
