"""Nothing silent with vLLM either: the proof at every load catches what vLLM itself would not tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_sampler_probe import MEMBERS, SPEC, write_version
from vllm_members import needs_vllm

from populora_core.compute.work import Worker
from populora_core.config.machinery import SamplerSection
from populora_core.model.adapter_files import CONFIG
from populora_core.sampler.probe import BASE, REFUSE, WARN, prove, serve
from populora_core.sampler.proof import MismatchLimits
from populora_core.sampler.requests import Served, Text
from populora_core.store.adapters import PROBE, WEIGHTS, Probe, read_probe
from populora_core.support.errors import AdapterNotServed
from populora_plugins.vllm.sampler import VllmSampler

pytestmark = [pytest.mark.vllm, needs_vllm]
EXACT = MismatchLimits.of(WARN, REFUSE, "float32")


@pytest.fixture(scope="module")
def worker() -> Worker:
    return Worker(SPEC, threads=1)


def new_sampler(worker: Worker, **settings: int) -> VllmSampler:
    spec = replace(SPEC, sampler=SamplerSection(engine="vllm", **settings))
    return VllmSampler(spec, worker.vocabulary.stop_ids)


def versions(worker: Worker, folder: Path, version: int) -> list[Served]:
    """Every member in one version, as a stage writes it."""
    hashes = write_version(worker, folder, version)
    return [
        Served(
            m,
            folder / m / f"g{version:04d}",
            hashes[m][WEIGHTS],
            earlier=(folder / m / "g0001" / PROBE,) if version > 1 else (),
        )
        for m in MEMBERS
    ]


@pytest.fixture
def old(worker: Worker, tmp_path: Path) -> list[Served]:
    return versions(worker, tmp_path, 1)


@pytest.fixture
def served(worker: Worker, old: list[Served], tmp_path: Path) -> list[Served]:
    return versions(worker, tmp_path, 2)


@pytest.fixture(scope="module")
def engine(worker: Worker) -> Iterator[VllmSampler]:
    sampler = new_sampler(worker)
    yield sampler
    sampler.close()


@pytest.fixture
def sampler(engine: VllmSampler, served: list[Served]) -> VllmSampler:
    report = serve(engine, served, "float32")
    assert report.largest_error < 1e-4 < report.refused_from
    assert report.alike == {}
    return engine


def probes(adapters: list[Served]) -> dict[str, Probe]:
    return {adapter.member_id: read_probe(adapter.folder) for adapter in adapters}


def test_an_adapter_that_is_not_applied_is_caught(sampler: VllmSampler, served: list[Served]) -> None:
    sampler.engine.remove_lora(sampler.adapters["b"].lora_int_id)
    sampler.adapters["b"] = None
    with pytest.raises(AdapterNotServed, match=r"does not serve b .*: it is not applied: the bare base"):
        prove(sampler, served, probes(served), EXACT)
    del sampler.adapters["b"]


def test_a_stale_adapter_is_caught(engine: VllmSampler, old: list[Served], served: list[Served]) -> None:
    engine.load(old)  # and the new version never arrives
    with pytest.raises(AdapterNotServed, match=r"it is stale: a of g0001 answers"):
        prove(engine, served, probes(served), EXACT)


def test_swapped_adapters_are_caught(sampler: VllmSampler, served: list[Served]) -> None:
    adapters = sampler.adapters
    adapters["a"], adapters["c"] = adapters["c"], adapters["a"]
    with pytest.raises(AdapterNotServed, match=r"does not serve a .*: it is swapped with c"):
        prove(sampler, served, probes(served), EXACT)
    adapters["a"], adapters["c"] = adapters["c"], adapters["a"]


def test_a_wrong_scaling_in_the_adapters_own_files_is_caught(
    engine: VllmSampler, served: list[Served]
) -> None:
    config = served[1].folder / CONFIG
    settings = json.loads(config.read_text())
    config.write_text(json.dumps(settings | {"lora_alpha": 2 * SPEC.adapters.alpha}))
    with pytest.raises(AdapterNotServed, match=r"does not serve b .*: its scaling is wrong"):
        serve(engine, served, "float32")


def test_a_base_row_that_is_given_an_adapter_is_caught(
    engine: VllmSampler, worker: Worker, served: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By vLLM's own fault on CPUs: all slots taken, and base rows beside adapter rows."""
    engine.close()
    sampler = new_sampler(worker, max_loras=len(MEMBERS))
    try:
        assert serve(sampler, served, "float32").largest_error < 1e-4, "apart, the base is itself"
        monkeypatch.setattr(sampler, "batches", lambda adapters: [range(len(adapters))])
        with pytest.raises(
            AdapterNotServed, match=f"{BASE} .*a row without a member was given the adapter of"
        ):
            serve(sampler, served, "float32")
    finally:
        sampler.close()


def test_a_spare_slot_alone_keeps_base_rows_from_adapters(
    engine: VllmSampler, served: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.load(served)
    monkeypatch.setattr(engine, "batches", lambda adapters: [range(len(adapters))])
    probe = read_probe(served[0].folder)
    texts = [Text(member, probe.prompt_ids, probe.completion_ids) for member in (*MEMBERS, None)]
    assert engine.score(texts)[-1] == pytest.approx(probe.base_logprobs, abs=1e-4)
