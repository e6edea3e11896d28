"""A received run asks before it uses code, stores, bases and files that its sender named, and remembers the answer."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from test_received_code import received
from typer.testing import CliRunner

import populora_core
from populora_core.commands.app import app
from populora_core.config.load import Config, apply_overrides
from populora_core.lifecycle.export import export_member
from populora_core.model.base import base_digest
from populora_core.problems.dialects import DIALECTS
from populora_core.runs.preflight import check_changed, inherited, places
from populora_core.runs.run import Run, sources
from populora_core.runs.session import Session
from populora_core.support import owner, trust
from populora_core.support.errors import ConfigError, PopuloraError
from populora_plugins.harvest.curriculum import Filters, NotRead, curriculum_tables


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module that is installed, and a user who has named nothing."""
    folder = tmp_path / "installed"
    folder.mkdir()
    (folder / "of_mine.py").write_text("def thing(): ...\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv(owner.FOLDER, str(tmp_path / "config"))
    trust.forget()
    return folder


def test_what_the_user_named_once_is_found_again(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust.remember(["of_mine:thing"])
    trust.forget()  # another process
    trust.require_trusted("of_mine:thing")
    with pytest.raises(ConfigError, match="not named yourself"):
        trust.require_trusted("pytest:main")
    (tmp_path / "nearer").mkdir()
    (tmp_path / "nearer" / "of_mine.py").write_text("def thing(): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path / "nearer"))
    with pytest.raises(ConfigError, match="--trust of_mine:thing"):  # other code under the same name
        trust.require_trusted("of_mine:thing")
    monkeypatch.setenv(trust.VARIABLE, "of_mine:thing")  # which the user has read, too
    trust.require_trusted("of_mine:thing")
    monkeypatch.delenv(trust.VARIABLE)
    trust.require_trusted("of_mine:thing")


def test_a_received_run_reaches_for_no_store_and_no_base_that_the_user_has_not_named(
    mine: Path, tmp_path: Path
) -> None:
    store, base = f"file://{tmp_path}/store", tmp_path / "base"
    run = Run.open(received(tmp_path / "run", store={"url": store}, base={"path": str(base)}))
    with pytest.raises(ConfigError, match=f"not named yourself: {store}"), Session(run):
        pass
    trust.trust([store])
    trust.forget()  # another process
    with pytest.raises(ConfigError, match=f"not named yourself: {base}"), Session(run):
        pass
    assert not (tmp_path / "store").exists() and not (run.directory / ".lock").exists()
    trust.trust([str(base)])
    trust.require_trusted(str(base))
    assert trust.named() == (), "no worker is told of sources"


@pytest.mark.parametrize(
    ("settings", "service"),
    [
        ({"compute": {"backend": "ray", "address": "127.0.0.1:6379"}}, "ray://127.0.0.1:6379"),
        ({"compute": {"backend": "ray"}}, None),
        ({"compute": {"backend": "local", "address": "127.0.0.1:6379"}}, None),
        (
            {"trackers": {"use": ["wandb"], "wandb": {"mode": "online", "entity": "them"}}},
            "wandb://them/populora",
        ),
        ({"trackers": {"use": ["wandb"]}}, None),
        ({"trackers": {"wandb": {"mode": "online"}}}, None),
    ],
)
def test_a_received_run_joins_no_cluster_and_no_account_that_the_user_has_not_named(
    mine: Path, tmp_path: Path, settings: dict[str, Any], service: str | None
) -> None:
    run = Run.open(received(tmp_path / "run", **settings))
    assert sources(run.config) == [service] * (service is not None)
    if service:
        with pytest.raises(ConfigError, match=f"not named yourself: {service}"), Session(run):
            pass


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("bundled:tiny", False),
        (f"hub:Qwen/Qwen2.5-7B@{'a' * 40}", False),
        (f"gguf:small@{'0' * 64}", False),
        ("bundled:../../elsewhere", True),
        ("bundled:/elsewhere", True),
        ("hub:a/b@../../../elsewhere", True),
        (f"gguf:/elsewhere@{'0' * 64}", True),
        ("elsewhere", True),
    ],
)
def test_a_base_is_asked_for_wherever_its_name_leads(path: str, asked: bool) -> None:
    config = apply_overrides(Config(), [f"base.path={json.dumps(path)}"])
    assert sources(config) == [str(config.base.folder().absolute())] * asked


def test_a_received_run_is_merged_with_no_base_that_the_user_has_not_named(
    mine: Path, tmp_path: Path, finished: Path
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    base = document["config"]["base"]["path"] = str(Config().base.folder())
    (tmp_path / "run" / "run.json").write_text(json.dumps(document))
    words = ["export", str(tmp_path / "run"), "best", "--merge", "--to"]
    refused = CliRunner().invoke(app, [*words, str(tmp_path / "first")])
    assert isinstance(refused.exception, ConfigError) and f"--trust {base}" in refused.exception.fix
    with pytest.raises(ConfigError, match=f"not named yourself: {base}"):
        export_member(Run.open(tmp_path / "run"), "best", tmp_path / "second", merge=True)
    assert not list(tmp_path.glob("first*")) and not list(tmp_path.glob("second*"))
    done = CliRunner().invoke(app, [*words, str(tmp_path / "third"), "--trust", base])
    assert done.exit_code == 0 and (tmp_path / "third" / "model.safetensors").is_file()
    plain = CliRunner().invoke(app, ["export", str(finished), "best", "--to", str(tmp_path / "adapter")])
    assert plain.exit_code == 0


FILES: dict[str, dict[str, dict[str, Any]]] = {
    "suite": {"evaluate": {"suite": "{}"}},
    "anchors": {"anchors": {"share": 0.2, "parameters": {"path": "{}"}}},
    "corpus": {"update": {"corpus_share": 0.2, "corpus": "{}"}},
    "adapter": {"adapters": {"start_from": {"teachers": [], "students": ["{}"], "solo": []}}},
}


def with_file(directory: Path, what: str, file: Path) -> Path:
    """A run that came with a record which names a file of the reader's."""
    return received(directory, **json.loads(json.dumps(FILES[what]).replace("{}", str(file))))


def ended(*words: str) -> str:
    """What a command ends with that it should not."""
    trust.forget()  # another process
    return str(CliRunner().invoke(app, words).exception)


@pytest.mark.parametrize("what", FILES)
@pytest.mark.parametrize(
    "words",
    [["resume"], ["rerun", "--generation", "1", "--stage", "solve"], ["evaluate"], ["play"], ["assemble"]],
)
def test_a_received_run_reads_no_file_beside_it_that_the_user_has_not_named(
    mine: Path, tmp_path: Path, what: str, words: list[str]
) -> None:
    file = tmp_path / "mine"
    file.touch()
    run = with_file(tmp_path / "run", what, file)
    assert f"not named yourself: {file}" in ended(words[0], str(run), *words[1:])
    with pytest.raises(ConfigError, match=f"not named yourself: {file}"), Session(Run.open(run)):
        pass


def forked(run: Path, *words: str) -> str:
    """What a fork of a run ends with that it should not."""
    return ended("fork", str(run), "--generation", "0", "--to", str(run.with_name("forked")), *words)


@pytest.mark.parametrize("what", FILES)
def test_a_fork_with_other_settings_reads_no_file_that_the_user_has_not_named(
    mine: Path, tmp_path: Path, what: str
) -> None:
    file = tmp_path / "mine"
    file.touch()
    run = with_file(tmp_path / "run", what, file)
    before = Run.open(run).config
    assert f"not named yourself: {file}" in forked(run, "--set", "run.seed=3")
    with pytest.raises(ConfigError, match=f"not named yourself: {file}"):  # where no one can be asked
        check_changed(apply_overrides(before, ["run.seed=3"]), before, "the settings of the form")
    forked(run, "--trust", str(file))
    trust.forget()
    trust.require_trusted(str(file))


def asking(suite: Path, benchmark: str) -> Path:
    suite.write_text(
        f'suite = "asked"\n[[benchmarks]]\nbenchmark = "{benchmark}"\ndataset = "bundled:tiny.parquet"\n'
    )
    return suite


def test_a_fork_imports_no_benchmark_that_only_the_suite_of_a_received_run_names(
    mine: Path, tmp_path: Path
) -> None:
    (mine / "judged_by_them.py").write_text("def thing(): ...\n")
    suite = asking(tmp_path / "sent.toml", "judged_by_them:thing")
    run, words = with_file(tmp_path / "run", "suite", suite), ("--set", "evaluate.report_every=5")
    assert f"not named yourself: {suite}" in forked(run, *words)
    assert "not named yourself: judged_by_them:thing" in forked(run, *words, "--trust", str(suite))
    assert "judged_by_them" not in sys.modules and not trust.is_trusted("judged_by_them:thing")
    assert "judged_by_them:thing has no" in forked(run, *words, "--trust", "judged_by_them:thing")


def test_a_fork_imports_what_a_suite_of_the_users_own_names(mine: Path, tmp_path: Path) -> None:
    (mine / "judged_by_me.py").write_text("def thing(): ...\n")
    suite = asking(tmp_path / "own.toml", "judged_by_me:thing")
    words = ("--set", f"evaluate.suite={suite}", "--set", "evaluate.report_every=5")
    assert "judged_by_me:thing has no" in forked(received(tmp_path / "run"), *words)


@pytest.mark.parametrize(
    ("sections", "switch", "source"),
    [
        ({"anchors": {"parameters": {"path": "/dev/null"}}}, "anchors.share=0.2", "/dev/null"),
        ({"update": {"corpus": "/dev/null"}}, "update.corpus_share=0.2", "/dev/null"),
        ({"compute": {"address": "them:6379"}}, "compute.backend=ray", "ray://them:6379"),
        (
            {"trackers": {"wandb": {"mode": "online", "entity": "them"}}},
            'trackers.use=["wandb"]',
            "wandb://them/populora",
        ),
    ],
    ids=["anchors", "corpus", "cluster", "account"],
)
def test_what_a_received_run_names_and_does_not_use_is_not_the_users_by_a_switch(
    tmp_path: Path, sections: dict[str, dict[str, object]], switch: str, source: str
) -> None:
    before = Run.open(received(tmp_path / "run", **sections)).config
    assert inherited(before, before) == []
    assert inherited(apply_overrides(before, [switch]), before) == [source]


def test_an_account_is_its_entity_whatever_the_project(tmp_path: Path) -> None:
    theirs = {"use": ["wandb"], "wandb": {"mode": "online", "entity": "them"}}
    sent = Run.open(received(tmp_path / "sent", trackers=theirs)).config
    assert inherited(apply_overrides(sent, ["trackers.wandb.project=mine"]), sent) == ["wandb://them/mine"]
    assert inherited(apply_overrides(sent, ["trackers.wandb.entity=me"]), sent) == []
    own = Run.open(received(tmp_path / "own")).config
    assert (
        inherited(apply_overrides(own, ['trackers.use=["wandb"]', "trackers.wandb.mode=online"]), own) == []
    )


@pytest.mark.parametrize("what", FILES)
def test_an_answer_about_a_file_is_remembered(mine: Path, tmp_path: Path, what: str) -> None:
    file = tmp_path / "mine"
    file.touch()
    words = ["evaluate", str(with_file(tmp_path / "run", what, file)), "--suite", "absent.toml"]
    assert "not named yourself" in ended(*words)
    assert "no suite file" in ended(*words, "--trust", str(file))
    assert "no suite file" in ended(*words)


@pytest.mark.parametrize("what", FILES)
def test_no_one_is_asked_for_files_of_a_run_of_their_own_or_for_what_is_not_here(
    mine: Path, tmp_path: Path, what: str
) -> None:
    file = tmp_path / "mine"
    sent = with_file(tmp_path / "sent", what, file)
    assert sources(Run.open(sent).config) == []
    file.mkdir()
    assert sources(Run.open(sent).config) == [str(file)]
    Run.create(tmp_path / "own", Run.open(sent).config, "0" * 64, start_from={})
    assert "no suite file" in ended("evaluate", str(tmp_path / "own"), "--suite", "absent.toml")


@pytest.mark.parametrize(
    ("suite", "asked"), [("bundled:tiny", False), ("bundled:../../README", True), ("", False)]
)
def test_a_suite_is_asked_for_wherever_its_name_leads(
    monkeypatch: pytest.MonkeyPatch, suite: str, asked: bool
) -> None:
    config = apply_overrides(Config(), [f"evaluate.suite={json.dumps(suite)}"])
    monkeypatch.setattr(os.path, "exists", bool)
    assert sources(config) == [str(config.evaluate.file())] * asked


def test_problems_of_a_received_run_are_written_without_its_suite_until_the_user_names_it(
    mine: Path, tmp_path: Path
) -> None:
    suite = tmp_path / "mine.toml"
    suite.write_text("no TOML")
    run = with_file(tmp_path / "run", "suite", suite)
    with pytest.warns(NotRead, match=f"you have not named {suite}"):
        curriculum_tables([run], Filters())
    trust.trust([str(suite)])
    with pytest.raises(PopuloraError, match="no usable suite"):
        curriculum_tables([run], Filters())


def test_a_users_own_configuration_may_name_a_tracker_and_a_backend_by_place(mine: Path) -> None:
    asked = ['trackers.use=["of_mine:thing"]', "compute.backend=of_mine:thing"]
    assert places(apply_overrides(Config(), asked)) == ["of_mine:thing"] * 2


def test_what_a_run_of_the_users_own_names_is_named(mine: Path, tmp_path: Path) -> None:
    base = Config().base.folder()
    config = apply_overrides(Config(), [f"base.path={json.dumps(str(base))}"])
    Run.create(tmp_path / "run", config, base_digest(base))
    trust.forget()
    trust.require_trusted(str(base))


@pytest.mark.parametrize("held_by", ["the run", "the working folder"])
def test_no_answer_lets_a_run_name_code_that_came_along(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_by: str
) -> None:
    if held_by == "the run":
        (mine / "run.json").write_text("{}")
    else:
        monkeypatch.chdir(mine)
    with pytest.raises(ConfigError, match=f"lies in {held_by}"):
        trust.trust(["of_mine:thing"])
    monkeypatch.setenv(trust.VARIABLE, "of_mine:thing")
    with pytest.raises(ConfigError, match=f"lies in {held_by}"):
        trust.require_trusted("of_mine:thing")
    trust.remember(["of_mine:thing"])  # by a configuration of the user's own
    trust.require_trusted("of_mine:thing")


def test_what_is_ours_or_python_s_own_lies_in_no_working_folder(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(populora_core.__file__).parents[1])
    trust.trust(["base_model.anchors:tiny"])
    with pytest.raises(ConfigError, match="built-in would be imported"):
        trust.require_trusted("sys:exit")


def test_metadata_in_the_working_folder_installs_nothing(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = mine / "of_mine-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: of-mine\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[populora.dialects]\nmine = of_mine:thing\n")
    assert "mine" in DIALECTS.names()
    monkeypatch.chdir(mine)
    assert "mine" not in DIALECTS.names()


def test_without_a_home_nothing_is_kept_and_nothing_fails(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", refuse)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert owner.folder() == tmp_path / "config", "as it was named"
    monkeypatch.delenv(owner.FOLDER)
    trust.remember(["of_mine:thing"])
    assert trust.is_trusted("of_mine:thing") and owner.mark_of("a text") == owner.mark_of("a text")
    trust.forget()
    assert not trust.is_trusted("of_mine:thing")
