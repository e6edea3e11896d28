"""The cache and the batch of the torch sampler against rows that are kept one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from populora_core.sampler.batch import DecodeBatch, Newcomers, passes
from populora_core.sampler.cache import SlabCache

HEADS, WIDTH, LAYERS = 2, 3, 2

Row = list[torch.Tensor]  # of each token, keys of every layer [layers, heads, width]


class Played:
    """A batch whose rows are held a second time, token by token."""

    def __init__(self, seed: int) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.batch: DecodeBatch | None = None
        self.rows: dict[int, Row] = {}

    def number(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.random))

    def states(self, rows: int, tokens: int) -> torch.Tensor:
        return torch.randn(LAYERS, rows, HEADS, tokens, WIDTH, generator=self.random)

    def fill(self, cache: SlabCache, states: torch.Tensor) -> None:
        for layer, keys in enumerate(states):
            cache.update(keys, -keys, layer)

    def read(self, lengths: list[int]) -> tuple[SlabCache, torch.Tensor]:
        states = self.states(len(lengths), max(lengths))
        cache = SlabCache(LAYERS, max(lengths))
        self.fill(cache, states)
        return cache, states

    def join(self, columns: int) -> None:
        """Rows of one or two passes, some of them with a prompt in common."""
        read, starts, index = [], [], []
        for most in (3, 6)[: self.number(1, 2)]:  # the longest come last
            lengths = [*(self.number(1, most) for _ in range(self.number(0, 2))), most]
            cache, states = self.read(lengths)
            whose = [row for row in range(len(lengths)) for _ in range(self.number(1, 2))]
            read.append((cache, torch.tensor(whose)))
            for row in whose:
                name = len(self.rows)
                own = states[:, row, :, states.shape[3] - lengths[row] :]
                self.rows[name] = list(own.unbind(2))
                index.append(name)
                starts.append(-lengths[row])
        places = torch.randperm(len(index), generator=self.random)
        in_place = places.argsort()
        state = {"index": torch.tensor(index)[in_place], "start": torch.tensor(starts)[in_place]}
        of_each = places.split([len(whose) for _, whose in read])
        parts = [(cache, whose, own) for (cache, whose), own in zip(read, of_each, strict=True)]
        new = Newcomers([None] * len(index), state, parts)
        if self.batch is None:
            self.batch = DecodeBatch.of(new, columns)
        else:
            self.batch.join(new, columns)

    def step(self) -> None:
        assert self.batch is not None
        self.batch.cache.reserve()
        states = self.states(len(self.batch), 1)
        self.fill(self.batch.cache, states)
        for row, name in enumerate(self.batch.state["index"].tolist()):
            self.rows[name].append(states[:, row, :, 0])

    def leave(self) -> None:
        assert self.batch is not None
        alive = torch.rand(len(self.batch), generator=self.random) < 0.6
        alive[self.number(0, len(alive) - 1)] = True
        self.batch.keep(alive.nonzero().squeeze(-1))

    def check(self) -> None:
        assert self.batch is not None
        length = self.batch.cache.get_seq_length()
        for number, layer in enumerate(self.batch.cache.layers):
            keys, values = layer.used()
            assert torch.equal(values, -keys) and torch.isfinite(keys).all()
            assert keys.shape == (len(self.batch), HEADS, length, WIDTH)
            names, starts = (self.batch.state[name].tolist() for name in ("index", "start"))
            for row, (name, start) in enumerate(zip(names, starts, strict=True)):
                expected = torch.stack([token[number] for token in self.rows[name]], dim=1)
                assert torch.equal(keys[row, :, start:], expected)


@pytest.fixture(autouse=True, scope="module")
def memory_that_was_not_written_holds_no_numbers() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)  # fills what is allocated with NaN
    yield
    torch.use_deterministic_algorithms(False)


@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from(["step", "step", "leave", "join"]), max_size=25))
def test_every_row_keeps_its_own_tokens_whatever_joins_and_leaves(seed: int, moves: list[str]):
    played = Played(seed)
    columns = 7 + played.number(0, 10)
    played.join(columns)
    for move in moves:
        if move == "join":
            assert played.batch is not None
            columns = max(columns, played.batch.cache.get_seq_length() + 7)
            played.join(columns)
        elif move == "leave":
            played.leave()
        elif played.batch is not None and played.batch.cache.get_seq_length() < columns:
            played.step()
        played.check()


def test_columns_that_no_row_uses_any_more_are_passed_over():
    played = Played(0)
    played.join(12)
    for _ in range(3):
        played.step()
    assert played.batch is not None
    shortest = int((played.batch.cache.get_seq_length() - played.batch.state["start"]).min())
    last = played.batch.state["start"].argmax()
    played.batch.keep(last[None])
    assert played.batch.cache.get_seq_length() == shortest
    played.check()


def test_each_row_takes_the_token_and_the_random_number_of_its_own_place():
    cache, _ = Played(0).read([2, 2, 2])
    given, uniform = torch.arange(12).view(3, 4), torch.arange(12).view(3, 4) / 16
    taken = torch.tensor([0, 3, 1])
    state = {
        **{"start": torch.full((3,), -2), "taken": taken, "given": given, "uniform": uniform},
        **{"logits": torch.zeros(3, 5), "temperature": torch.ones(3), "top_p": torch.full((3,), 0.5)},
    }
    drawn = Newcomers([None] * 3, state, [(cache, torch.arange(3), torch.arange(3))])
    batch = DecodeBatch.of(drawn, 6)
    _, number, _, top_p, token = batch.next_draw(restricted=False)
    assert token is not None and token.tolist() == [0, 7, 9] and number.tolist() == [0.0, 7 / 16, 9 / 16]
    assert top_p is None
    del batch.state["given"]
    *_, top_p, token = batch.next_draw(restricted=True)
    assert token is None and top_p is state["top_p"], "no row is given what to take"


def test_a_base_of_one_layer_has_a_cache_as_well():
    assert SlabCache(1, 7).columns == 7


@pytest.mark.parametrize("worth", [0, 10, 1000])
@given(st.lists(st.integers(1, 50), min_size=1, max_size=60).map(sorted))
def test_prompts_are_read_once_each_and_padded_by_no_more_than_a_pass_is_worth(
    worth: int, lengths: list[int]
):
    parts = [lengths[part] for part in passes(lengths, worth)]
    assert [length for part in parts for length in part] == lengths
    for part in parts:
        assert len(part) * part[-1] - sum(part) <= worth
    for one, two in pairwise(parts):  # no pass too many: the next prompt would pad too much
        assert len(one) * two[0] - sum(one) > worth
