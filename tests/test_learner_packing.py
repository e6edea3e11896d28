from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from conftest import PATIENCE
from hypothesis import given
from hypothesis import strategies as st

from populora_core.learner.packing import (
    PAIRS,
    Pack,
    collate,
    made_ahead,
    micro_batches,
    pack_beginnings,
    pack_rows,
)
from populora_core.learner.rows import TrainingRow

PROMPTS = [(5, 6, 7), (8,), (9, 10, 11, 12, 13, 14, 15), (9, 10, 11, 12, 16, 17), (9, 10, 11, 12, 16)]
Packing = Callable[[Sequence[TrainingRow], int], list[Pack]]
WAYS = st.sampled_from([pack_rows, pack_beginnings])


@st.composite
def training_rows(draw: st.DrawFn) -> list[TrainingRow]:
    shapes = st.tuples(st.sampled_from("ab"), st.sampled_from(PROMPTS), st.integers(1, 9))
    rows = []
    for number, (member, prompt, length) in enumerate(draw(st.lists(shapes, min_size=1, max_size=20))):
        ids = tuple(100 * number + index for index in range(length))  # every token names its row
        rows.append(TrainingRow(member, prompt, ids, tuple(-0.01 * i for i in ids), float(number)))
    return rows


@given(training_rows(), st.integers(1, 40), st.integers(1, 80), WAYS)
def test_every_completion_token_is_a_target_once_behind_its_own_row(
    rows: list[TrainingRow], pack_tokens: int, token_budget: int, pack: Packing
):
    found = []
    for batch in micro_batches(pack(rows, pack_tokens), token_budget):
        for index, target in enumerate(batch.targets):
            number, place = divmod(int(target), 100)
            row = rows[number]
            sequence, position = batch.sequence[index], batch.position[index]
            before = (*row.prompt_ids, *row.completion_ids)[len(row.prompt_ids) + place - 1]
            assert batch.member_ids[sequence] == row.member_id
            assert batch.input_ids[sequence, position] == before
            assert batch.advantages[index] == row.advantage
            assert batch.old_logprobs[index] == row.old_logprobs[place]
            found.append((number, place))
    assert sorted(found) == [(n, i) for n, row in enumerate(rows) for i in range(len(row.completion_ids))]


@given(training_rows(), st.integers(1, 40), WAYS)
def test_a_token_sees_exactly_what_it_would_see_alone(
    rows: list[TrainingRow], pack_tokens: int, pack: Packing
):
    for batch in micro_batches(pack(rows, pack_tokens), 200):
        if batch.visible is None:
            assert batch.position_ids is None
            continue
        for index, target in enumerate(batch.targets):
            number, place = divmod(int(target), 100)
            row = rows[number]
            sequence, position = batch.sequence[index], batch.position[index]
            keys = np.flatnonzero(batch.visible[sequence, position])
            seen = sorted(
                zip(batch.position_ids[sequence, keys], batch.input_ids[sequence, keys], strict=True)
            )
            assert seen == list(enumerate((*row.prompt_ids, *row.completion_ids[:place])))


@given(training_rows(), st.integers(1, 40), st.integers(1, 80), WAYS)
def test_limits_are_kept_unless_a_single_row_exceeds_them(
    rows: list[TrainingRow], pack_tokens: int, token_budget: int, pack: Packing
):
    packs = pack(rows, pack_tokens)
    assert all(pack.length <= pack_tokens or len(pack.rows) == 1 for pack in packs)
    batches = list(micro_batches(packs, token_budget))
    assert all(batch.input_ids.size <= token_budget or len(batch.input_ids) == 1 for batch in batches)
    assert sum(batch.n_rows for batch in batches) == len(rows)


def test_a_micro_batch_is_as_full_as_its_budget_allows():
    rows = [
        TrainingRow("a", (n, 1, 1), (2,) * 8, (-1.0,) * 8, 1.0) for n in range(5)
    ]  # ten tokens are read of each
    batches = [len(batch.input_ids) for batch in micro_batches(pack_rows(rows, 1), 40)]
    assert batches == [4, 1]


@given(training_rows(), st.integers(1, 40), st.integers(1, 80))
def test_on_a_gpu_no_plain_sequence_comes_under_the_mask_of_a_shared_prompt(
    rows: list[TrainingRow], pack_tokens: int, token_budget: int
):
    packs = pack_rows(rows, pack_tokens)
    usual, apart = (list(micro_batches(packs, token_budget, on_gpu)) for on_gpu in (False, True))
    masked = sum(len(batch.input_ids) for batch in apart if batch.visible is not None)
    assert masked == sum(len(pack.rows) > 1 for pack in packs)
    assert all(batch.input_ids.size <= token_budget or len(batch.input_ids) == 1 for batch in apart)
    targets = [sorted(np.concatenate([batch.targets for batch in each])) for each in (usual, apart)]
    assert targets[0] == targets[1]


def test_a_micro_batch_is_made_while_the_one_before_is_worked_on():
    made, begun = [], [threading.Event() for _ in range(3)]

    def batches() -> Iterator[int]:
        for number, event in enumerate(begun):
            event.set()
            yield number

    for batch in made_ahead(batches()):  # type: ignore[arg-type]
        assert all(event.wait(PATIENCE) for event in begun[: batch + 2]), "the next one is under way"
        made.append(batch)
    assert made == [0, 1, 2]


def test_sequences_of_a_micro_batch_are_sorted_by_member():
    rows = [TrainingRow(member, (2,), (3, 4), (-1.0, -1.0), 1.0) for member in "bacab"]
    assert collate(pack_rows(rows, 1)).member_ids == ["a", "a", "b", "b", "c"]


def test_completions_longer_than_their_prompt_stay_alone():
    short, long = (TrainingRow("a", (2, 3), ids, (-1.0,) * len(ids), 1.0) for ids in [(4, 5), (4, 5, 6, 7)])
    assert len(pack_rows([short] * 3, 100)) == 1
    assert len(pack_rows([long] * 3, 100)) == 3


def test_texts_that_begin_alike_are_read_once_up_to_where_they_part():
    beginning = tuple(range(100, 160))
    rows = [
        TrainingRow("a", (*beginning, *own), answer, (-1.0,) * len(answer), 1.0)
        for own, answer in [((1, 2), (3, 4)), ((1, 5), (3, 4, 5)), ((1, 2), (3, 6))]
    ]
    (pack,) = pack_beginnings(rows, 1000)
    assert pack.length == len(beginning) + len([1, 2, 3]) + len([5, 3, 4])
    assert sorted(collate([pack]).input_ids[0].tolist()) == sorted([*beginning, 1, 2, 3, 5, 3, 4])
    other = TrainingRow("b", rows[0].prompt_ids, (3, 4), (-1.0, -1.0), 1.0)
    assert len(pack_beginnings([*rows, other], 1000)) == 2, "members have different adapters"


def test_texts_stay_apart_where_attention_would_cost_more_than_their_beginning():
    long = tuple(range(1000, 1000 + PAIRS))
    rows = [TrainingRow("a", (7, 8, own, *long), (9,), (-1.0,), 1.0) for own in (1, 2)]
    assert len(pack_beginnings(rows, 10 * PAIRS)) == 2
    assert pack_beginnings([], 100) == []


def test_problems_join_as_wholes_if_at_all():
    """Each attempt alone would cost little in the neighbour's pack, all of them cost more than their beginning."""
    rows = [
        TrainingRow("a", (*range(128), *[problem] * 64), answer, (-1.0,) * 32, 1.0)
        for problem in (1, 2)
        for answer in [tuple(range(start, start + 32)) for start in range(1000, 1800, 100)]
    ]
    packs = pack_beginnings(rows, 10_000)
    assert [len(pack.rows) for pack in packs] == [8, 8]
    assert {row.prompt_ids for row in packs[0].rows} == {rows[0].prompt_ids}
    apart, both = [pack.length for pack in packs], sum(pack.length for pack in packs) - 128
    assert sum(length + length**2 / PAIRS for length in apart) < both + both**2 / PAIRS


def test_rows_without_company_need_no_mask():
    batch = collate(pack_rows([TrainingRow("a", (2, 3), (4, 5), (-1.0, -1.0), 1.0)], 100))
    assert batch.visible is None
    assert batch.input_ids.tolist() == [[2, 3, 4]]


def test_a_row_without_tokens_or_with_missing_log_probabilities_is_refused():
    with pytest.raises(ValueError):
        TrainingRow("a", (2,), (), (), 1.0)
    with pytest.raises(ValueError):
        TrainingRow("a", (2,), (3, 4), (-1.0,), 1.0)
