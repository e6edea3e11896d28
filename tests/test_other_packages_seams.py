"""A third party's package: a tracker, a store, a compute backend and a sub-command, with no line changed here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import commits, contents, ran, small_config, start

from populora_core.config.machinery import SamplerSection
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.lifecycle.loop import train
from populora_core.model.base import load_vocabulary
from populora_core.runs.session import Session
from populora_core.runs.trackers import Trackers, TrackerWarning
from populora_core.sampler.engines import open_sampler
from populora_core.sampler.spec import ModelSpec
from populora_core.sharing.places import STORES, open_objects
from populora_core.support.errors import ConfigError
from populora_core.support.trust import remember

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "elsewhere"
version = "0.1.0"
[project.entry-points."populora.trackers"]
lines = "elsewhere:Lines"
[project.entry-points."populora.stores"]
shelf = "elsewhere:Shelf"
[project.entry-points."populora.compute"]
counted = "elsewhere:Counted"
[project.entry-points."populora.commands"]
shards-of = "elsewhere:app"
broken = "elsewhere.missing:app"
[tool.hatch.build.targets.wheel]
only-include = ["elsewhere.py"]
"""
MODULE = """\
import json
from pathlib import Path

import typer

from populora_core import InlineCompute, LocalObjects, Run, open_sandbox


class Lines:
    def __init__(self, run: Run) -> None:
        self._file = run.directory / "lines.jsonl"

    def follow(self, generations) -> None:
        self._file.write_text("".join(json.dumps(dict(each.figures)) + "\\n" for each in generations))

    def close(self) -> None:
        with self._file.open("a") as file:
            file.write('"closed"\\n')


class Shelf(LocalObjects):
    def __init__(self, url: str) -> None:
        super().__init__(Path(url.removeprefix("shelf://")))
        self.url = url


class Counted:
    remote, pids = True, ()

    def __init__(self, plan) -> None:
        self._threads = plan.threads

    def compute(self, spec):
        counted = InlineCompute(self._threads, spec)
        perform = counted.run

        def run(shards, progress=None):
            with open("shards.txt", "a") as file:
                file.writelines(f"{shard.name} {shard.store}\\n" for shard in shards)
            return perform(shards, progress)

        counted.run = run
        return counted

    def sandbox(self, settings, limits, hash_seed):
        return open_sandbox(settings.backend, limits, settings.workers, hash_seed)

    def close(self) -> None:
        Path("ended.txt").touch()


app = typer.Typer()


@app.command("shards-of")
def shards_of(directory: Path) -> None:
    "Count the shards of a run's stages."
    manifests = (json.loads(file.read_text()) for file in directory.rglob("manifest.json"))
    print(sum(len(manifest["extra"].get("shards", ())) for manifest in manifests))
"""

HALVES = """\
class Half:
    "Lacks one method of each kind."
    name, remote, pids, url = "half", False, (), ""
    def __init__(self, *given) -> None: ...
    compute = close = load = generate = rest = lambda self, *given: None
"""


@pytest.fixture
def half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The place of a class that is a compute backend without a sandbox, and an engine that cannot score."""
    (tmp_path / "halves.py").write_text(HALVES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "halves", raising=False)
    remember(["halves:Half"])
    return "halves:Half"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installs the package from its own folder."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "elsewhere.py").write_text(MODULE)
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--target")
    command = [sys.executable, "-m", "pip", "install", *options, str(folder / "site"), str(folder)]
    ran(command, check=True)
    return folder / "site"


def populora(site: Path, here: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command line where the package is installed beside ours."""
    return ran(
        [sys.executable, "-m", "populora_core.commands", *map(str, arguments)],
        cwd=here,
        env=os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{REPOSITORY}"},
    )


def test_its_command_is_one_of_ours_and_a_broken_one_says_what_is_wrong(site: Path, tmp_path: Path) -> None:
    shown = populora(site, tmp_path, "shards-of", "--help")
    assert shown.returncode == 0 and "Count the shards" in shown.stdout
    refused = populora(site, tmp_path, "broken", "--option", "value")
    assert refused.returncode == 2 and "`broken` cannot be loaded" in refused.stderr
    assert populora(site, tmp_path, "config", "trackers").returncode == 0


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("compute.backend=nowhere", "one of counted, inline, local, ray"),
        ('trackers.use=["nowhere"]', "one of lines, tensorboard, wandb"),
        ("store.url=nowhere://x", "s3://, shelf://"),
    ],
)
def test_what_no_package_brings_is_refused_with_what_the_installed_ones_do(
    site: Path, tmp_path: Path, setting: str, said: str
) -> None:
    refused = populora(site, tmp_path, "run", "--preset", "quick", "--dry-run", "--set", setting)
    assert refused.returncode == 2 and said in " ".join(refused.stderr.split())


@pytest.mark.sandbox
def test_a_backend_that_lacks_a_method_ends_a_run_before_its_first_stage(half: str, tmp_path: Path) -> None:
    run = start(tmp_path / "run", small_config(compute={"backend": half}))
    with (
        Session(run) as session,
        pytest.raises(ConfigError, match=r"compute backend halves:Half has no method `sandbox`"),
    ):
        train(session, 1)
    assert commits(run.directory) == {}


def test_an_engine_that_lacks_a_method_is_refused_before_it_samples(half: str) -> None:
    chosen = SamplerSection(engine=half)
    spec = ModelSpec(BaseSection(), AdapterSection(), "none", chosen, members=2, sleeps=False)
    vocabulary = load_vocabulary(spec.base.folder())
    with pytest.raises(ConfigError, match="engine halves:Half has no method `score`"):
        open_sampler(spec, vocabulary, lambda: pytest.fail("it has a base of its own"))


def test_a_store_and_a_tracker_that_lack_a_method_are_told_which(
    half: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(tmp_path / "run", small_config(trackers={"use": (half,)}))
    with Trackers(run) as trackers, pytest.warns(TrackerWarning, match="has no method `follow`"):
        trackers.follow([])
    import halves

    monkeypatch.setitem(STORES.made, "half", halves.Half)
    with pytest.raises(ConfigError, match="has no method `put`"):
        open_objects("half://shelf")


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_a_run_is_computed_shared_followed_and_pulled_by_what_it_brings(site: Path, tmp_path: Path) -> None:
    url = f"shelf://{tmp_path / 'shelf'}"
    told = {"compute.backend": "counted", "store.url": url, "trackers.use": '["lines"]'}
    few = {"run.generations": 1, "propose.per_type": 2}
    settings = [word for key, value in (told | few).items() for word in ("--set", f"{key}={value}")]
    made = populora(site, tmp_path, "run", "--plain", "--preset", "quick", "--run-dir", "run", *settings)
    assert made.returncode == 0, made.stderr
    figures, closed = map(json.loads, (tmp_path / "run/lines.jsonl").read_text().splitlines())
    assert closed == "closed" and 0 <= figures["solve_rate/all"] <= 1
    performed = [line.split() for line in (tmp_path / "shards.txt").read_text().splitlines()]
    assert {"found", "generate", "update"} <= {name for name, _ in performed}
    assert {store for _, store in performed} == {url}, "shards are committed where all machines see them"
    assert (tmp_path / "ended.txt").exists()
    counted = populora(site, tmp_path, "shards-of", "run")
    assert int(counted.stdout) == len(performed)
    pulled = populora(site, tmp_path, "pull", url, "again")
    assert pulled.returncode == 0, pulled.stderr
    assert contents(tmp_path / "again") == contents(tmp_path / "run") != {}
