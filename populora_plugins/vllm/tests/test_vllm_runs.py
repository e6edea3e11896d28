"""vLLM as a run meets it: what it refuses before an engine starts, a process that is replaced, a whole generation."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import ran
from vllm_members import ALPHA, FOLDER, MEMBERS, RANK, adapter, asked, assert_alike, needs_vllm, new_sampler

from populora_core.config.machinery import SamplerSection
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.model.base import load_base, load_vocabulary
from populora_core.model.layout import AdapterLayout
from populora_core.model.stacked import StackedAdapters
from populora_core.sampler.engines import open_sampler
from populora_core.sampler.spec import ModelSpec
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.store.catalogue import Catalogue
from populora_core.support.errors import ConfigError
from populora_core.support.shipped import REPOSITORY
from populora_plugins.vllm import sampler as vllm_sampler
from populora_plugins.vllm.process import EngineProcess

pytestmark = [pytest.mark.vllm, needs_vllm]


def test_on_a_gpu_no_request_has_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM would draw such rows one by one, for a repeatability that a GPU does not have."""
    (request,) = asked("m0")[:1]
    assert new_sampler().params(request).seed == request.seed
    monkeypatch.setattr(vllm_sampler, "import_vllm", lambda device: None)  # this one is built for a CPU
    assert new_sampler(device="cuda").params(request).seed is None


def test_a_rank_beyond_vllms_is_refused() -> None:
    with pytest.raises(ConfigError, match="rank"):
        new_sampler(rank=513)


def test_vllm_built_for_another_device_is_refused() -> None:
    with pytest.raises(ConfigError, match="another device"):
        new_sampler(device="cuda")


def test_a_vllm_that_cannot_be_imported_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm.platforms", None)
    with pytest.raises(ConfigError, match="cannot be imported") as caught:
        new_sampler()
    assert "docs/how-to.md" in caught.value.fix


def test_the_engines_process_is_replaced_after_the_stated_number_of_adapters(tmp_path: Path) -> None:
    base = load_base(FOLDER)
    stacked = StackedAdapters(base.model, AdapterLayout.of(base.model, RANK, ALPHA))
    served = [adapter(tmp_path / member, stacked.layout, member) for member in MEMBERS]
    reference = TorchSampler(stacked, base.stop_ids)
    reference.load(served)
    section = SamplerSection(engine="vllm", recycle_after=8)
    spec = ModelSpec(BaseSection(), AdapterSection(rank=RANK), "none", section, members=5)
    vocabulary = load_vocabulary(FOLDER)
    sampler = open_sampler(spec, vocabulary, lambda: pytest.fail("vLLM has a base of its own"))
    assert isinstance(sampler, EngineProcess)
    try:
        sampler.load(served[:4])
        first = sampler.pid
        sampler.load(served[4:])
        assert sampler.pid == first
        sampler.load([*served[:4], adapter(tmp_path / "updated", stacked.layout, "m4", seed=6)])
        assert sampler.pid != first
        requests = asked(*MEMBERS[:4], None, temperature=0.0)
        assert_alike(sampler.generate(requests), reference.generate(requests))
    finally:
        sampler.close()


GENERATION = """
[run]
generations = 1
[population]
teachers = 2
students = 2
[adapters]
rank = 4
alpha = 8.0
[sampler]
engine = "vllm"
[propose]
per_type = 4
[solve]
attempts = 3
[evolve]
last_share = 0.0
every = 1
minimum_age = 1
[compute]
shards = 1
threads = 1
"""


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_whole_generation_runs_on_it(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(GENERATION)
    directory = tmp_path / "run"
    words = ["run", "--plain", "--config", str(tmp_path / "config.toml"), "--run-dir", str(directory)]
    done = ran([sys.executable, "-m", "populora_core.commands", *words], cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    for stage in ("propose", "solve"):
        manifest = json.loads((directory / "generations" / "0001" / stage / "manifest.json").read_text())
        assert manifest["extra"]["sampler"]["engine"] == "vllm"
    with Catalogue(directory) as catalogue:
        rows = catalogue.rows("SELECT count(*) AS n FROM attempts WHERE completion_tokens > 0")
        cache = catalogue.rows(
            "SELECT stage, cache_hits FROM stages WHERE cache_hits IS NOT NULL ORDER BY stage"
        )
    assert rows[0]["n"] > 0
    assert [row["stage"] for row in cache] == ["propose", "solve"]
    assert all(0.0 <= row["cache_hits"] < 1.0 for row in cache)
