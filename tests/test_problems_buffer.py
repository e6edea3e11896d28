"""The buffer: new or duplicate, the oldest makes room, sampling by seed."""

from __future__ import annotations

import numpy as np
import pytest

from populora_core.problems import buffer as buffers
from populora_core.problems.buffer import Buffer, PastNgrams
from populora_core.problems.model import Problem


def problem(index: int, problem_type: str = "code_o", inputs: tuple[str, ...] = ("(1,)",)) -> Problem:
    return Problem(f"p{index}", problem_type, f"def f(x):\n return x+{index}", inputs, ("0",), "")


def test_the_same_program_under_other_names_is_a_duplicate():
    buffer = Buffer(4)
    assert buffer.add(Problem("a", "code_o", "def f(x):\n return x+1", ("(1,)",), ("2",), ""))
    assert not buffer.add(Problem("b", "code_o", "def f(y):\n  return y + 1 # new", ("(1,)",), ("2",), ""))


def test_the_same_program_with_other_inputs_is_a_duplicate():
    buffer = Buffer(4)
    assert buffer.add(problem(1, inputs=("(1,)",)))
    assert not buffer.add(problem(1, inputs=("(2,)",)))


def test_a_known_key_is_taken_and_the_program_not_parsed():
    buffer = Buffer(4)
    broken = Problem("a", "code_o", "no program", ("(1,)",), ("2",), "")
    assert buffer.add(broken, "key")
    assert not buffer.add(problem(1), "key")


def test_the_same_program_may_serve_another_type():
    buffer = Buffer(4)
    assert buffer.add(problem(1, "code_o"))
    assert buffer.add(problem(1, "code_i"))


def test_the_oldest_references_of_a_type_make_room_and_stay_known():
    buffer = Buffer(2)
    for index in range(4):
        assert buffer.add(problem(index))
    assert buffer.add(problem(0, "code_i"))
    kept = {reference.problem_id for reference in buffer.sample("code_o", 9, np.random.default_rng(0))}
    assert kept == {"p2", "p3"}
    assert not buffer.add(problem(0))


def test_sampling_is_without_replacement_and_follows_the_generator():
    buffer = Buffer(64)
    for index in range(40):
        buffer.add(problem(index))
    drawn = [buffer.sample("code_o", 6, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({reference.problem_id for reference in drawn[0]}) == 6


def test_sampling_gives_what_there_is():
    buffer = Buffer(4)
    assert buffer.sample("code_f", 2, np.random.default_rng(0)) == []
    buffer.add(problem(1))
    assert len(buffer.sample("code_o", 2, np.random.default_rng(0))) == 1
    assert buffer.sample("code_o", 0, np.random.default_rng(0)) == []


def test_novelty_is_measured_against_all_that_was_added_before():
    buffer = Buffer(1)
    looping = "def f(x):\n for i in x:\n  pass\n return sorted(x)"
    assert buffer.novelty(looping) == 1.0
    buffer.add(Problem("a", "code_o", looping, ("([1],)",), ("[1]",), ""))
    buffer.add(problem(1))
    assert buffer.novelty(looping) == 0.0
    assert 0.0 < buffer.novelty("def f(x):\n return sorted(x)[0]") < 1.0


SHAPES = (
    "x+{0}",
    "x*x-{0}",
    "sorted(x)[{0}]",
    "[a for a in x if a>{0}]",
    "len(x)//{0}",
    "x[:{0}]",
    "{{x: {0}}}",
)


def shaped(index: int) -> Problem:
    """A problem whose program has other n-grams and another key than most."""
    text = SHAPES[index % len(SHAPES)].format(index)
    return Problem(f"p{index}", "code_o", f"def f(x):\n return {text}", ("(1,)",), ("0",), "")


def novelties(earlier: list[int], new: list[int], past: PastNgrams | None) -> list[float]:
    """The novelty of each new program as it is met, after a generation's buffer took in the earlier ones."""
    buffer, found = Buffer(4, past), []
    for index in earlier:
        buffer.add(shaped(index))
    for index in new:
        found.append(buffer.novelty(shaped(index).program))
        buffer.add(shaped(index))
    return found


HISTORIES = {
    "it grows": [([], [0, 1]), ([0, 1], [2, 0, 3]), ([0, 1, 2, 3], [4, 5])],
    "it came in another order": [([], [1, 0]), ([0, 1], [3, 2]), ([0, 1, 2, 3], [4])],
    "the same again, as propose and verify ask": [([0, 1], [2]), ([0, 1], [2, 3])],
    "a generation was made again": [([0, 1, 2], [3]), ([0, 1, 4], [5, 2])],
    "an earlier generation is made again": [([0, 1, 2, 3], [4]), ([0], [1, 2])],
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_what_is_remembered_of_the_past_changes_no_novelty(history: list[tuple[list[int], list[int]]]):
    past = PastNgrams()
    for earlier, new in history:
        assert novelties(earlier, new, past) == novelties(earlier, new, None)


def test_a_buffer_is_not_changed_by_a_later_one_of_the_same_past():
    past = PastNgrams()
    first = Buffer(4, past)
    first.add(shaped(0))
    before = first.novelty(shaped(1).program)
    novelties([0, 1, 2, 3], [4], past)
    assert first.novelty(shaped(1).program) == before > 0.0


def test_every_program_of_a_growing_past_is_parsed_once(monkeypatch: pytest.MonkeyPatch):
    parsed: list[str] = []
    original = buffers.ngrams
    monkeypatch.setattr(buffers, "ngrams", lambda program: parsed.append(program) or original(program))
    past = PastNgrams()
    for generation in range(20):
        novelties(list(range(generation * 3)), [generation * 3], past)
    assert len(parsed) == len(set(parsed)) == 19 * 3
