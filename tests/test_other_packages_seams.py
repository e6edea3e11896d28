"""A third party's package: a tracker, a store, a compute backend and a sub-command, with no line changed here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import contents, ran

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
