"""The real vLLM on this machine's CPU, held to the torch sampler on the bundled base."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import alive
from tiny_requests import teacher_forced
from vllm_members import (
    ALPHA,
    FOLDER,
    MEMBERS,
    RANK,
    SPOILT,
    TOLERANCE,
    adapter,
    asked,
    assert_alike,
    needs_vllm,
    new_sampler,
    prompts,
)

from populora_core.lifecycle.export import export_member
from populora_core.model.adapter_files import CONFIG, WEIGHTS
from populora_core.model.base import BaseModel, Vocabulary, load_base
from populora_core.model.layout import AdapterLayout
from populora_core.model.stacked import StackedAdapters
from populora_core.runs.run import Run
from populora_core.sampler.requests import Completion, Request, Served, Text
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.store.catalogue import Catalogue
from populora_core.support.digest import file_sha256
from populora_core.support.errors import AdapterError, ConfigError, PopulationError
from populora_core.support.finish import FinishReason
from populora_core.support.processes import descendants
from populora_plugins.vllm.sampler import VllmSampler

pytestmark = [pytest.mark.vllm, needs_vllm]


@pytest.fixture(scope="module")
def base() -> BaseModel:
    torch.set_num_threads(1)
    return load_base(FOLDER)


@pytest.fixture(scope="module")
def stacked(base: BaseModel) -> StackedAdapters:
    return StackedAdapters(base.model, AdapterLayout.of(base.model, RANK, ALPHA))


@pytest.fixture(scope="module")
def served(stacked: StackedAdapters, tmp_path_factory: pytest.TempPathFactory) -> list[Served]:
    folder = tmp_path_factory.mktemp("members")
    return [adapter(folder / member, stacked.layout, member) for member in MEMBERS]


@pytest.fixture(scope="module")
def engine() -> Iterator[VllmSampler]:
    """One engine for the module: starting one takes ten seconds."""
    sampler = new_sampler()
    yield sampler
    sampler.close()


@pytest.fixture
def sampler(engine: VllmSampler, served: list[Served]) -> VllmSampler:
    engine.load(served)
    return engine


@pytest.fixture
def reference(base: BaseModel, stacked: StackedAdapters, served: list[Served]) -> TorchSampler:
    sampler = TorchSampler(stacked, base.stop_ids)
    sampler.load(served)
    return sampler


def test_eight_adapters_in_one_batch_write_what_the_torch_sampler_writes(
    sampler: VllmSampler, reference: TorchSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    step = sampler.engine.step
    monkeypatch.setattr(sampler.engine, "step", lambda: steps.append(1) or step())
    requests = asked(*MEMBERS, temperature=0.0)
    found = sampler.generate(requests)
    assert_alike(found, reference.generate(requests))
    assert len({c.token_ids for c in found[: len(MEMBERS)]}) == len(MEMBERS), "the adapters differ"
    assert len(steps) < 2 * 16, "they ran in turns"


def test_a_base_row_beside_adapter_rows_is_the_bases(sampler: VllmSampler, reference: TorchSampler) -> None:
    requests = asked(*MEMBERS, None, temperature=0.0)
    found = sampler.generate(requests)
    assert_alike(found, reference.generate(requests))
    alone = [request for request in requests if request.member_id is None]
    assert_alike([c for c, r in zip(found, requests, strict=True) if r in alone], sampler.generate(alone))


@pytest.mark.parametrize(
    ("temperature", "top_p"), [(1.0, 1.0), (0.6, 1.0), (1.4, 0.7), (0.6, 0.5), (0.0, 0.5)]
)
def test_log_probabilities_are_those_after_temperature_and_before_top_p(
    sampler: VllmSampler, reference: TorchSampler, stacked: StackedAdapters, temperature: float, top_p: float
) -> None:
    requests = asked("m0", "m5", None, temperature=temperature, top_p=top_p)
    for request, completion in zip(requests, sampler.generate(requests), strict=True):
        expected = teacher_forced(stacked, request, completion)
        np.testing.assert_allclose(completion.logprobs, expected, rtol=0.0, atol=TOLERANCE)


def test_requests_of_every_kind_share_a_batch(
    sampler: VllmSampler, reference: TorchSampler, stacked: StackedAdapters
) -> None:
    kinds = [(0.0, 1.0), (0.7, 0.6), (1.0, 1.0), (1.3, 0.9)]
    requests = [
        replace(request, temperature=kinds[index % 4][0], top_p=kinds[index % 4][1])
        for index, request in enumerate(asked("m1", "m2", "m3"))
    ]
    for request, completion in zip(requests, sampler.generate(requests), strict=True):
        expected = teacher_forced(stacked, request, completion)
        np.testing.assert_allclose(completion.logprobs, expected, rtol=0.0, atol=TOLERANCE)


def test_sampled_first_tokens_follow_the_models_distribution(
    sampler: VllmSampler, reference: TorchSampler, stacked: StackedAdapters
) -> None:
    count, prompt = 1500, prompts()[0]
    found = sampler.generate(
        [Request("m4", prompt, seed, temperature=1.5, max_tokens=1) for seed in range(count)]
    )
    with torch.no_grad(), stacked.routed([stacked.slot("m4")]):
        logits = stacked.model(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1]
    expected = count * torch.softmax(logits.double() / 1.5, -1).numpy()
    drawn = np.bincount([c.token_ids[0] for c in found], minlength=len(expected))
    likely = expected >= 5.0
    freedom = int(likely.sum())
    chi_square = ((drawn - expected)[likely] ** 2 / expected[likely]).sum()
    assert chi_square < freedom + 5.0 * np.sqrt(2.0 * freedom)


def test_a_request_has_its_own_random_stream(sampler: VllmSampler) -> None:
    requests = asked("m0", "m1", None)
    together = sampler.generate(requests)
    assert [c.token_ids for c in sampler.generate(requests[::-1])[::-1]] == [c.token_ids for c in together]
    assert [c.token_ids for c in sampler.generate(requests[:5])] == [c.token_ids for c in together[:5]]
    reseeded = sampler.generate([replace(request, seed=2**63 - 1 - request.seed) for request in requests])
    assert [c.token_ids for c in reseeded] != [c.token_ids for c in together]


def test_a_request_that_no_one_waits_for_ends_and_the_others_go_on(sampler: VllmSampler) -> None:
    requests = [replace(request, max_tokens=40) for request in asked("m0", None)]
    whole = sampler.generate(requests)
    longest = max(range(len(whole)), key=lambda place: len(whole[place].token_ids))
    found = sampler.generate(requests, drawn=lambda places, *_: [longest])
    assert len(found[longest].token_ids) < len(whole[longest].token_ids)
    assert [c.token_ids for i, c in enumerate(found) if i != longest] == [
        c.token_ids for i, c in enumerate(whole) if i != longest
    ]


def test_a_completion_ends_with_the_end_token_or_at_its_length(sampler: VllmSampler) -> None:
    requests = [replace(r, max_tokens=8 + index % 60) for index, r in enumerate(asked("m0", None, "m7"))]
    reasons = set()
    for request, completion in zip(requests, sampler.generate(requests), strict=True):
        assert len(completion.logprobs) == len(completion.token_ids) <= request.max_tokens
        assert 1 not in completion.token_ids[:-1]
        ended = completion.token_ids[-1] == 1
        assert completion.finish_reason is (FinishReason.STOP if ended else FinishReason.LENGTH)
        assert ended or len(completion.token_ids) == request.max_tokens
        reasons.add(completion.finish_reason)
    assert reasons == set(FinishReason)


def test_stop_texts_of_one_token_and_of_several_end_a_completion_and_their_tokens_stay_in_it(
    sampler: VllmSampler, base: BaseModel
) -> None:
    vocabulary = Vocabulary(base.tokenizer, base.stop_ids)
    requests = asked("m0", "m6", None, temperature=0.0)
    for request, whole in zip(requests, sampler.generate(requests), strict=True):
        if len(set(whole.token_ids)) < 8:
            continue
        one, two = vocabulary.text(whole.token_ids[5:6]), vocabulary.text(whole.token_ids[3:5])
        cut = sampler.generate([replace(request, stop=(one,)), replace(request, stop=(one, two))])
        for stop, completion in zip(((one,), (one, two)), cut, strict=True):
            ends = [
                end
                for end in range(1, 17)
                if any(text in vocabulary.text(whole.token_ids[:end]) for text in stop)
            ]
            assert completion.token_ids == whole.token_ids[: ends[0]]
            assert completion.logprobs == pytest.approx(whole.logprobs[: ends[0]], abs=TOLERANCE)
            assert completion.finish_reason is FinishReason.STOP
        return
    pytest.fail("every completion repeats itself")


def test_texts_are_scored_as_they_are_generated(
    sampler: VllmSampler, reference: TorchSampler, stacked: StackedAdapters
) -> None:
    requests = asked("m0", "m3", None)
    completions = sampler.generate(requests)
    texts = [Text(r.member_id, r.prompt_ids, c.token_ids) for r, c in zip(requests, completions, strict=True)]
    for request, completion, scored in zip(requests, completions, sampler.score(texts), strict=True):
        np.testing.assert_allclose(scored, completion.logprobs, rtol=0.0, atol=TOLERANCE)
        np.testing.assert_allclose(
            scored, teacher_forced(stacked, request, completion), rtol=0.0, atol=TOLERANCE
        )
    assert sampler.score([]) == []


PREFIX = tuple(np.random.default_rng(8).integers(4, 334, 400).tolist())


def scored_after_the_prefix(sampler: VllmSampler, member: str) -> list[Completion]:
    """Greedy completions whose prompts share 400 tokens; the second finds them in the cache."""
    return [
        sampler.generate([Request(member, (*PREFIX, last), 0, temperature=0.0, max_tokens=8)])[0]
        for last in (40, 41)
    ]


def test_an_updated_adapter_is_served_fresh_on_a_shared_prefix_of_400_tokens(
    sampler: VllmSampler,
    reference: TorchSampler,
    stacked: StackedAdapters,
    served: list[Served],
    tmp_path: Path,
) -> None:
    before = scored_after_the_prefix(sampler, "m2")
    updated = [adapter(tmp_path / s.member_id, stacked.layout, s.member_id, seed=6) for s in served]
    sampler.load(updated)
    after = scored_after_the_prefix(sampler, "m2")
    reference.load(updated)
    assert_alike(after, scored_after_the_prefix(reference, "m2"))
    assert after[0].logprobs != pytest.approx(before[0].logprobs, abs=100 * TOLERANCE)
    cached = [each.cached_tokens or 0 for each in scored_after_the_prefix(sampler, "m2")]
    assert min(cached) > 300, "it tells what of the prefix it had"


def test_the_version_in_an_adapters_name_is_what_keeps_old_prefixes_away(
    sampler: VllmSampler,
    reference: TorchSampler,
    stacked: StackedAdapters,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control of the test above: without the version, vLLM serves the old adapter's keys and values."""
    first = adapter(tmp_path / "same", stacked.layout, "m2", seed=7)
    sampler.load([first])
    scored_after_the_prefix(sampler, "m2")
    name = sampler.adapters["m2"].lora_name
    sampler.load([])
    second = adapter(tmp_path / "same", stacked.layout, "m2", seed=8)  # in the same place
    reference.load([second])
    expected = scored_after_the_prefix(reference, "m2")
    with monkeypatch.context() as patch:
        patch.setattr(sampler, "name_of", lambda served: name)
        sampler.load([second])
    stale = scored_after_the_prefix(sampler, "m2")
    assert stale[0].logprobs != pytest.approx(expected[0].logprobs, abs=100 * TOLERANCE)
    sampler.load([])
    sampler.load([second])
    assert_alike(scored_after_the_prefix(sampler, "m2"), expected)


def test_another_scale_of_the_same_weights_is_another_version(
    sampler: VllmSampler, stacked: StackedAdapters, tmp_path: Path
) -> None:
    one = adapter(tmp_path / "one", stacked.layout, "m2")
    sampler.load([one])
    before = scored_after_the_prefix(sampler, "m2")
    settings = json.loads((one.folder / CONFIG).read_text())
    (one.folder / CONFIG).write_text(json.dumps(settings | {"lora_alpha": 4 * ALPHA}))
    sampler.load([one])
    after = scored_after_the_prefix(sampler, "m2")
    assert after[0].logprobs != pytest.approx(before[0].logprobs, abs=100 * TOLERANCE)


def test_members_that_stay_are_not_loaded_again(sampler: VllmSampler, served: list[Served]) -> None:
    numbers = {member: lora.lora_int_id for member, lora in sampler.adapters.items()}
    sampler.load(served[:5])
    sampler.load(served)
    again = {member: lora.lora_int_id for member, lora in sampler.adapters.items()}
    assert {member for member in MEMBERS if numbers[member] == again[member]} == set(MEMBERS[:5])
    assert sampler.engine.list_loras() == set(again.values())


def test_progress_adds_up_to_the_number_of_requests(sampler: VllmSampler) -> None:
    done: list[int] = []
    sampler.generate(asked("m0", None), done.append)
    assert sum(done) == 48
    assert len(done) > 1


def test_an_interruption_leaves_nothing_to_the_next_batch(sampler: VllmSampler) -> None:
    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    requests = asked("m0", None, temperature=0.0)
    with pytest.raises(KeyboardInterrupt):
        sampler.generate([replace(r, max_tokens=1 + i % 30) for i, r in enumerate(requests)], interrupt)
    assert not sampler.engine.has_unfinished_requests()
    assert len(sampler.generate(requests)) == len(requests)


def test_no_requests_give_no_completions(sampler: VllmSampler) -> None:
    assert sampler.generate([]) == []


def test_a_member_that_is_not_resident_is_refused(sampler: VllmSampler) -> None:
    with pytest.raises(PopulationError, match="nobody"):
        sampler.generate([Request("nobody", (3,), 0)])


def test_a_request_beyond_the_context_is_refused(sampler: VllmSampler) -> None:
    with pytest.raises(ConfigError, match="context"):
        sampler.generate([Request("m0", (3,) * 1000, 0, max_tokens=25)])


def test_a_temperature_that_vllm_would_change_is_refused(sampler: VllmSampler) -> None:
    with pytest.raises(ConfigError, match="temperature"):
        sampler.generate([Request("m0", (3,), 0, temperature=0.001)])


@pytest.mark.parametrize("spoil", SPOILT)
def test_an_adapter_that_cannot_be_served_is_refused_with_a_remedy(
    sampler: VllmSampler, stacked: StackedAdapters, tmp_path: Path, spoil: Callable[[Served], Served]
) -> None:
    new = spoil(adapter(tmp_path / "m0", stacked.layout, "m0", seed=9))
    with pytest.raises(AdapterError, match="m0") as caught:
        sampler.load([new])
    assert caught.value.fix


def test_threads_of_the_learner_stay_its_own(sampler: VllmSampler) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        sampler.generate(asked("m0"))
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_closing_leaves_no_process_and_a_later_load_starts_again(
    engine: VllmSampler, served: list[Served], reference: TorchSampler
) -> None:
    engine.close()
    before = set(filter(alive, descendants(os.getpid())))
    engine.load(served)
    engine.rest()  # a CPU cannot sleep: the engine stays as it is
    requests = asked("m0", None, temperature=0.0)
    assert_alike(engine.generate(requests), reference.generate(requests))
    engine.close()
    assert set(filter(alive, descendants(os.getpid()))) == before


def test_an_exported_adapter_serves(engine: VllmSampler, finished: Path, tmp_path: Path) -> None:
    run = Run.open(finished)
    with Catalogue(finished) as catalogue:
        members = catalogue.rows("SELECT member_id FROM members WHERE died_generation IS NULL ORDER BY 1")
    member = members[0]["member_id"]
    exported = export_member(run, member, tmp_path / "exported").folder
    adapters = [Served(member, exported, file_sha256(exported / WEIGHTS))]
    own = load_base(FOLDER)  # over the module's lie adapters of another rank
    layout = AdapterLayout.of(own.model, 4, 8.0)
    reference = TorchSampler(StackedAdapters(own.model, layout), own.stop_ids)
    reference.load(adapters)
    engine.load(adapters)
    requests = asked(member, temperature=0.0)
    assert_alike(engine.generate(requests), reference.generate(requests))
