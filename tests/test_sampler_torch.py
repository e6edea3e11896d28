"""The torch sampler: the tokens it draws and their log-probabilities, the ends of completions, and what it refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from tiny_base import VOCABULARY, layout_of, tiny_model
from tiny_requests import MEMBERS, STOP, distributions, some_requests, teacher_forced, tiny_stacked

from populora_core.model.stacked import StackedAdapters
from populora_core.sampler import torch_sampler
from populora_core.sampler.batch import BatchLimits
from populora_core.sampler.requests import Completion, Request
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.support.errors import ConfigError, PopulationError
from populora_core.support.finish import FinishReason


@pytest.fixture(scope="module")
def stacked() -> StackedAdapters:
    return tiny_stacked()


@pytest.fixture(scope="module")
def sampler(stacked: StackedAdapters) -> TorchSampler:
    return TorchSampler(stacked, [STOP])


def test_log_probabilities_equal_a_teacher_forced_pass(stacked: StackedAdapters, sampler: TorchSampler):
    for temperature in (1.0, 0.6):
        requests = some_requests(temperature=temperature)
        for request, completion in zip(requests, sampler.generate(requests), strict=True):
            expected = teacher_forced(stacked, request, completion)
            torch.testing.assert_close(torch.tensor(completion.logprobs), expected, rtol=0.0, atol=1e-4)


def test_completions_come_in_the_order_of_the_requests(sampler: TorchSampler):
    requests = some_requests()
    forward = sampler.generate(requests)
    backward = sampler.generate(requests[::-1])
    assert [c.token_ids for c in forward] == [c.token_ids for c in backward[::-1]]


@pytest.mark.parametrize("rows", [2, 7, 256])
def test_tokens_do_not_depend_on_what_else_is_in_the_batch(
    stacked: StackedAdapters, sampler: TorchSampler, rows: int
):
    requests = some_requests(20)
    expected = [completion.token_ids for completion in sampler.generate(requests)]
    other = TorchSampler(stacked, [STOP], BatchLimits(rows=rows))
    assert [completion.token_ids for completion in other.generate(requests)] == expected


def test_the_same_requests_give_the_same_bits(sampler: TorchSampler):
    assert sampler.generate(some_requests()) == sampler.generate(some_requests())


def test_a_completion_ends_with_the_end_token_or_at_its_length(sampler: TorchSampler):
    requests = some_requests()
    reasons = set()
    for request, completion in zip(requests, sampler.generate(requests), strict=True):
        assert len(completion.logprobs) == len(completion.token_ids) <= request.max_tokens
        assert STOP not in completion.token_ids[:-1]
        if completion.finish_reason is FinishReason.STOP:
            assert completion.token_ids[-1] == STOP
        else:
            assert len(completion.token_ids) == request.max_tokens
            assert completion.token_ids[-1] != STOP
        reasons.add(completion.finish_reason)
    assert reasons == set(FinishReason)


def test_a_request_that_no_one_waits_for_ends_and_the_others_go_on(sampler: TorchSampler):
    requests = some_requests()
    whole = sampler.generate(requests)
    longest = max(range(len(whole)), key=lambda place: len(whole[place].token_ids))
    counts = Counter[int]()

    def told(places, tokens, logprobs):
        counts.update(places)
        return [longest] if counts[longest] == 3 else None

    found = sampler.generate(requests, drawn=told)
    assert counts[longest] == len(found[longest].token_ids) == 3 < len(whole[longest].token_ids)
    assert found[longest].token_ids == whole[longest].token_ids[:3]
    assert [c.token_ids for i, c in enumerate(found) if i != longest] == [
        c.token_ids for i, c in enumerate(whole) if i != longest
    ]


def test_greedy_completions_equal_transformers_generate_on_padded_prompts():
    model = tiny_model()
    prompts = [tuple(range(2, 2 + length)) for length in (1, 3, 8)]
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    expected = model.generate(
        input_ids=ids,
        attention_mask=(ids != 0).long(),
        do_sample=False,
        max_new_tokens=12,
        eos_token_id=STOP,
        pad_token_id=0,
    )[:, width:].tolist()
    stacked = StackedAdapters(model, layout_of(model))
    sampler = TorchSampler(stacked, [STOP])
    found = sampler.generate([Request(None, p, seed=0, temperature=0.0, max_tokens=12) for p in prompts])
    for completion, tokens in zip(found, expected, strict=True):
        assert list(completion.token_ids) == tokens[: len(completion.token_ids)]
        assert completion.finish_reason is FinishReason.STOP or len(completion.token_ids) == 12


def test_sampled_first_tokens_follow_the_models_distribution(stacked: StackedAdapters, sampler: TorchSampler):
    count, prompt = 4000, (6, 2, 9)
    completions = sampler.generate([Request("b", prompt, seed, max_tokens=1) for seed in range(count)])
    with torch.no_grad(), stacked.routed([stacked.slot("b")]):
        logits = stacked.model(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1]
    expected = count * torch.softmax(logits.double(), -1)
    found = torch.bincount(torch.tensor([c.token_ids[0] for c in completions]), minlength=VOCABULARY)
    likely = expected >= 5.0
    chi_square = ((found - expected)[likely].square() / expected[likely]).sum()
    assert chi_square < 60.0  # beyond the 1e-4 quantile for 22 degrees of freedom
    assert found[~likely].sum() < 5.0 * (~likely).sum() + 20


def test_top_p_restricts_the_tokens_but_not_the_log_probabilities(
    stacked: StackedAdapters, sampler: TorchSampler
):
    def likelier(request: Request, completion: Completion) -> torch.Tensor:
        """At each token, the mass of those that were likelier."""
        logprobs = distributions(stacked, request, completion)
        drawn = logprobs.gather(-1, torch.tensor(completion.token_ids)[:, None])
        return torch.where(logprobs > drawn, logprobs.exp(), 0.0).sum(-1)

    requests = [Request("a", (5, 6), seed, top_p=0.3, max_tokens=6) for seed in range(20)]
    for request, completion in zip(requests, sampler.generate(requests), strict=True):
        expected = teacher_forced(stacked, request, completion)
        torch.testing.assert_close(torch.tensor(completion.logprobs), expected, rtol=0.0, atol=1e-4)
        assert likelier(request, completion).max() < request.top_p + 1e-3
    free = [replace(request, top_p=1.0) for request in requests]
    assert max(likelier(r, c).max() for r, c in zip(free, sampler.generate(free), strict=True)) > 0.5


def test_progress_adds_up_to_the_number_of_requests(stacked: StackedAdapters):
    done: list[int] = []
    TorchSampler(stacked, [STOP], BatchLimits(rows=16)).generate(some_requests(), done.append)
    assert sum(done) == 80
    assert len(done) >= 5


def spelt(ids: Sequence[int]) -> str:
    """Token 2 is "c" and "C"."""
    return "".join(f"{chr(97 + token)}{chr(65 + token)}" for token in ids)


def test_a_completion_ends_with_the_token_that_completes_a_stop_text_of_its_request(stacked: StackedAdapters):
    """The text lies in one token, ends one and begins the next, or begins and ends inside tokens."""
    sampler = TorchSampler(stacked, [STOP], decode=spelt)
    free = [Request(MEMBERS[seed % 3], (5, 6, 7), seed, max_tokens=24) for seed in range(60)]
    plain = sampler.generate(free)
    assert sum(len(completion.token_ids) > 5 for completion in plain) > 20
    stops = [(spelt(c.token_ids[3:6])[i % 2 : i % 2 + 1 + i % 4], "never") for i, c in enumerate(plain)]
    stops = [stop if all(stop) else () for stop in stops]
    asked = [replace(request, stop=stop) for request, stop in zip(free, stops, strict=True)]
    cut = 0
    for completion, stopped, stop in zip(plain, sampler.generate(asked), stops, strict=True):
        ids = completion.token_ids
        lengths = range(1, len(ids) + 1)
        end = next((n for n in lengths if any(text in spelt(ids[:n]) for text in stop)), len(ids))
        assert stopped.token_ids == ids[:end]
        assert stopped.logprobs == pytest.approx(completion.logprobs[:end], abs=1e-4)
        assert stopped.finish_reason is (FinishReason.STOP if end < len(ids) else completion.finish_reason)
        cut += end < len(ids)
    assert cut > 20


def test_after_most_tokens_nothing_is_decoded(stacked: StackedAdapters):
    decoded: list[tuple[int, ...]] = []

    def watched(ids: Sequence[int]) -> str:
        decoded.append(tuple(ids))
        return spelt(ids)

    asked = [Request("a", (5, 6, 7), seed, max_tokens=24, stop=("Dz",)) for seed in range(8)]
    TorchSampler(stacked, [STOP], decode=watched).generate(asked)
    assert len(decoded) <= 2 * VOCABULARY, "each token twice, to learn what it says, and no completion"


def test_without_a_way_to_decode_a_stop_text_is_refused(sampler: TorchSampler):
    with pytest.raises(ValueError, match="decode"):
        sampler.generate([Request("a", (5, 6, 7), 0, max_tokens=4, stop=("x",))])


def test_no_requests_give_no_completions(sampler: TorchSampler):
    assert sampler.generate([]) == []


def test_the_global_random_state_is_neither_read_nor_changed(sampler: TorchSampler):
    before = torch.get_rng_state()
    sampler.generate(some_requests(8))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_member_that_is_not_resident_is_refused(sampler: TorchSampler):
    with pytest.raises(PopulationError, match="nobody"):
        sampler.generate([Request("nobody", (3,), 0)])


def test_a_request_beyond_the_context_is_refused(sampler: TorchSampler):
    with pytest.raises(ConfigError, match=r"(?s)context\n.*140\n.*rerun RUN --stage propose"):
        sampler.generate([Request("a", (3,), 0), Request("a", (3,) * 100, 0, max_tokens=40)])


def test_a_base_whose_memory_cannot_be_reckoned_is_sampled_on_a_gpu_too(monkeypatch: pytest.MonkeyPatch):
    model = tiny_model()
    del model.config.intermediate_size  # as Falcon, whose configuration has another name for it
    layout = layout_of(model)
    requests = [request for request in some_requests() if request.member_id is None]
    sampler = TorchSampler(StackedAdapters(model, layout), [STOP])
    expected = sampler.generate(requests)
    monkeypatch.setattr(torch_sampler, "CUDA", "cpu")
    assert sampler.generate(requests) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompt_ids": ()},
        {"seed": -1},
        {"temperature": -0.1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"max_tokens": 0},
        {"stop": ("",)},
    ],
)
def test_an_impossible_request_is_refused(wrong: dict):
    with pytest.raises(ValueError):
        replace(Request("a", (3,), 0), **wrong)
