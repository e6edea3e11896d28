"""`populora run --base`: a hub's name at its commit, a folder or a bundled name, with the settings that fit it."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import pytest
from conftest import small_config
from hub_server import COMMIT, serving
from test_cli import populora
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from populora_core.config.load import build_config
from populora_core.lifecycle.loop import train
from populora_core.runs.any_base import base_settings
from populora_core.runs.preflight import (
    GroupOfOne,
    NoChatTemplate,
    check_folders,
    tell_of_groups,
    tell_of_template,
)
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.support.errors import BaseModelError, ConfigError
from populora_core.support.shipped import shipped
from populora_core.support.user_cache import FOLDER_VARIABLE

TINY = shipped("base_model", "tiny")
MACHINE = {"device": "cpu", "dtype": "float32"}


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.mark.parametrize("name", ["tiny", "bundled:tiny"])
def test_a_bundled_base_goes_by_its_name_and_speaks_compact(name: str) -> None:
    assert base_settings(name) == {"path": "bundled:tiny", "dialect": "compact", **MACHINE}


@pytest.mark.parametrize(("small", "spoken"), [(2.5e9, "assert"), (1.0, "instruct")])
def test_a_folder_whose_tokenizer_is_not_compact_speaks_by_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: float, spoken: str
) -> None:
    monkeypatch.setattr("populora_core.runs.any_base.SMALL", small)
    folder = tmp_path / "base"
    shutil.copytree(TINY, folder)
    Tokenizer(WordLevel({"<eos>": 0, "word": 1}, unk_token="word")).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>"})
    )
    assert base_settings(str(folder)) == {"path": str(folder), "dialect": spoken, **MACHINE}


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, True),
        ({"tokenizer_config.json": '{"eos_token": "<eos>"}'}, True),
        ({"tokenizer_config.json": '{"chat_template": "{{ messages }}"}'}, False),
        ({"chat_template.jinja": "{{ messages }}"}, False),
    ],
)
def test_a_base_without_a_chat_template_is_told_what_will_happen(
    tmp_path: Path, files: dict[str, str], told: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tell_of_template(build_config({"base": {"path": str(tmp_path), "dialect": "instruct"}}, "here"))
        tell_of_template(build_config({}, "here"))
    assert [each.category for each in said] == [NoChatTemplate] * told
    assert all("ends at </answer>" in str(each.message) for each in said)


@pytest.mark.parametrize(
    ("settings", "alone"),
    [
        ({}, []),
        ({"propose": {"per_type": 1}}, ["propose.per_type"]),
        ({"propose": {"per_type": 1}, "update": {"roles": "students"}}, []),
        ({"solve": {"attempts": 1}}, ["solve.attempts"]),
        ({"solve": {"attempts": 1, "extra_attempts": 1}}, []),
        ({"solve": {"attempts": 1}, "update": {"estimator": "trr_pp"}}, []),
    ],
)
def test_groups_of_one_completion_are_told_before_anything_starts(
    settings: dict[str, dict[str, object]], alone: list[str]
) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tell_of_groups(build_config(settings, "here"))
    assert [each.category for each in said] == [GroupOfOne] * len(alone)
    assert all(str(each.message).startswith(f"{name} is 1") for each, name in zip(said, alone, strict=True))


def test_on_a_gpu_the_base_lies_there_in_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: not including_emulation)
    found = base_settings("tiny")
    assert (found["device"], found["dtype"]) == ("cuda", "bfloat16")


def test_a_name_of_the_hub_is_pinned_to_its_commit_and_then_needs_no_network(cache: Path) -> None:
    with serving() as hub:
        hub.files = {f"me/tiny/{file.name}": file.read_bytes() for file in TINY.iterdir()}
        found = base_settings("me/tiny")
        assert base_settings(found["path"]) == found, "as the record of a run names it"
    assert found == {"path": f"hub:me/tiny@{COMMIT}", "dialect": "compact", **MACHINE}
    base = build_config({"base": found}, "the settings").base
    assert base.public_name() == "me/tiny"
    assert (base.folder() / "config.json").read_bytes() == (TINY / "config.json").read_bytes()
    assert base.folder().is_relative_to(cache)


@pytest.mark.usefixtures("cache")
def test_a_plan_fetches_all_but_the_weights_of_a_base() -> None:
    with serving() as hub:
        hub.files = {f"me/tiny/{file.name}": file.read_bytes() for file in TINY.iterdir()}
        found = base_settings("me/tiny", weights=False)
        fetched = hub.fetched()
    assert found == {"path": f"hub:me/tiny@{COMMIT}", "dialect": "compact", **MACHINE}
    assert any("tokenizer.json" in file for file in fetched)
    assert not [file for file in fetched if file.endswith(".safetensors")]


@pytest.mark.sandbox
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("path", "told"),
    [
        (f"gguf:mine@{'0' * 64}", "--base FILE.gguf makes it again"),
        (f"hub:me/tiny@{COMMIT}", f"hf download me/tiny --revision {COMMIT}"),
    ],
)
def test_a_resume_whose_base_is_gone_says_how_to_get_it(
    path: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "empty"))
    Run.create(tmp_path / "run", small_config(base={"path": path}), "0" * 64)
    with Session(Run.open(tmp_path / "run")) as session, pytest.raises(BaseModelError) as refused:
        train(session, 1)
    assert refused.value.problem == f"the base {path} is not on this machine" and told in refused.value.fix


@pytest.mark.usefixtures("cache")
def test_without_a_network_it_says_what_to_download() -> None:
    with serving(), pytest.raises(BaseModelError, match="hf download me/tiny --revision v1"):
        base_settings("me/tiny@v1")
    config = build_config({"base": {"path": f"hub:me/tiny@{COMMIT}"}}, "run.json")
    with pytest.raises(ConfigError, match=f"hf download me/tiny --revision {COMMIT}"):
        check_folders(config, "run.json")


def test_a_dry_run_of_a_base_alone_says_whether_it_fits(tmp_path: Path) -> None:
    told = populora("run", "--base", "frontier", "--run-dir", tmp_path / "run", "--dry-run")
    assert told.returncode == 0, told.stderr
    assert 'path = "bundled:frontier"' in told.stdout and "both stay resident" in told.stdout
    assert not (tmp_path / "run").exists()
