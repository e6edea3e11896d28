"""The pool of the study on a pretrained base: what it is drawn by."""

from __future__ import annotations

from experiments.pool import pool


def test_a_pool_holds_a_problem_as_often_as_its_attempts_differ() -> None:
    played = [
        {
            "problem_type": "code_o",
            "program": name,
            "inputs": ["(1,)"],
            "message": "",
            "solve_rate": rate,
            "n_attempts": 8,
        }
        for name, rate in (("never", 0.0), ("once", 0.125), ("half", 0.5), ("always", 1.0))
    ]
    drawn = [row["program"] for row in pool(played)]
    assert {name: drawn.count(name) for name in ("never", "once", "half", "always")} == {
        "never": 0,
        "once": 7,
        "half": 16,
        "always": 0,
    }
