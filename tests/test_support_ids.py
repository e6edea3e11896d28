"""Ids derive from position, and their text order is their numeric order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from populora_core.support import ids


@given(st.data(), st.sampled_from([1, 8, 100, 101, 1000, 9999]))
def test_text_order_is_numeric_order_in_sub_populations_of_any_size(data: st.DataObject, size: int) -> None:
    places = data.draw(
        st.lists(st.tuples(st.integers(0, 9999), st.integers(0, size - 1)), min_size=2, unique=True)
    )
    digits = ids.digits(size)
    for name in (ids.match_id, lambda generation, slot, digits: ids.member_id("x", slot, generation, digits)):
        assert len({len(name(*place, digits)) for place in places}) == 1
    names = [ids.match_id(*place, digits) for place in places]
    assert sorted(names) == [ids.match_id(*place, digits) for place in sorted(places)]


def test_a_hundred_members_of_a_role_are_named_with_two_digits() -> None:
    assert ids.member_id("teacher", 99, 0, ids.digits(100)) == "teacher-99-g0000"
    assert ids.member_id("teacher", 7, 0, ids.digits(500)) == "teacher-007-g0000"


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
