"""A data set of other people's functions: called `f`, run in the sandbox, and none of those kept for scoring."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from experiments.outputs_to_predict import HALF, called_f, halves, main
from populora_core.benchmarks.anchors import read_drafts
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


def test_half_of_cruxeval_is_kept_for_scoring() -> None:
    played, kept = halves(cruxeval(2 * HALF))
    assert (len(played), len(kept)) == (HALF, HALF)


@pytest.mark.sandbox
def test_what_does_not_run_or_is_kept_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = cruxeval(HALF + 1)
    _, (kept,) = halves(rows)
    (held_out,) = (row for row in rows if row not in halves(rows)[0])
    proposals = [
        {"snippet": held_out["code"], "input": "5", "output": ""},
        {"snippet": "def f(x):\n    return x[1:]", "input": "'abc'", "output": ""},
        {"snippet": "def f(x):\n    return 1 // x", "input": "0", "output": ""},
    ]
    solutions = [
        {"canonical_solution": "def add(a, b):\n return a + b", "entry_point": "add", "base_input": [[1, 2]]}
    ]
    files = []
    for name, content in (("cruxeval", rows), ("proposals", proposals), ("solutions", solutions)):
        files.append(tmp_path / f"{name}.jsonl")
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in content))
    output = tmp_path / "outputs.jsonl"
    monkeypatch.setattr(sys, "argv", ["", *map(str, files), "--output", str(output)])
    main()
    drafts = read_drafts(str(output))
    assert len(drafts) == HALF + 2
    assert [draft.inputs for draft in drafts[HALF:]] == [("('abc',)",), ("(1, 2)",)]
    assert kept and held_out["code"] not in {draft.program for draft in drafts}
