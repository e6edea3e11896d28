"""verify in a run: what a blind guess solves is no problem where the configuration says so."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import small_config, start

from populora_core import open_run
from populora_core.problems import buffer as buffers
from populora_core.problems.chance import chances
from populora_core.problems.dialects import seeds_of
from populora_core.problems.model import Problem
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages import sampling
from populora_core.stages.engine import run_generation, run_stage
from populora_core.stages.table import stages_of

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]


def test_what_is_guessed_too_easily_is_trivial(tmp_path: Path) -> None:
    config = small_config(
        population={"teachers": 1, "students": 1},
        propose={"per_type": 8, "types": ("code_o", "code_i")},
        solve={"attempts": 1},
        verify={"largest_chance": 0.0},
    )
    with Session(start(tmp_path / "run", config)) as session:
        run_generation(session, 0)
        run_generation(session, 1)
    with open_run(tmp_path / "run") as catalogue:
        refused = catalogue.rows(
            "SELECT verdict, detail FROM proposals WHERE detail LIKE '%of blind guesses%'"
        )
        kept = catalogue.rows("SELECT chance FROM problems")
    assert refused and {row["verdict"] for row in refused} == {"trivial"}
    assert kept and {row["chance"] for row in kept} == {0.0}


def test_a_proposal_whose_chance_the_sandbox_lost_is_paid_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(problems: Sequence[Problem], *rest: Any) -> list[float | None]:
        return [None, *chances(problems, *rest)[1:]]

    monkeypatch.setattr("populora_core.stages.verify.chances", lost)
    config = small_config(
        population={"teachers": 1, "students": 1},
        propose={"per_type": 8, "types": ("code_o",)},
        solve={"attempts": 1},
    )
    with Session(start(tmp_path / "run", config)) as session:
        run_generation(session, 0)
        run_generation(session, 1)
    with open_run(tmp_path / "run") as catalogue:
        (row,) = catalogue.rows(
            "SELECT problem_id, reward FROM proposals WHERE verdict = 'infrastructure' AND detail LIKE '%guess%'"
        )
    assert row == {"problem_id": None, "reward": None}


def test_what_outgrows_the_bases_context_stops_no_run(tmp_path: Path) -> None:
    """A problem that no student could be asked is refused, and a teacher sees as many references as fit."""
    row = {"program": "def f(s):\n return s*99", "inputs": ["('abcdefghijkl',)"], "message": ""}
    file = tmp_path / "long.jsonl"
    file.write_text(json.dumps(row | {"problem_type": "code_i"}) + "\n")
    config = small_config(
        population={"teachers": 1, "students": 1},
        propose={"per_type": 8, "types": ("code_i",), "references": (4, 4), "max_tokens": 960},
        solve={"attempts": 1},
        anchors={"share": 0.5, "source": "dataset", "parameters": {"path": str(file)}},
    )
    with Session(start(tmp_path / "run", config)) as session:
        run_generation(session, 0)
        run_generation(session, 1)
        for stage in stages_of(2)[:2]:
            run_stage(session, 2, stage)
    with open_run(tmp_path / "run") as catalogue:
        long = catalogue.rows("SELECT verdict FROM tables.proposal_checks WHERE detail LIKE '%context%'")
        written = catalogue.rows("SELECT reference_ids, prompt_tokens FROM proposals WHERE generation = 2")
    assert {each["verdict"] for each in long} == {"output_limit"}
    assert all(0 < len(each["reference_ids"]) < 4 and each["prompt_tokens"] <= 64 for each in written)


@pytest.mark.thorough
def test_an_open_run_parses_its_past_once_and_comes_to_what_another_session_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(
        population={"teachers": 2, "students": 2, "islands": 2},
        propose={"per_type": 4},
        solve={"attempts": 1},
    )
    parsed: Counter[str] = Counter()
    original = buffers.ngrams
    monkeypatch.setattr(buffers, "ngrams", lambda program: parsed.update([program]) or original(program))
    with Session(start(tmp_path / "run", config)) as session:
        for generation in range(5):
            run_generation(session, generation)
    with open_run(tmp_path / "run") as catalogue:
        asked = Counter(row["program"] for row in catalogue.rows("SELECT program FROM problems"))
    seeds = {seed.program for kind in config.propose.types for seed in seeds_of(session.dialect, kind)}
    assert asked.keys() - seeds
    for program in asked.keys() - seeds:
        assert parsed[program] <= 2 * asked[program], (
            "once when it was new, once as the past of all later ones"
        )
    (verify,) = (stage for stage in stages_of(4) if stage.name == "verify")
    with Session(Run.open(tmp_path / "run")) as session:
        assert run_stage(session, 4, verify, force=True).reused, "equal to the last bit"


HOSTILE = {
    "lists in lists": ("def f(a):\n b=a[0]\n return b", "([[[[[[[[1]]]]]]]],)"),
    "deep lists in lists": ("def f(a):\n b=[a]\n return b[0][0]", "(" + "[" * 40 + "1" + "]" * 40 + ",)"),
    "a text that Python 3.11 cannot write out": (
        "def f(a):\n b=a+1\n return f\"{'\u00a0'.join(['a',str(b)])}\"",
        "(3,)",
    ),
    "a number that Python does not write out": (f"def f(a):\n b=0x{'f' * 4400}\n return (a+b)%9", "(3,)"),
    "long plain data": ("def f(a):\n b=len(a)\n return b", f"([{({n: n for n in range(900)},)}],)"),
    "classes and decorators": (
        "import functools\nclass A:\n @functools.cache\n def g(self,a): return a+1\n"
        "def f(a):\n @functools.cache\n def g(a): return a*2\n b=g(a); return A().g(b)",
        "(3,)",
    ),
    "one line": ("def f(a): b=a+1; return b", "(3,)"),
    "other line ends": ("def f(a):\r\n b=a-2\r\n return b", "(3,)"),
    "returns nothing": ("def f(a):\n global n\n n=a", "(3,)"),
    "gives its argument back here": ("def f(a):\n return sorted(a)", "([1, 2, 3],)"),
    "matches": ("def f(a):\n match a:\n  case 3: return 1\n  case _: return 2", "(3,)"),
    "tries": ("def f(a):\n try: return 1//(a-3)\n except* ValueError: pass\n finally: a=1", "(4,)"),
}


IDENTITY = ("def f(a):\n b=[*a]\n return b", "([1, 2, 3],)")


def test_hostile_programs_that_are_valid_are_measured_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chance and the slack of whatever the verifier takes can be estimated."""
    monkeypatch.setattr(sampling, "longest_sequence", lambda *given: 10**5)  # as of a base that reads more
    rows = [
        {"problem_type": kind, "program": program, "inputs": [given], "message": ""}
        for program, given in [*HOSTILE.values(), IDENTITY]
        for kind in ("code_o", "code_i")
    ]
    file = tmp_path / "hostile.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = small_config(
        population={"teachers": 1, "students": 1},
        propose={"per_type": 12, "types": ("code_o", "code_i")},
        anchors={"share": 0.5, "source": "dataset", "parameters": {"path": str(file)}},
        verify={"slack": True},
    )
    with Session(start(tmp_path / "run", config)) as session:
        run_generation(session, 0)
        for stage in stages_of(1):
            run_stage(session, 1, stage)
            if stage.name == "verify":
                break
    rows, refused = (
        pq.read_table(tmp_path / "run" / "generations" / "0001" / "verify" / f"{table}.parquet").to_pylist()
        for table in ("problems", "proposal_checks")
    )
    found = [row for row in rows if row["teacher_id"] == "anchor"]
    measured = {row["program"] for row in found}
    missing = [name for name, (program, _) in HOSTILE.items() if program not in measured]
    assert not missing, [row for row in refused if row["verdict"] != "valid"]
    assert IDENTITY[0] not in measured, "who copies the argument is always right"
    assert all(0.0 <= row["chance"] <= 1.0 and 0.0 <= row["slack"] <= 1.0 for row in found)
