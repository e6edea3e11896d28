"""An answer is read as often as one likes, and another beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from store_run import write_run

from populora_core.store.answer import Answer
from populora_core.store.catalogue import Catalogue
from populora_core.support.errors import PopuloraError

ROWS = 20000
ASKED = f"SELECT i FROM range({ROWS}) t(i)"


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    with Catalogue(write_run(tmp_path_factory.mktemp("runs") / "run", generations=1)) as opened:
        yield opened


@pytest.mark.parametrize(
    "count",
    [
        lambda answer: len(answer.df()),
        lambda answer: answer.arrow().num_rows,
        lambda answer: sum(batch.num_rows for batch in answer.batches(1000)),
    ],
    ids=["df", "arrow", "batches"],
)
def test_an_answer_whose_batches_are_being_read_is_read_again_from_its_first_row(
    catalogue: Catalogue, count: Callable[[Answer], int]
) -> None:
    answer = catalogue.query(ASKED)
    held = answer.batches(1000)
    assert next(held).num_rows == 1000
    assert count(answer) == ROWS
    with pytest.raises(PopuloraError, match="can be read no further"):
        next(held)  # an end without an error would look like the last row
    assert count(answer) == ROWS


def test_batches_that_were_read_to_their_end_stay_ended(catalogue: Catalogue) -> None:
    answer = catalogue.query(ASKED)
    held = answer.batches(ROWS)
    assert sum(batch.num_rows for batch in held) == ROWS
    assert len(answer.df()) == ROWS
    assert list(held) == []


def test_two_answers_are_read_side_by_side(catalogue: Catalogue) -> None:
    pair = [catalogue.query(ASKED).batches(1000) for _ in range(2)]
    assert all(one.equals(other) for one, other in zip(*pair, strict=True))


def test_a_row_that_cannot_be_computed_ends_the_batches_with_duckdbs_reason(catalogue: Catalogue) -> None:
    far = 10 * ROWS
    batches = catalogue.query(
        f"SELECT if(i = {far - 1}, error('too far'), i::VARCHAR) AS i FROM range({far}) t(i)"
    ).batches(1000)
    assert next(batches).num_rows == 1000
    with pytest.raises(PopuloraError, match="too far"):
        list(batches)
