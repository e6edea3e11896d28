"""verify in a run: what a blind guess solves is no problem where the configuration says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import small_config, start

from populora_core import open_run
from populora_core.runs.session import Session
from populora_core.stages.engine import run_generation

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
        chances = catalogue.rows("SELECT chance FROM problems")
    assert refused and {row["verdict"] for row in refused} == {"trivial"}
    assert chances and {row["chance"] for row in chances} == {0.0}
