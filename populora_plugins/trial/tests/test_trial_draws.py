"""A trial's draws: no round of one seed is a round of another's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from populora_core.compute.arena import Arena, SamplingRules
from populora_core.compute.work import Prompt
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.store.rows import SampledRow
from populora_core.support.shipped import shipped
from populora_plugins.trial.trial import LEAST, Trying


class Watched(Arena):
    """Keeps the seeds that it is asked to draw by."""

    seeds: list[int]

    def complete(self, prompts: Sequence[Prompt]) -> list[SampledRow]:
        self.seeds += [prompt.seed for prompt in prompts]
        return super().complete(prompts)


@pytest.mark.sandbox
def test_neighbouring_seeds_have_no_draw_in_common() -> None:
    rules, drawn = SamplingRules(proposal_tokens=48, answer_tokens=24), []
    with open_sandbox("auto", Limits(), workers=2) as sandbox:
        arena = Watched(shipped("base_model", "tiny"), "compact", sandbox)
        for seed in range(2):
            arena.seeds = []
            trying = Trying(arena, rules, rules, seed, lambda drawn, seconds: drawn >= 2 * LEAST)
            assert trying.type("code_o").proposals == 2 * LEAST
            drawn.append(arena.seeds)
    assert all(len({*seeds}) == len(seeds) for seeds in drawn)
    assert {*drawn[0]}.isdisjoint(drawn[1])
