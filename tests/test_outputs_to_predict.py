"""A data set of other people's functions: called `f`, run in the sandbox, and none of those kept for scoring."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import write_lines

from experiments.outputs_to_predict import HALF, called_f, main, of_file
from populora_core.benchmarks.anchors import read_drafts
from populora_core.problems.normal import program_key
from populora_core.problems.parsing import ProgramSyntaxError


def cruxeval(count: int) -> list[dict[str, str]]:
    return [
        {"id": str(n), "code": f"def f(x):\n    return x + {n}", "input": "1", "output": str(n + 1)}
        for n in range(count)
    ]


def test_the_entry_function_and_its_own_calls_are_called_f() -> None:
    program = called_f("def fact(n):\n return n * fact(n - 1) if n else 1", "fact")
    assert program == "def f(n):\n    return n * f(n - 1) if n else 1"


def test_a_program_that_uses_the_name_f_is_refused() -> None:
    with pytest.raises(ProgramSyntaxError, match="uses the name f"):
        called_f("def g(f):\n return f(1)", "g")


def test_half_of_cruxeval_is_kept_for_scoring(tmp_path: Path) -> None:
    played, kept = of_file(write_lines(tmp_path / "cruxeval.jsonl", cruxeval(2 * HALF)), Counter())
    assert (len(played), len(kept)) == (HALF, HALF)
    assert not {program_key(job.program) for job in played} & kept


@pytest.mark.sandbox
def test_what_does_not_run_or_is_kept_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = cruxeval(HALF + 1)
    cruxevals = write_lines(tmp_path / "cruxeval.jsonl", rows)
    played = {job.program for job in of_file(cruxevals, Counter())[0]}
    (held_out,) = (row for row in rows if row["code"] not in played)
    proposals = [
        {"snippet": held_out["code"], "input": "5", "output": ""},
        {"snippet": "def f(x):\n    return x[1:]", "input": "'abc'", "output": ""},
        {"snippet": "def f(x):\n    return 1 // x", "input": "0", "output": ""},
    ]
    solutions = [
        {"canonical_solution": "def add(a, b):\n return a + b", "entry_point": "add", "base_input": [[1, 2]]}
    ]
    others = [
        write_lines(tmp_path / "proposals.jsonl", proposals),
        write_lines(tmp_path / "solutions.jsonl", solutions),
    ]
    output = tmp_path / "outputs.jsonl"
    monkeypatch.setattr(sys, "argv", ["", *map(str, [*others, cruxevals]), "--output", str(output)])
    main()
    drafts = read_drafts(str(output))
    assert len(drafts) == HALF + 2
    assert [draft.inputs for draft in drafts[:2]] == [("('abc',)",), ("(1, 2)",)]
    assert held_out["code"] not in {draft.program for draft in drafts}
