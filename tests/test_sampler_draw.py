from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from populora_core.sampler.draw import BLOCK, LARGE, uniforms
from populora_core.sampler.torch_sampler import draw

LOGITS = torch.tensor([1.0, -2.0, 0.5, 2.0, -1.0])
SAMPLES = 20_000
CHI_SQUARE_4_AT_1E_4 = 23.5  # critical value with 4 degrees of freedom


def sample(temperature: float, top_p: float = 1.0) -> tuple[np.ndarray, torch.Tensor]:
    """Frequencies of 20,000 draws, and the log-probability of each."""
    uniform = uniforms([7], SAMPLES)[0]
    tokens, logprobs = draw(
        LOGITS.expand(SAMPLES, -1),
        uniform,
        torch.full((SAMPLES,), temperature),
        torch.full((SAMPLES,), top_p, dtype=torch.float64),
    )
    expected = torch.log_softmax(LOGITS / (temperature or 1.0), -1)[tokens]
    torch.testing.assert_close(logprobs, expected)
    return np.bincount(tokens.numpy(), minlength=5) / SAMPLES, logprobs


def chi_square(found: np.ndarray, expected: np.ndarray) -> float:
    return float(SAMPLES * ((found - expected) ** 2 / expected).sum())


def test_tokens_follow_the_softmax_at_every_temperature():
    for temperature in (0.5, 1.0, 2.0):
        expected = torch.softmax(LOGITS.double() / temperature, -1).numpy()
        assert chi_square(sample(temperature)[0], expected) < CHI_SQUARE_4_AT_1E_4


def test_temperature_zero_takes_the_most_probable_token():
    frequencies, _ = sample(0.0)
    assert frequencies.tolist() == [0.0, 0.0, 0.0, 1.0, 0.0]


def test_top_p_keeps_the_smallest_set_with_that_mass_in_proportion():
    probabilities = torch.softmax(LOGITS, -1).double().numpy()  # .61 (3), .22 (0), .14 (2), ...
    frequencies, _ = sample(1.0, top_p=0.7)
    kept = probabilities[[3, 0]] / probabilities[[3, 0]].sum()
    np.testing.assert_allclose(frequencies[[3, 0]], kept, atol=0.015)
    assert frequencies[[1, 2, 4]].sum() == 0.0


def test_top_p_below_the_largest_probability_keeps_that_token():
    frequencies, _ = sample(1.0, top_p=0.01)
    assert frequencies[3] == 1.0


def test_a_seed_has_its_own_stream_and_longer_requests_only_go_on_with_it():
    both = uniforms([3, 12345678901234567890], 6)
    assert torch.equal(both[1:], uniforms([12345678901234567890], 6))
    assert torch.equal(both[:, :4], uniforms([3, 12345678901234567890], 4))
    assert not torch.equal(both[0], both[1])


@given(
    st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=8),
    st.floats(0, 1, exclude_max=True),
    st.floats(0.01, 1),
)
def test_the_token_is_the_first_whose_cumulative_probability_exceeds_the_uniform(
    logits: list[float], uniform: float, top_p: float
):
    values = torch.tensor([logits])
    token, _ = draw(
        values,
        torch.tensor([uniform], dtype=torch.float64),
        torch.ones(1),
        torch.tensor([top_p], dtype=torch.float64),
    )
    assert torch.softmax(values, -1)[0, token] > 0.0
    plain, _ = draw(values, torch.tensor([uniform], dtype=torch.float64), torch.ones(1))
    cumulative = torch.softmax(values, -1)[0].double().cumsum(0)
    cumulative /= cumulative[-1].clone()
    below = cumulative[plain - 1] if plain > 0 else 0.0
    assert below - 1e-6 <= uniform <= cumulative[plain] + 1e-6


def test_a_row_without_numbers_gets_a_token_of_the_vocabulary_and_changes_no_other():
    """A member whose weights have blown up must not take the whole batch with it."""
    logits = torch.tensor([[math.nan] * 5, [0.0, 1.0, 2.0, 1.0, 0.0]])
    uniform = torch.tensor([0.5, 0.9], dtype=torch.float64)
    tokens, _ = draw(logits, uniform, torch.ones(2))
    alone, _ = draw(logits[1:], uniform[1:], torch.ones(1))
    assert 0 <= tokens[0] < 5 and tokens[1] == alone


@given(st.integers(0, 2**32), st.integers(LARGE, LARGE + 2 * BLOCK), st.floats(0.3, 3.0))
def test_a_large_vocabulary_is_drawn_from_by_blocks_and_gives_the_same_tokens(
    seed: int, vocabulary: int, temperature: float
):
    rng = torch.Generator().manual_seed(seed)
    logits = 3.0 * torch.randn(6, vocabulary, generator=rng)
    uniform = torch.rand(6, generator=rng, dtype=torch.float64)
    temperatures = torch.tensor([temperature] * 5 + [0.0])
    tokens, logprobs = draw(logits, uniform, temperatures)
    # top_p = 1 leaves every token in, and goes the way of small vocabularies
    plain, expected = draw(logits, uniform, temperatures, torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(
        logprobs, torch.where(tokens == plain, expected, logprobs), atol=2e-5, rtol=0.0
    )
    mass = torch.softmax(logits[:5].double() / temperature, -1).cumsum(-1)
    reached = mass.gather(-1, tokens[:5, None])[:, 0]
    before = (
        reached - mass.diff(dim=-1, prepend=torch.zeros(5, 1).double()).gather(-1, tokens[:5, None])[:, 0]
    )
    assert ((before - 1e-6 <= uniform[:5]) & (uniform[:5] <= reached + 1e-6)).all()
    assert tokens[5] == logits[5].argmax()


def test_no_token_without_probability_is_drawn_from_a_large_vocabulary():
    logits = torch.full((4, LARGE), -torch.inf)
    logits[:, [7, LARGE - 1]] = 0.0
    uniform = torch.tensor([0.0, 0.4999999, 0.5, 1.0 - 2**-53], dtype=torch.float64)
    tokens, logprobs = draw(logits, uniform, torch.ones(4))
    assert tokens.tolist() == [7, 7, LARGE - 1, LARGE - 1]
    torch.testing.assert_close(logprobs, torch.full((4,), math.log(0.5)))
