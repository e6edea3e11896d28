from __future__ import annotations

import math

import pytest
import torch

from populora_core.learner import loss as loss_module
from populora_core.learner.loss import TokenStats, backward_policy_gradient

N, WIDTH, VOCABULARY = 7, 6, 11


def inputs() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return {
        "hidden": normal(N, WIDTH).requires_grad_(),
        "targets": torch.randint(VOCABULARY, (N,), generator=generator),
        "old_logprobs": normal(N) - 2.5,
        "advantages": normal(N),
        "temperatures": torch.tensor([1.0, 0.7] * 3 + [1.3], dtype=torch.float64),
        "token_weights": normal(N).abs(),
        "clips": torch.tensor([0.2, 0.1, 0.3, 0.2, 0.2, 0.4, 0.2], dtype=torch.float64),
    }


@pytest.fixture
def head() -> torch.nn.Linear:
    head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False, dtype=torch.float64).requires_grad_(False)
    head.weight.copy_(torch.linspace(-1, 1, VOCABULARY * WIDTH).view(VOCABULARY, WIDTH).sin())
    return head


@pytest.mark.parametrize("chunk_logits", [1, 3 * VOCABULARY, 1 << 24])
def test_the_gradient_is_that_of_the_loss_written_out(
    head: torch.nn.Linear, monkeypatch: pytest.MonkeyPatch, chunk_logits: int
):
    monkeypatch.setattr(loss_module, "CHUNK_LOGITS", chunk_logits)
    given = inputs()
    found = backward_policy_gradient(head, **given)

    reference = inputs()
    logits = head(reference["hidden"]) / reference["temperatures"][:, None]
    logprobs = torch.log_softmax(logits, -1)[range(N), reference["targets"]]
    ratio = torch.exp(logprobs - reference["old_logprobs"])
    a = reference["advantages"]
    losses = -torch.minimum(ratio * a, ratio.clamp(1 - reference["clips"], 1 + reference["clips"]) * a)
    (losses * reference["token_weights"]).sum().backward()
    torch.testing.assert_close(given["hidden"].grad, reference["hidden"].grad, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.loss, losses.detach(), rtol=1e-12, atol=1e-12)
    mismatch = (logprobs.detach() - reference["old_logprobs"]).abs()
    torch.testing.assert_close(found.mismatch, mismatch, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("chunk_logits", "states"), [(1, 1), (2 * VOCABULARY, 2), (4 * VOCABULARY - 1, 3)])
def test_no_more_logits_than_said_exist_at_once_and_those_of_one_state_at_least(
    head: torch.nn.Linear, monkeypatch: pytest.MonkeyPatch, chunk_logits: int, states: int
):
    monkeypatch.setattr(loss_module, "CHUNK_LOGITS", chunk_logits)
    at_once: list[int] = []
    head.register_forward_hook(lambda module, given, logits: at_once.append(len(logits)))
    backward_policy_gradient(head, **inputs())
    assert max(at_once) == states


def test_a_base_beside_the_member_pulls_at_it_only_where_a_weight_says_so(head: torch.nn.Linear):
    given, plain = inputs(), inputs()
    backward_policy_gradient(head, reference=torch.ones(N, WIDTH, dtype=torch.float64), **given)
    backward_policy_gradient(head, **plain)
    assert torch.equal(given["hidden"].grad, plain["hidden"].grad)


def test_the_divergence_from_the_base_is_exact_and_weighed(head: torch.nn.Linear):
    given, plain, written = inputs(), inputs(), inputs()
    base = torch.randn(N, WIDTH, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = backward_policy_gradient(head, reference=base, kl_weight=0.3, **given)
    backward_policy_gradient(head, **plain)

    temperatures = written["temperatures"][:, None]
    own, other = (torch.log_softmax(head(states) / temperatures, -1) for states in (written["hidden"], base))
    kl = torch.nn.functional.kl_div(other, own, reduction="none", log_target=True).sum(-1)
    (0.3 * kl * written["token_weights"]).sum().backward()
    torch.testing.assert_close(found.kl, kl.detach(), rtol=1e-12, atol=1e-12)
    gradient = given["hidden"].grad - plain["hidden"].grad
    torch.testing.assert_close(gradient, written["hidden"].grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("cap", [0.9, 2.0, 1e9])
def test_an_importance_cap_weights_the_plain_policy_gradient(head: torch.nn.Linear, cap: float):
    given = inputs()
    found = backward_policy_gradient(head, importance_cap=cap, **given)

    reference = inputs()
    logits = head(reference["hidden"]) / reference["temperatures"][:, None]
    logprobs = torch.log_softmax(logits, -1)[range(N), reference["targets"]]
    weight = torch.exp(logprobs.detach() - reference["old_logprobs"]).clamp(max=cap)
    (-weight * reference["advantages"] * logprobs * reference["token_weights"]).sum().backward()
    torch.testing.assert_close(given["hidden"].grad, reference["hidden"].grad, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.loss, -weight * reference["advantages"], rtol=1e-12, atol=1e-12)
    assert not found.clipped.any()


@pytest.mark.parametrize("cap", [0.0, 0.5, 2.0])
def test_a_supervised_token_has_the_gradient_of_its_likelihood_whatever_the_old_one(
    head: torch.nn.Linear, cap: float
):
    base = torch.randn(N, WIDTH, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    given, plain, written = inputs(), inputs(), inputs()
    supervised = torch.tensor([True, False] * 3 + [True])
    shared = {"importance_cap": cap, "reference": base, "kl_weight": 0.3}
    found = backward_policy_gradient(head, supervised=supervised, **given, **shared)
    without = backward_policy_gradient(head, **plain, **shared)

    logits = head(written["hidden"]) / written["temperatures"][:, None]
    logprobs = torch.log_softmax(logits, -1)[range(N), written["targets"]]
    (-written["advantages"] * logprobs * written["token_weights"]).sum().backward()
    expected = torch.where(supervised[:, None], written["hidden"].grad, plain["hidden"].grad)
    torch.testing.assert_close(given["hidden"].grad, expected, rtol=1e-12, atol=1e-12)
    assert not found.clipped[supervised].any() and not found.kl[supervised].any()
    for one, other in zip(*(vars_of(each.at(~supervised)) for each in (found, without)), strict=True):
        torch.testing.assert_close(one, other)


def vars_of(found: TokenStats) -> list[torch.Tensor]:
    return [found.loss, found.entropy, found.clipped, found.kl, found.mismatch]


def test_a_ratio_of_one_gives_minus_the_advantage_and_is_not_clipped(head: torch.nn.Linear):
    given = inputs()
    logits = head(given["hidden"].detach()) / given["temperatures"][:, None]
    given["old_logprobs"] = torch.log_softmax(logits, -1)[range(N), given["targets"]]
    found = backward_policy_gradient(head, **given)
    torch.testing.assert_close(found.loss, -given["advantages"])
    assert not found.clipped.any()


def test_clipping_counts_only_where_it_cuts_the_gradient_off(head: torch.nn.Linear):
    given = inputs()
    given["old_logprobs"] = torch.full((N,), -50.0, dtype=torch.float64)  # every ratio far above 1.2
    found = backward_policy_gradient(head, **given)
    assert torch.equal(found.clipped, given["advantages"] > 0)
    assert torch.equal(given["hidden"].grad.abs().sum(-1) == 0, given["advantages"] > 0)


def test_equal_logits_have_the_entropy_of_the_uniform_distribution(head: torch.nn.Linear):
    given = inputs() | {"hidden": torch.zeros(N, WIDTH, dtype=torch.float64, requires_grad=True)}
    found = backward_policy_gradient(head, **given)
    torch.testing.assert_close(found.entropy, torch.full((N,), math.log(VOCABULARY), dtype=torch.float64))
