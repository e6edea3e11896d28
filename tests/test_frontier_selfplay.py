"""What is said of a run of self-play: depth by the sandbox, lift by pairs."""

from __future__ import annotations

import pytest

from base_model.steps.grammar import SolvedProgram, read_statements
from base_model.steps.problems import there_early
from experiments.selfplay import BANDS, by_statements, depth, held_out, solved_early, table
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.sandbox.verify import verify_or_raise

UNDONE = "def f(x,y):\n x=(x+1)%5\n y=(y+2)%5\n y=(y-2)%5\n return [x,y]"
PROGRAM = "def f(x,y):\n x=(x+y)%5\n y=(y+1)%5\n return [x,y]"


@pytest.mark.sandbox
def test_a_level_counts_the_statements_that_matter_and_steps_count_all() -> None:
    rows = [
        {
            "problem_id": name,
            "problem_type": "code_o",
            "program": PROGRAM,
            "inputs": [inputs],
            "outputs": [outputs],
            "lines_of_code": 4,
        }
        for name, inputs, outputs in (("both", "(3, 2)", "[0, 3]"), ("one", "(3, 0)", "[3, 1]"))
    ]
    with open_sandbox("auto", Limits(), workers=1) as sandbox:
        found = depth(rows, lambda jobs: verify_or_raise(sandbox, jobs, determinism=False))
    assert found == {"level": [2.0, pytest.approx(1.0)], "steps": [3.0, 3.0]}


def test_successes_are_told_by_the_number_of_statements() -> None:
    rows = [{"lines_of_code": lines, "solve_rate": rate} for lines, rate in ((4, 0.5), (4, 1.0), (7, 0.25))]
    rows.append({"lines_of_code": 7, "solve_rate": None})  # was not played
    assert by_statements(rows) == {"2": [0.667, 0.75], "5": [0.333, 0.25]}


def test_a_gain_is_paired_by_problem_and_every_level_counts_alike() -> None:
    rows = [
        {"stratum": f"level {level}", "base": float(number % 2), "solvers": 1.0 if level == 4 else number % 2}
        for level in range(2, 9)
        for number in range(4 if level == 4 else 8)
    ]
    found = held_out(rows)
    assert found["4"] == [0.5, 1.0] and found["5"] == [0.5, 0.5]
    assert found["edge"][0] == 0.25 and found["levels_2_5"][0] == 0.125
    assert found["beyond"] == [0.0, 0.0], "what no pair tells apart has no spread"
    spread = (4 * 0.25 / 3 / 4 / 2**2) ** 0.5  # four pairs with a variance of 1/3, one level of two
    assert found["edge"][1] == pytest.approx(1.96 * spread, abs=1e-4)


def test_problems_that_are_there_early_are_told_from_the_others() -> None:
    read = [SolvedProgram(read_statements(text), ((3, 2),)) for text in (PROGRAM, UNDONE)]
    assert [there_early(one) for one in read] == [0.0, 1 / 3]
    early = solved_early()
    assert 0 < len(early) < 700 and all(name.startswith("code_o-") for name in early)


def test_a_table_has_a_line_for_each_run() -> None:
    window = {name: [0.1, 0.0] for name in ("level", "chance", "guessable", "solve_rate")}
    one = {"run": "demo", "base": window, "first": window, "last": window, "level_rise": [1.5, 0.2]}
    one |= {"steps_rise": [1.0, 0.1], "held_out": {key: [0.2, 0.05] for key in BANDS}}
    one["held_out_not_early"] = one["held_out"]
    assert table([one, one]).splitlines()[2:] == [table([one]).splitlines()[2]] * 2
    assert "| +1.50 ± 0.20 |" in table([one])
