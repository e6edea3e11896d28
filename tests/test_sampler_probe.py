"""Nothing silent: at every load the sampler proves that it serves what the learner made, or says what it serves."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from populora_core.compute.members import export
from populora_core.compute.work import Generate, Prompt, Worker
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.model.adapter_files import WEIGHTS
from populora_core.model.base import base_digest
from populora_core.model.probe import given_logprobs
from populora_core.model.stacked import StackedLinear
from populora_core.model.state import MemberState
from populora_core.sampler.probe import BASE, serve
from populora_core.sampler.proof import ProofResult
from populora_core.sampler.requests import Completion, Sampler, Served, Text
from populora_core.sampler.spec import ModelSpec
from populora_core.sampler.torch_sampler import TorchSampler
from populora_core.store.adapters import PROBE, read_probe, state_intact
from populora_core.support import ids
from populora_core.support.digest import file_sha256
from populora_core.support.errors import AdapterError, AdapterNotServed
from populora_core.support.finish import FinishReason

TINY = Path(__file__).resolve().parent.parent / "base_model" / "tiny"
SPEC = ModelSpec(BaseSection(), AdapterSection(rank=4, alpha=8.0), base_digest(TINY))
MEMBERS = ("a", "b", "c")
Fault = Callable[[Worker, dict[str, Tensor]], None]


@pytest.fixture(scope="module")
def worker() -> Worker:
    return Worker(SPEC, threads=1)


def row_of(worker: Worker, member: str, version: int) -> Tensor:
    """An adapter about as far from the base as some updates take it."""
    row = worker.layout.init_row(ids.generator(7, member))
    noise = torch.Generator().manual_seed(100 * version + MEMBERS.index(member))
    for _, b in worker.layout.views(row).values():
        b.normal_(0.0, 0.003, generator=noise)
    return row


def write_version(worker: Worker, root: Path, version: int) -> dict[str, dict[str, str]]:
    """Every member in one version, where a run would have it; member -> file name -> sha256."""
    states = {member: MemberState.newborn(row_of(worker, member, version)) for member in MEMBERS}
    hashes = export(worker, states, root / "new")
    for member in MEMBERS:
        place = root / member / f"g{version:04d}"
        place.parent.mkdir(exist_ok=True)
        (root / "new" / member).rename(place)
    return hashes


@pytest.fixture(scope="module")
def served(worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> list[Served]:
    """Three members in their second version; the first lies beside it, as in a run."""
    root = tmp_path_factory.mktemp("members")
    write_version(worker, root, 1)
    hashes = write_version(worker, root, 2)
    return [Served(m, root / m / "g0002", hashes[m][WEIGHTS], (root / m / "g0001" / PROBE,)) for m in MEMBERS]


@pytest.fixture
def sampler(worker: Worker) -> Sampler:
    return TorchSampler(worker.stacked, worker.vocabulary.stop_ids)


def faulty(worker: Worker, change: Callable[[dict[str, Tensor]], None]) -> Sampler:
    """A sampler whose load goes wrong: `change` gets the rows [D] that are about to become resident."""

    class Faulty(TorchSampler):
        def load(self, adapters: Sequence[Served]) -> None:
            super().load(adapters)
            stacked = worker.stacked
            rows = {name: row.clone() for name, row in zip(stacked.members, stacked.weights, strict=True)}
            change(rows)
            stacked.load(rows)

    return Faulty(worker.stacked, worker.vocabulary.stop_ids)


def scale_b(worker: Worker, row: Tensor, factor: float) -> None:
    for _, b in worker.layout.views(row).values():
        b.mul_(factor)


def test_what_the_learner_made_is_served_within_rounding(sampler: Sampler, served: list[Served]) -> None:
    report = serve(sampler, served, "float32")
    assert report.largest_error < 1e-4 < report.refused_from
    assert set(report.told.values()) == {ProofResult.APART}
    assert report.alike == {}, "every version is told from every other"


@pytest.mark.parametrize("rate", [1e-4, 1e-3])
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (lambda worker, rows: None, None),
        (lambda worker, rows: scale_b(worker, rows["b"], 0.0), "it is not applied"),
        (lambda worker, rows: scale_b(worker, rows["b"], 2.0), "its scaling is wrong"),
        (lambda worker, rows: rows.update(a=rows["b"], b=rows["a"]), "is swapped with"),
        (lambda worker, rows: scale_b(worker, rows["b"], 0.5), "it is stale"),
    ],
)
def test_after_one_step_in_bfloat16_every_fault_is_caught_at_load_and_nothing_else(
    tmp_path: Path, rate: float, fault: Fault, why: str | None
) -> None:
    """A step smaller than rounding: Adam's first moves every number of B by the rate."""
    worker = Worker(replace(SPEC, base=BaseSection(dtype="bfloat16")), threads=1)
    rows = {}
    for number, member in enumerate(("a", "b")):
        rows[member] = row_of(worker, member, number)
        for _, b in worker.layout.views(rows[member]).values():
            b.sign_().mul_(rate)
    before = rows["b"].clone()
    scale_b(worker, before, 0.5)
    export(worker, {"b": MemberState.newborn(before)}, tmp_path / "g0001")
    hashes = export(worker, {name: MemberState.newborn(row) for name, row in rows.items()}, tmp_path)
    served = [
        Served("a", tmp_path / "a", hashes["a"][WEIGHTS]),
        Served("b", tmp_path / "b", hashes["b"][WEIGHTS], (tmp_path / "g0001" / "b" / PROBE,)),
    ]
    sampler = faulty(worker, lambda resident: fault(worker, resident))
    if why is None:
        assert set(serve(sampler, served, "float32").told.values()) == {ProofResult.APART}
    else:
        with pytest.raises(AdapterNotServed, match=why):
            serve(sampler, served, "float32")


def test_the_learner_records_its_own_pass_over_base_and_member(worker: Worker, served: list[Served]) -> None:
    probe = read_probe(served[0].folder)
    worker.stacked.load({"a": row_of(worker, "a", 2)})
    assert probe.logprobs == given_logprobs(worker.stacked, "a", probe.prompt_ids, probe.completion_ids)
    assert probe.base_logprobs == given_logprobs(worker.stacked, None, probe.prompt_ids, probe.completion_ids)
    assert max(abs(x - y) for x, y in zip(probe.logprobs, probe.base_logprobs, strict=True)) > 0.01


@pytest.mark.parametrize(
    ("who", "fault", "why"),
    [
        ("b", lambda worker, rows: scale_b(worker, rows["b"], 0.0), "it is not applied: the bare base"),
        ("c", lambda worker, rows: rows.update(c=row_of(worker, "c", 1)), "it is stale: c of g0001 answers"),
        ("a", lambda worker, rows: rows.update(a=rows["c"], c=rows["a"]), "it is swapped with c"),
        ("a", lambda worker, rows: rows.update(a=rows["b"]), "the adapter of b answers"),
        (
            "b",
            lambda worker, rows: rows.update(b=row_of(worker, "b", 3)),
            "it answers like no version that is known",
        ),
    ],
    ids=["not applied", "stale", "swapped", "of another member", "of no one"],
)
def test_another_adapter_in_a_members_place_is_caught(
    worker: Worker, served: list[Served], who: str, fault: Fault, why: str
) -> None:
    sampler = faulty(worker, lambda rows: fault(worker, rows))
    with pytest.raises(AdapterNotServed, match=f"does not serve {who} .*: {why}"):
        serve(sampler, served, "float32")


def test_a_parent_in_its_childs_place_is_caught(worker: Worker, served: list[Served]) -> None:
    child = replace(served[0], earlier=(served[1].folder.parent / "g0001" / PROBE,))
    sampler = faulty(worker, lambda rows: rows.update(a=row_of(worker, "b", 1)))
    with pytest.raises(AdapterNotServed, match="it is stale: b of g0001 answers"):
        serve(sampler, [child, served[2]], "float32")


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_wrong_scaling_is_caught(worker: Worker, served: list[Served], factor: float) -> None:
    sampler = faulty(worker, lambda rows: scale_b(worker, rows["b"], factor))
    with pytest.raises(AdapterNotServed, match=r"does not serve b .*: its scaling is wrong"):
        serve(sampler, served, "float32")


def test_a_base_row_that_is_given_an_adapter_is_caught(
    worker: Worker, sampler: Sampler, served: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    route_for = worker.stacked.route_for

    def faulty_route(slots, tokens=1):
        return route_for([len(MEMBERS) - 1 if slot is None else slot for slot in slots], tokens)

    monkeypatch.setattr(worker.stacked, "route_for", faulty_route)
    with pytest.raises(AdapterNotServed, match=f"{BASE} .*a row without a member was given the adapter of c"):
        serve(sampler, served, "float32")


def test_a_fault_in_the_steps_alone_is_caught(
    worker: Worker, sampler: Sampler, served: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    route_for = worker.stacked.route_for

    def faulty_route(slots, tokens=1):
        """Right for the prompts; a step's adapters in the wrong order."""
        members = [slot for slot in slots if slot is not None]
        wrong = [slot if slot is None else members[-1 - members.index(slot)] for slot in slots]
        return route_for(wrong if tokens == 1 else slots, tokens)

    monkeypatch.setattr(worker.stacked, "route_for", faulty_route)
    with pytest.raises(AdapterNotServed, match="does not serve a"):
        serve(sampler, served, "float32")


def test_factors_that_steps_have_kept_of_an_older_version_are_caught(
    sampler: Sampler, served: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    older = [
        replace(each, folder=probe.parent, sha256=file_sha256(probe.parent / WEIGHTS))
        for each in served
        for probe in each.earlier
    ]
    side_by_side, kept = StackedLinear.side_by_side, {}

    def first(layer: StackedLinear) -> Any:
        if layer not in kept:
            kept[layer] = side_by_side(layer)
        return kept[layer]

    monkeypatch.setattr(StackedLinear, "side_by_side", first)
    serve(sampler, [replace(each, earlier=()) for each in older], "float32")
    assert kept
    with pytest.raises(AdapterNotServed, match="does not serve"):
        serve(sampler, served, "float32")


def test_a_policy_equal_to_the_bases_is_served_and_noted(
    worker: Worker, sampler: Sampler, tmp_path: Path
) -> None:
    newborn = MemberState.newborn(worker.layout.init_row(ids.generator(1)))
    hashes = export(worker, {"n": newborn}, tmp_path)
    report = serve(sampler, [Served("n", tmp_path / "n", hashes["n"][WEIGHTS])], "float32")
    assert report.told == {"n": ProofResult.BASE}


def test_a_file_with_another_hash_is_refused(
    sampler: Sampler, worker: Worker, served: list[Served], tmp_path: Path
) -> None:
    export(worker, {"a": MemberState.newborn(row_of(worker, "a", 3))}, tmp_path)
    with pytest.raises(AdapterError, match=f"{PROBE} belongs to other weights"):
        serve(sampler, [replace(served[0], folder=tmp_path / "a")], "float32")
    with pytest.raises(AdapterError, match="not the one that the run recorded"):
        sampler.load([replace(served[0], folder=tmp_path / "a")])


def test_a_damaged_probe_makes_its_folder_damaged(worker: Worker, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    hashes = export(worker, {"a": MemberState.newborn(row_of(worker, "a", 1))}, tmp_path)["a"]
    assert state_intact(folder, hashes)
    whole = (folder / PROBE).read_text()
    (folder / PROBE).write_text(whole.replace('"logprobs": [-', '"logprobs": [-9', 1))
    assert not state_intact(folder, hashes)
    (folder / PROBE).unlink()
    assert not state_intact(folder, hashes)
    (folder / PROBE).write_text(whole)
    (folder / WEIGHTS).write_bytes(b"")
    assert not state_intact(folder, hashes)


def test_nothing_is_sampled_when_the_proof_fails(worker: Worker, served: list[Served]) -> None:
    sampled: list[object] = []
    other = Worker(SPEC, threads=1)
    other.__dict__["stacked"] = worker.stacked
    other.__dict__["base"] = worker.base
    other.__dict__["sampler"] = faulty(worker, lambda rows: rows.update(a=rows["b"], b=rows["a"]))
    prompt = Prompt("a", "<po><new>", seed=1, temperature=1.0, top_p=1.0, max_tokens=4)
    work = Generate(served, [prompt])
    with pytest.raises(AdapterNotServed, match="swapped with b"):
        work.run(other, Path(), sampled.append)
    assert sampled == []
    other.__dict__["sampler"] = TorchSampler(worker.stacked, worker.vocabulary.stop_ids)
    made = work.run(other, Path(), sampled.append)
    assert (made.schema.metadata[b"engine"], len(made), sum(sampled)) == (b'"torch"', 1, 1)
    assert json.loads(made.schema.metadata[b"probe"])["largest_error"] < 1e-4
    assert made.schema.metadata[b"cached"] == b"null", "this sampler has no cache of prefixes"


def test_what_an_engine_had_in_its_cache_is_told_with_what_it_wrote(
    worker: Worker, served: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = TorchSampler(worker.stacked, worker.vocabulary.stop_ids)
    generate = sampler.generate

    def telling(*asked: Any, **how: Any) -> list[Completion]:
        return [
            replace(each, cached_tokens=2 + number) for number, each in enumerate(generate(*asked, **how))
        ]

    monkeypatch.setattr(sampler, "generate", telling)
    other = Worker(SPEC, threads=1)
    other.__dict__.update(stacked=worker.stacked, base=worker.base, sampler=sampler)
    prompts = [Prompt("a", "<po><new>", seed, temperature=1.0, top_p=1.0, max_tokens=4) for seed in (1, 2)]
    made = Generate(served, prompts).run(other, Path(), lambda done: None)
    assert made.schema.metadata[b"cached"] == b"5"


def test_the_answers_closing_tag_ends_a_completion_and_stays_in_its_text(worker: Worker) -> None:
    """By dialect: the bundled bases' completions end by end tokens alone, an instruct base's also by the tag."""
    prompt = Prompt(None, "def f(a):\n return a", seed=1, temperature=1.0, top_p=1.0, max_tokens=4)
    assert [request.stop for request in worker.requests([prompt])] == [()]
    instruct = Worker(replace(SPEC, base=BaseSection(dialect="instruct")), threads=1)
    instruct.__dict__["base"] = worker.base
    (request,) = instruct.requests([prompt])
    tokenizer, (end, *_) = worker.base.tokenizer, sorted(worker.base.stop_ids)
    assert request.stop == ("</answer>",)
    for ends in ((), ("\ndef ", "\nclass ")):
        assert instruct.requests([prompt], ends)[0].stop == ends
    tag = tuple(tokenizer("\n</answer>", add_special_tokens=False)["input_ids"])
    after = tuple(tokenizer("\n\nx", add_special_tokens=False)["input_ids"])
    for tokens, text in (
        (tag, "\n</answer>"),
        ((*tag, end), "\n</answer>"),
        ((*tag, *after), "\n</answer>"),
        (tag[:-1], "\n</answer"),
    ):
        completion = Completion(tokens, (0.0,) * len(tokens), FinishReason.STOP)
        assert instruct.row(prompt, request, completion)["completion"] == text


def test_scores_of_several_lengths_equal_the_learners_pass(
    worker: Worker, sampler: Sampler, served: list[Served]
) -> None:
    sampler.load(served)
    texts = [
        Text(member, tuple(range(4, 9 + i)), tuple(range(20, 22 + 3 * i)))
        for i, member in enumerate((*MEMBERS, None))
    ]
    for text, found in zip(texts, sampler.score(texts), strict=True):
        expected = given_logprobs(worker.stacked, text.member_id, text.prompt_ids, text.completion_ids)
        assert found == pytest.approx(expected, abs=1e-4)
