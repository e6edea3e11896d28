"""The evaluate flow: runs that went on are measured, a drop is a failed state with a message."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import PATIENCE

from populora_core.store.artifacts import StageWriter, read_manifest, read_table, stage_dir
from populora_core.support.shipped import REPOSITORY

pytestmark = [pytest.mark.foreign, pytest.mark.loop, pytest.mark.sandbox, pytest.mark.thorough]

FLOW = """
import asyncio, json, sys
from pathlib import Path
from flows.evaluate import evaluate
from flows.server import own_server
from prefect.client.orchestration import get_client
from test_evaluate_flow import perfect_past

suite, run = sys.argv[1], Path(sys.argv[2])

def told(place, suite=suite):
    state = evaluate([str(place)], suite, return_state=True)
    return state.type.value, state.message

async def artifacts():
    async with get_client() as client:
        return sorted({found.key for found in await client.read_latest_artifacts()})

with own_server():
    states = [told(run.parent), told(run.parent)]
    own = [told(run.parent, "yardstick"), told(run.parent, "yardstick")]
    perfect_past(run)
    states += [told(run), told(run / "no-run")]
    print(json.dumps({"states": states, "own": own, "artifacts": asyncio.run(artifacts())}))
"""


def test_the_flow_measures_what_went_on_and_fails_on_a_drop(
    copy_of: Callable[[], Path], tmp_path: Path
) -> None:
    directory = copy_of()
    suite = tmp_path / "small.toml"
    suite.write_text(
        (REPOSITORY / "configs/suites/tiny.toml").read_text().replace("validation = 0.5", "validation = 0.95")
    )
    modules = os.pathsep.join(map(str, (REPOSITORY, Path(__file__).parent)))
    home = {"PREFECT_HOME": str(tmp_path / "prefect"), "PREFECT_LOGGING_LEVEL": "CRITICAL"}
    done = subprocess.run(
        [sys.executable, "-c", FLOW, str(suite), str(directory)],
        cwd=REPOSITORY,
        env=os.environ | home | {"PYTHONPATH": modules},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["artifacts"] == ["scores-copy-tiny", "scores-copy-yardstick", "trend-copy-tiny"]
    first, second, dropped, absent = told["states"]
    assert first == ["COMPLETED", "1 runs evaluated on tiny, no population dropped"]
    assert second[0] == "COMPLETED"
    assert second[1].startswith("0 runs"), "in a folder, only what went on since is taken"
    assert told["own"] == [["COMPLETED", f"{n} runs evaluated on yardstick"] for n in (1, 0)]
    assert dropped[0] == "FAILED"
    assert "copy dropped by 0." in dropped[1] and "from generation 2 to 3" in dropped[1]
    assert 'id="evaluations"' in (directory / "report.html").read_text(), "the report is up to date"
    assert absent[0] == "FAILED"
    assert "is not a run directory" in absent[1]


def perfect_past(directory: Path) -> None:
    """An evaluation of the generation before in which every member solved every problem."""
    source = stage_dir(directory, 3, "evaluate-tiny")
    manifest, items = read_manifest(source), read_table(source, "evaluation_items")
    assert manifest is not None
    solved = items.set_column(
        items.schema.get_field_index("correct"), items.schema.field("correct"), [[True] * len(items)]
    )
    with StageWriter(directory, 2, "evaluate-tiny") as writer:
        writer.write_table("evaluation_items", solved)
        writer.commit(
            writer.draft(
                key="5" * 64,
                stage_version=1,
                seed=0,
                config=manifest.config,
                inputs={},
                started=0.0,
                seconds=0.0,
                code_revision="r",
            )
        )
