"""The benchmarks of learner and sampler give the rows that their readers rely on."""

from __future__ import annotations

import pytest

from bench import learner, sampler


@pytest.mark.thorough
def test_the_learner_has_every_ratio_of_the_design(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner, "PROBLEMS", 32)
    monkeypatch.setattr(learner, "ATTEMPTS", 1)
    monkeypatch.setattr(learner, "CLOSE", 1)
    rows = learner.run(samples=1, say=lambda text: None)
    assert [(row.name, row.goal) for row in rows] == [
        ("update_p8_over_p1", "<= 1.05"),
        ("update_p32_over_p1", "<= 1.15"),
        ("update_p1_over_peft_single", "<= 1"),
        ("update_p8_over_peft_single", ""),
        ("update_p8_over_peft_switching", "<= 0.8"),
    ]
    assert all(row.value > 0.0 for row in rows)


@pytest.mark.thorough
def test_the_sampler_has_every_ratio_of_the_design(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "REQUESTS", 32)
    monkeypatch.setattr(sampler, "NEW_TOKENS", 2)
    monkeypatch.setattr(sampler, "CLOSE", 1)
    rows = sampler.run(samples=1, say=lambda text: None)
    assert [(row.name, row.goal) for row in rows] == [
        ("generate_p8_over_p1", "<= 1.05"),
        ("generate_p32_over_p1", "<= 1.15"),
        ("generate_ragged_p8_over_p1", ""),
        ("generate_stop_over_none", "<= 1.02"),
        ("generate_p1_over_peft_single", "<= 1"),
        ("generate_p8_over_peft_mixed", ""),
    ]
    assert all(row.value > 0.0 for row in rows)
