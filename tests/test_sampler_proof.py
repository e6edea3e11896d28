"""The proof by many tokens: what the noise of two engines leaves to be told, on the bundled base in bfloat16."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from experiments.proof import measured, run
from populora_core.compute.members import Lesson, Update, export
from populora_core.compute.proving import EARLIER, OTHERS, TOKENS, first_tokens, in_turn, prove_sampled
from populora_core.compute.work import Worker
from populora_core.config.load import load_config
from populora_core.config.machinery import SamplerSection
from populora_core.config.sections import AdapterSection, BaseSection, UpdateSection
from populora_core.learner.rows import TrainingRow, UpdateRules
from populora_core.learner.update import update_members
from populora_core.model.adapter_files import WEIGHTS, write_peft
from populora_core.model.base import base_digest
from populora_core.model.probe import given_logprobs
from populora_core.model.state import MemberState
from populora_core.sampler.probe import BASE, REFUSE, WARN, EnginesDiffer
from populora_core.sampler.proof import (
    TELLING,
    Logprobs,
    MismatchLimits,
    ProofResult,
    judge,
    share_served,
)
from populora_core.sampler.requests import Request
from populora_core.sampler.spec import ModelSpec
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.support import ids
from populora_core.support.errors import AdapterNotServed
from populora_core.support.shipped import REPOSITORY, shipped

TINY = shipped("base_model", "tiny")
SPEC = ModelSpec(
    BaseSection(dtype="bfloat16"),
    AdapterSection(rank=8, alpha=16.0),
    base_digest(TINY),
    SamplerSection(
        engine="vllm"
    ),  # an engine that scores as it computes, whose numbers others here stand in for
)
RECORDED = REPOSITORY / "bench" / "results" / "proof.json"
LIMITS = MismatchLimits.of(WARN, REFUSE, "bfloat16")
NOISE = 0.1
"""Mean absolute difference of two engines in bfloat16, nats per token; 0.3 on one token in 25 (vllm#18352)."""

SIZE = 0.03
"""Of the adapters' second factors, which takes a member about as far from the base as some updates do."""


def tokens_needed(effect: float, size: float) -> float:
    """Tokens at which the share's standard error has come down to `TELLING`, by root mean squares per token."""
    return (size / (TELLING * effect)) ** 2


def noise(rng: np.random.Generator, count: int, mean: float = NOISE) -> Logprobs:
    """Differences of engines: Student's t of four degrees, whose tail is as heavy as theirs, of this mean size."""
    return rng.standard_t(4, count) * mean  # the mean absolute value of t(4) is 1


@dataclass(frozen=True)
class Play:
    """What the learner's pass in bfloat16 gives 500 tokens of member a, under it and under other policies."""

    own: Logprobs
    others: Mapping[str, Logprobs]
    scaled: Mapping[float, Logprobs]


def member(worker: Worker, seed: int, size: float) -> MemberState:
    state = MemberState.newborn(worker.layout.init_row(ids.generator(7, "member")))
    generator = torch.Generator().manual_seed(seed)
    for _, b in worker.layout.views(state.weights).values():
        b.normal_(0.0, size, generator=generator)
    return state


def scaled(worker: Worker, state: MemberState, factor: float) -> torch.Tensor:
    row = state.weights.clone()
    for _, b in worker.layout.views(row).values():
        b.mul_(factor)
    return row


@pytest.fixture(scope="module")
def worker() -> Worker:
    return Worker(SPEC, threads=1)


@pytest.fixture(scope="module")
def rows(worker: Worker) -> list[TrainingRow]:
    """Completions of member a, token by token from the sampler in bfloat16, with an advantage each."""
    return completions(worker)


def completions(worker: Worker) -> list[TrainingRow]:
    worker.stacked.load({"a": member(worker, 1, SIZE).weights})
    sampler = TorchSampler(worker.stacked, ())
    requests = [Request("a", tuple(range(20, 30)), seed=seed, max_tokens=50) for seed in range(10)]
    return [
        TrainingRow("a", request.prompt_ids, made.token_ids, made.logprobs, (-1.0) ** index, group=index)
        for index, (request, made) in enumerate(zip(requests, sampler.generate(requests), strict=True))
    ]


def scores(worker: Worker, weights: torch.Tensor | None, rows: list[TrainingRow]) -> Logprobs:
    if weights is not None:
        worker.stacked.load({"a": weights})
    who = None if weights is None else "a"
    return np.concatenate(
        [given_logprobs(worker.stacked, who, row.prompt_ids, row.completion_ids) for row in rows]
    )


@pytest.fixture(scope="module")
def play(worker: Worker) -> Play:
    """Its tokens are drawn in float32: in bfloat16 they, and so what they tell, would differ by the CPU."""
    rows = completions(Worker(replace(SPEC, base=BaseSection(dtype="float32")), threads=1))
    own = member(worker, 1, SIZE)
    return Play(
        scores(worker, own.weights, rows),
        {
            BASE: scores(worker, None, rows),
            "b": scores(worker, member(worker, 2, SIZE).weights, rows),
            EARLIER: scores(worker, member(worker, 3, SIZE).weights, rows),
        },
        {factor: scores(worker, scaled(worker, own, factor), rows) for factor in (0.5, 2.0)},
    )


def test_a_thousand_draws_of_the_engines_noise_refuse_no_member(play: Play) -> None:
    rng = np.random.default_rng(0)
    found = [
        judge(play.own + noise(rng, len(play.own)), play.own, play.others, BASE, LIMITS) for _ in range(1000)
    ]
    assert {finding.told for finding in found} <= {ProofResult.APART, ProofResult.NOT_YET}
    assert sum(finding.told is ProofResult.APART for finding in found) > 990
    assert np.mean([finding.mean for finding in found]) == pytest.approx(NOISE, rel=0.1)


def test_a_thousand_draws_refuse_no_fresh_member_and_say_that_it_is_the_base(play: Play) -> None:
    rng = np.random.default_rng(1)
    base = play.others[BASE]
    others = {BASE: base, "b": play.others["b"]}
    found = [judge(base + noise(rng, len(base)), base, others, BASE, LIMITS) for _ in range(1000)]
    assert {finding.told for finding in found} == {ProofResult.BASE}


def test_a_thousand_draws_of_the_eleven_tokens_at_load_refuse_no_one(play: Play) -> None:
    rng = np.random.default_rng(2)
    few = {name: other[:11] for name, other in play.others.items()}
    own = play.own[:11]
    found = [judge(own + noise(rng, 11), own, few, BASE, LIMITS) for _ in range(1000)]
    assert ProofResult.WRONG not in {finding.told for finding in found}


@pytest.mark.parametrize("instead", [BASE, "b", EARLIER, 0.5, 2.0])
def test_another_policy_in_a_members_place_is_caught_under_the_noise(
    play: Play, instead: str | float
) -> None:
    rng = np.random.default_rng(3)
    given = play.others[instead] if isinstance(instead, str) else play.scaled[instead]
    found = [judge(given + noise(rng, len(given)), play.own, play.others, BASE, LIMITS) for _ in range(200)]
    effect = float(np.sqrt(np.mean((play.own - play.others[BASE]) ** 2)))
    assert tokens_needed(effect, NOISE * np.sqrt(2.0)) < 500, "else nothing is promised"
    told = [finding.told for finding in found]
    assert ProofResult.APART not in told
    if instead == 0.5:  # the hardest: what is left of the effect looks most like the whole
        assert told.count(ProofResult.WRONG) > 0.8 * len(told)
    else:
        assert set(told) == {ProofResult.WRONG}


@pytest.mark.parametrize(("share", "told"), [(1.0, False), (1.3, False), (1.45, True), (0.55, True)])
def test_another_scale_is_told_from_a_fifth_beyond_three_standard_errors(share: float, told: bool) -> None:
    tokens = 2000
    own = np.zeros(tokens)
    base = np.full(tokens, 0.2)
    beside = np.where(np.arange(tokens) % 2, 0.45, -0.45)  # without a part along the way
    served = base + share * (own - base) + beside
    found_share, error = share_served(served, own, base, LIMITS.rounding)
    assert found_share == pytest.approx(share) and error == pytest.approx(0.05, abs=0.001)
    limits = replace(LIMITS, warn=1.0, refuse=1.0)
    assert (judge(served, own, {BASE: base}, BASE, limits).told is ProofResult.WRONG) is told


@pytest.mark.parametrize("effect", [0.03, 0.06, 0.12, 0.25])
def test_the_tokens_that_an_effect_needs_are_where_the_proof_begins_to_tell(effect: float) -> None:
    rng = np.random.default_rng(4)
    size = NOISE * np.sqrt(2.0)  # t(4) has variance 2

    def told(tokens: int) -> float:
        count = 0
        for _ in range(40):
            own = rng.normal(-1.0, 0.5, tokens)
            base = own + rng.normal(0.0, effect, tokens)
            served = own + noise(rng, tokens)
            count += judge(served, own, {BASE: base}, BASE, LIMITS).told is ProofResult.APART
        return count / 40

    needed = round(tokens_needed(effect, size))
    assert told(needed // 2) < 0.35
    assert told(2 * needed + 50) > 0.9


def test_the_recorded_figures_are_this_proofs() -> None:
    recorded = {row["name"]: row["value"] for row in json.loads(RECORDED.read_text())["rows"]}
    found = {row.name: row for row in run(measured(), updates=400, runs=20)}
    assert found.keys() == recorded.keys()
    for name, row in found.items():
        if name.startswith(("refused", "open", "caught")) and row.unit == "share":  # six standard errors
            spread = max(recorded[name] * (1.0 - recorded[name]), 1.0 / row.samples) / row.samples
            assert row.value == pytest.approx(recorded[name], abs=6.0 * spread**0.5), name
        elif not name.startswith("refused"):
            assert row.value == pytest.approx(recorded[name]), name


def test_a_version_of_one_update_ago_is_never_told_apart(worker: Worker, rows: list[TrainingRow]) -> None:
    """One update at the demo's learning rate; the sampler still has what was before it."""
    settings = load_config(REPOSITORY / "configs" / "demo.toml").update
    before = member(worker, 1, SIZE)
    after = update_members(worker.stacked, {"a": before}, rows, UpdateRules(settings))[0]["a"]
    own = scores(worker, after.weights, rows)
    others = {BASE: scores(worker, None, rows), EARLIER: scores(worker, before.weights, rows)}
    effect = float(np.sqrt(np.mean((own - others[EARLIER]) ** 2)))
    rng = np.random.default_rng(5)

    def told(of: Logprobs, size: float) -> set[ProofResult]:
        return {judge(of + noise(rng, len(of), size), own, others, BASE, LIMITS).told for _ in range(200)}

    assert effect > 0.02, "an update that moves nothing would prove nothing"
    assert told(others[EARLIER], 0.02) == {ProofResult.WRONG}, "engines of one kind"
    assert ProofResult.APART not in told(others[EARLIER], NOISE), (
        "engines of two kinds: caught, or said to be open"
    )
    assert ProofResult.WRONG not in told(own, NOISE)


@pytest.mark.parametrize("rate", [1e-6, 1e-5, 1e-4, 1e-3])
def test_a_step_smaller_than_rounding_refuses_no_member(
    worker: Worker, rows: list[TrainingRow], rate: float
) -> None:
    """The second generation: after its first step a member's numbers differ from the base's by less than noise."""
    rules = UpdateRules(
        load_config(REPOSITORY / "configs" / "demo.toml").update.model_copy(update={"learning_rate": rate})
    )
    newborn = MemberState.newborn(worker.layout.init_row(ids.generator(7, "member")))
    after = update_members(worker.stacked, {"a": newborn}, rows, rules)[0]
    worker.stacked.load({"a": after["a"].weights})
    asked = [Request("a", row.prompt_ids, seed=100 + seed, max_tokens=50) for seed, row in enumerate(rows)]
    with worker.stacked.adding_to_base():  # as vLLM does
        made = TorchSampler(worker.stacked, ()).generate(asked)
    drawn = [
        replace(row, completion_ids=each.token_ids, old_logprobs=each.logprobs)
        for row, each in zip(rows, made, strict=True)
    ]
    proof = prove_sampled(worker, worker.stacked, after, {}, drawn)["a"]
    assert proof["told"] in {ProofResult.APART, ProofResult.NOT_YET}


def test_the_update_proves_the_sampler_by_what_it_drew(
    worker: Worker, rows: list[TrainingRow], tmp_path: Path
) -> None:
    state = member(worker, 1, SIZE)
    write_peft(tmp_path, worker.layout, member(worker, 3, SIZE).weights, "base")
    states = {"a": state, "idle": member(worker, 4, SIZE)}
    (told,) = prove_sampled(worker, worker.stacked, states, {"a": tmp_path}, rows).values()
    assert (told["told"], told["tokens"], told["alike"]) == (ProofResult.APART, 500, ())
    assert told["p99"] >= told["mean"] > 0.0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("drew", "why"),
    [
        (lambda worker: member(worker, 2, SIZE).weights, "the adapter of b answers"),
        (
            lambda worker: scaled(worker, member(worker, 1, SIZE), 0.0),
            "it is not applied: the bare base answers",
        ),
        (lambda worker: scaled(worker, member(worker, 1, SIZE), 2.0), "its scaling is wrong"),
        (lambda worker: member(worker, 3, SIZE).weights, f"it is stale: {EARLIER} answers"),
    ],
)
def test_no_one_is_trained_on_what_another_policy_drew(
    worker: Worker, rows: list[TrainingRow], tmp_path: Path, drew, why: str
) -> None:
    write_peft(tmp_path, worker.layout, member(worker, 3, SIZE).weights, "base")
    worker.stacked.load({"a": drew(worker)})
    made = TorchSampler(worker.stacked, ()).generate(
        [Request("a", row.prompt_ids, seed=7 + index, max_tokens=50) for index, row in enumerate(rows)]
    )
    drawn = [
        replace(row, completion_ids=each.token_ids, old_logprobs=each.logprobs)
        for row, each in zip(rows, made, strict=True)
    ]
    states = {"a": member(worker, 1, SIZE), "b": member(worker, 2, SIZE)}
    with pytest.raises(AdapterNotServed, match=f"does not serve a as the learner made it: {why}"):
        prove_sampled(worker, worker.stacked, states, {"a": tmp_path}, drawn)


def mixed_with(worker: Worker, own: MemberState) -> torch.Tensor:
    """A member's weights, and beside its effect some of another's."""
    sibling = member(worker, 2, SIZE)
    return own.weights + 0.35 * (sibling.weights - worker.layout.init_row(ids.generator(7, "member")))


def test_a_sibling_that_has_the_members_whole_effect_is_caught_in_its_turn(
    worker: Worker, rows: list[TrainingRow], tmp_path: Path
) -> None:
    """Its numbers lie on the way from the base to the member's own, and beside it: the base alone tells nothing."""
    own = member(worker, 1, SIZE)
    mixed = mixed_with(worker, own)
    worker.stacked.load({"b": mixed})
    made = TorchSampler(worker.stacked, ()).generate(
        [Request("b", row.prompt_ids, seed=7 + index, max_tokens=50) for index, row in enumerate(rows[:6])]
    )
    drawn = [
        replace(row, completion_ids=each.token_ids, old_logprobs=each.logprobs)
        for row, each in zip(rows, made, strict=False)
    ]
    write_peft(tmp_path, worker.layout, mixed, "base")
    others = {"a": {"b": tmp_path / WEIGHTS}}
    assert prove_sampled(worker, worker.stacked, {"a": own}, {}, drawn)["a"]["told"] == ProofResult.APART
    with pytest.raises(
        AdapterNotServed, match="does not serve a as the learner made it: the adapter of b answers"
    ):
        prove_sampled(worker, worker.stacked, {"a": own}, {}, drawn, others)


@pytest.mark.thorough
def test_a_swap_of_two_members_of_two_shards_trains_neither(worker: Worker, tmp_path: Path) -> None:
    own = member(worker, 1, SIZE)
    states = {"a": own, "b": replace(own, weights=mixed_with(worker, own))}
    export(worker, states, tmp_path)
    asked = [
        Request(name, tuple(range(20, 30)), seed=seed, max_tokens=50) for seed in range(8) for name in "ab"
    ]
    made = TorchSampler(worker.stacked, ()).generate(asked)
    table = {
        "prompt_ids": [list(request.prompt_ids) for request in asked],
        "completion_ids": [list(each.token_ids) for each in made],
        "logprobs": [list(each.logprobs) for each in made],
    }
    pq.write_table(pa.table(table), tmp_path / "attempts.parquet")

    def learn(name: str, wrote: str) -> dict[str, Any]:
        """Train a member, alone on its shard, on what a member wrote."""
        rows = [row for row, request in enumerate(asked) if request.member_id == wrote]
        lessons = [Lesson("student", row, name, (-1.0) ** number, 0) for number, row in enumerate(rows)]
        update = Update(
            members={name: tmp_path / name},
            completions={"student": tmp_path / "attempts.parquet"},
            temperatures={"student": 1.0},
            steps=[(lessons, UpdateRules(UpdateSection()))],
            others={name: {other: tmp_path / other / WEIGHTS for other in {"a", "b"} - {name}}},
        )
        return update.run(worker, tmp_path / "learnt" / name, lambda done: None)

    for name, other in ("ab", "ba"):
        with pytest.raises(
            AdapterNotServed, match=f"serve {name} as .* made it: the adapter of {other} answers"
        ):
            learn(name, wrote=other)
        assert not (tmp_path / "learnt" / name).exists()
    assert learn("a", wrote="a")["proof"]["a"]["told"] == ProofResult.APART


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
def test_every_other_member_has_its_turn(count: int) -> None:
    members = [f"m{number}" for number in range(count)]
    turns = [in_turn(members, "m0", generation) for generation in range(1, 1 + -(-count // OTHERS))]
    assert {other for turn in turns for other in turn} == {*members} - {"m0"}
    assert all(len({*turn}) == len(turn) == min(OTHERS, count - 1) for turn in turns)


@pytest.fixture
def noisy(rows: list[TrainingRow]) -> list[TrainingRow]:
    """The same completions, scored by an engine that differs by `NOISE` on average."""
    rng = np.random.default_rng(6)
    return [
        replace(row, old_logprobs=tuple(np.asarray(row.old_logprobs) + noise(rng, len(row.old_logprobs))))
        for row in rows
    ]


def test_engines_that_differ_by_more_than_the_setting_are_told_of_and_served(
    worker: Worker, rows: list[TrainingRow], noisy: list[TrainingRow]
) -> None:
    states = {"a": member(worker, 1, SIZE)}
    with pytest.warns(EnginesDiffer, match="nats per token on average for a") as told:
        prove_sampled(worker, worker.stacked, states, {}, noisy)
    assert [warning.filename for warning in told] == [__file__], "the warning names its caller's place"
    far = [replace(row, old_logprobs=tuple(each - 0.6 for each in row.old_logprobs)) for row in rows]
    with pytest.raises(AdapterNotServed, match=r"on average within 0\.5"):
        prove_sampled(worker, worker.stacked, states, {}, far)


def test_another_setting_moves_what_is_told_of_and_what_is_refused(noisy: list[TrainingRow]) -> None:
    def prove(**settings: float) -> None:
        worker = Worker(replace(SPEC, sampler=SamplerSection(engine="vllm", **settings)), threads=1)
        prove_sampled(worker, worker.stacked, {"a": member(worker, 1, SIZE)}, {}, noisy)

    with warnings.catch_warnings():
        warnings.simplefilter("error", EnginesDiffer)
        prove(warn_mismatch=2 * NOISE)
    with pytest.raises(AdapterNotServed, match=r"on average within 0\.08"):
        prove(refuse_mismatch=0.08)


def test_a_long_completion_gives_half_of_the_tokens_at_most(rows: list[TrainingRow]) -> None:
    long = replace(rows[0], completion_ids=(1,) * 4096, old_logprobs=(-1.0,) * 4096)
    assert [len(row.completion_ids) for row in first_tokens([long, long, long], TOKENS)] == [256, 256]
