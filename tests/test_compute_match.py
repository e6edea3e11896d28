"""The single agent's presets cost what they say: one member's compute, or the whole population's."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ask, start

from populora_core.config.load import apply_overrides, load_config
from populora_core.lifecycle.loop import train
from populora_core.runs.session import Session

pytestmark = [pytest.mark.loop, pytest.mark.sandbox, pytest.mark.thorough]

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
GENERATIONS = 1
SMALLER = 3  # a third of the proposals and half of the attempts
TOLERANCE = 0.2  # lengths and validity are drawn; a solo member's are those of a dozen proposals


def trained(directory: Path, name: str) -> dict[int, list[int]]:
    """generation -> trained tokens of each member, of a small run of the shipped configuration."""
    config = load_config(CONFIGS / f"{name}.toml")
    per_type, attempts = config.propose.per_type // SMALLER, config.solve.attempts // 2
    config = apply_overrides(
        config, [f"propose.per_type={per_type}", f"solve.attempts={attempts}", "compute.backend=inline"]
    )
    with Session(start(directory / name, config)) as session:
        train(session, GENERATIONS)
    rows = ask(
        directory / name,
        """SELECT generation, member_id, sum(trained_tokens)::INT AS n, sum(updates)::INT AS updates
           FROM tokens GROUP BY ALL ORDER BY ALL""",
    )
    assert {row["updates"] for row in rows} == {2 if config.population.solo else 1}
    return {
        generation: [row["n"] for row in rows if row["generation"] == generation]
        for generation in range(1, GENERATIONS + 1)
    }


def test_trained_tokens_match_per_member_and_in_total(tmp_path: Path) -> None:
    population = trained(tmp_path, "demo")
    solo, total = trained(tmp_path, "solo"), trained(tmp_path, "solo-total")
    for generation, members in population.items():
        assert len(members) == 8
        assert len(solo[generation]) == len(total[generation]) == 1
        assert solo[generation][0] == pytest.approx(sum(members) / 8, rel=TOLERANCE)
        assert total[generation][0] == pytest.approx(sum(members), rel=TOLERANCE)
