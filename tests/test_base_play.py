"""The bundled base at play: it gives the loop signal, and references change what it proposes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from populora_core.compute.arena import Arena
from populora_core.model.base import base_digest
from populora_core.problems.model import Problem
from populora_core.problems.normal import ngrams, novelty
from populora_core.problems.parsing import ProgramSyntaxError, parse_program
from populora_core.problems.verdicts import ProposalVerdict
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "base_model" / "measured.json"
TYPES = ("code_o", "code_i", "code_f")
REFERENCE = Problem(
    "r",
    "code_o",
    "def f(x):\n u=''\n for i in x:\n  if i!='c':\n   u=i+u+i\n return u",
    ("('abc',)",),
    ("'baab'",),
    "",
)


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    with open_sandbox("auto", Limits(), workers=2) as sandbox:
        arena = Arena(ROOT / "base_model" / "tiny", "compact", sandbox)
        arena.load({"base": arena.newborn(0)})
        yield arena


@pytest.mark.thorough
def test_most_proposals_of_every_type_are_valid(arena: Arena) -> None:
    _, checks = arena.propose("base", [(kind, ()) for kind in TYPES for _ in range(40)], seed=11)
    for start in range(0, 120, 40):
        good = sum(
            c.verdict in (ProposalVerdict.VALID, ProposalVerdict.TRIVIAL) for c in checks[start : start + 40]
        )
        assert good >= 26, "far below the card's 80 %: three standard errors"


@pytest.mark.thorough
def test_proposals_change_with_their_references(arena: Arena) -> None:
    alone, _ = arena.propose("base", [("code_o", ())] * 240, seed=3)
    shown, _ = arena.propose("base", [("code_o", (REFERENCE,))] * 240, seed=3)
    changed = sum(a["completion"] != b["completion"] for a, b in zip(alone, shown, strict=True))
    assert changed > 180
    assert _unlike_reference(shown) < _unlike_reference(alone) - 0.02, "proposals lean on what they are shown"


@pytest.mark.thorough
def test_a_reference_is_built_upon_rather_than_copied(arena: Arena) -> None:
    _, checks = arena.propose("base", [("code_o", (REFERENCE,))] * 60, seed=5)
    drafts = [check.draft for check in checks if check.draft is not None]
    assert len(drafts) > 30
    assert sum(draft.program == REFERENCE.program for draft in drafts) <= len(drafts) // 10


def test_the_card_was_measured_on_these_weights() -> None:
    measured = json.loads(MEASURED.read_text())
    assert measured["base_digest"] == base_digest(ROOT / "base_model" / "tiny")
    assert all(row["proposals"] >= 300 for row in measured["types"])


@pytest.mark.parametrize(
    ("kind", "lowest_solve_rate"), [("code_o", 0.20), ("code_i", 0.20), ("code_f", 0.12)]
)
def test_the_base_gives_the_loop_signal(kind: str, lowest_solve_rate: float) -> None:
    (row,) = (row for row in json.loads(MEASURED.read_text())["types"] if row["problem_type"] == kind)
    assert row["valid"][0] >= 0.80
    assert row["distinct_programs"][0] >= 0.90
    assert lowest_solve_rate <= row["solve_rate"][0] <= 0.65


def _unlike_reference(rows: list[dict[str, Any]]) -> float:
    """The mean share of a proposed program's n-grams that the reference does not have."""
    programs = (row["completion"].partition("\n#")[0] for row in rows)
    values = [novelty(program, ngrams(REFERENCE.program)) for program in programs if _parses(program)]
    return sum(values) / len(values)


def _parses(program: str) -> bool:
    try:
        parse_program(program)
    except ProgramSyntaxError:
        return False
    return True
