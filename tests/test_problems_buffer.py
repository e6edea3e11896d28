"""The buffer: new or duplicate, the oldest makes room, sampling by seed."""

from __future__ import annotations

import numpy as np

from populora_core.problems.buffer import Buffer
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
