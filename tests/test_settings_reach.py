"""Settings whose value is a bound reach what they bound: a run that has others shows it in its rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import GENERATIONS, ask, small_config, start

from populora_core.config.load import apply_overrides
from populora_core.lifecycle.loop import fork, train
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.sandbox.jobs import MIB, Limits

CLIP = 0.25
BOUNDED = {
    "rating.draw_band": (
        1.0,
        "SELECT count(solve_rate) FROM matches WHERE outcome IN ('teacher', 'student')",
        0,
    ),
    "update.advantage_clip": (CLIP, "SELECT max(abs(advantage)) FROM attempts WHERE true", CLIP),
    "propose.buffer_capacity": (1, "SELECT max(len(reference_ids)) FROM proposals WHERE true", 1),
}
"""Setting -> a value that binds, what the last generation shows of it, and the most that this may be."""

ROOM = {"cpu_seconds": 0.75, "wall_seconds": 3.5, "memory_mib": 64, "output_kib": 5}


@pytest.fixture(scope="module")
def bounded(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fork whose last generation has all of these."""
    source = Run.open(finished)
    config = apply_overrides(source.config, [f"{name}={value}" for name, (value, *_) in BOUNDED.items()])
    run = fork(source, GENERATIONS - 1, tmp_path_factory.mktemp("bounded") / "run", config)
    with Session(run) as session:
        train(session, GENERATIONS)
    return run.directory


@pytest.mark.thorough
@pytest.mark.parametrize("setting", BOUNDED)
def test_a_bound_that_is_set_binds(finished: Path, bounded: Path, setting: str) -> None:
    _, question, most = BOUNDED[setting]
    sql = f"SELECT ({question} AND generation = {GENERATIONS}) AS found"
    (there,), (here,) = ask(finished, sql), ask(bounded, sql)
    assert here["found"] <= most < there["found"], "by default it is beyond"


@pytest.mark.sandbox
def test_the_programs_of_a_run_have_the_limits_of_its_settings(tmp_path: Path) -> None:
    with Session(start(tmp_path / "run", small_config(sandbox=ROOM))) as session:
        assert session.sandbox.limits == Limits(0.75, 3.5, 64 * MIB, 5 << 10)
