"""Ids derive from position, and their text order is their numeric order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from populora_core import ids


@given(st.lists(st.tuples(st.integers(0, 9999), st.integers(0, 99)), min_size=2, unique=True))
def test_text_order_is_numeric_order(places: list[tuple[int, int]]) -> None:
    names = [ids.match_id(generation, position) for generation, position in places]
    assert sorted(names) == [ids.match_id(*place) for place in sorted(places)]


def test_an_attempt_names_its_problem_and_the_problem_its_proposal() -> None:
    proposal = ids.proposal_id(3, "teacher", 2, "code_o", 5)
    problem = ids.problem_id(proposal)
    assert proposal == "prop-g0003-t02-code_o-0005"
    assert problem == "prob-g0003-t02-code_o-0005"
    assert ids.attempt_id(problem, 7) == "att-g0003-t02-code_o-0005-s07"


def test_seeds_depend_on_every_name_and_on_nothing_else() -> None:
    assert ids.draw_seed(1, "a", 2) == ids.draw_seed(1, "a", 2)
    assert len({ids.draw_seed(s, *n) for s in (1, 2) for n in (("a", 2), ("a2",), ("a", "2", ""))}) == 6


def test_streams_of_different_names_differ() -> None:
    assert ids.generator(0, "x").random() != ids.generator(0, "y").random()
    assert ids.generator(0, "x").random() == ids.generator(0, "x").random()
