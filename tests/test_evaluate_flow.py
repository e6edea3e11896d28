"""The evaluate flow: runs that went on are measured, a fall below the base is a failed state with a message."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ran
from own_suite import name_own_suite

from populora_core.benchmarks.scores import BASE
from populora_core.store.artifacts import StageWriter, read_table
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.store.schema import to_table
from populora_core.support.shipped import REPOSITORY

pytestmark = [pytest.mark.foreign, pytest.mark.loop, pytest.mark.sandbox, pytest.mark.thorough]

FLOW = """
import asyncio, json, sys
from pathlib import Path
from flows.evaluate import evaluate
from flows.server import own_server
from prefect.client.orchestration import get_client
from test_evaluate_flow import fall

suite, run, alone = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])

def told(place, suite=suite, members="all"):
    state = evaluate([str(place)], suite, members, return_state=True)
    return state.type.value, state.message

async def artifacts():
    async with get_client() as client:
        return {found.key: [str(found.data), found.description] for found in await client.read_latest_artifacts()}

with own_server():
    states = [told(run.parent), told(run.parent)]
    yardstick = [told(run.parent, "yardstick"), told(run.parent, "yardstick")]
    fall(run)
    states += [told(run), told(run / "no-run")]
    few = told(run, suite, "best")
    own = told(alone, "")
    known = {"states": states, "yardstick": yardstick, "own": own, "few": few, "artifacts": asyncio.run(artifacts())}
    print(json.dumps(known))
"""


@pytest.fixture(scope="module")
def measured(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run, and what one Prefect server knows after the flow has measured it, and another on a suite of its own."""
    folder, apart = tmp_path_factory.mktemp("flow"), tmp_path_factory.mktemp("apart")
    directory, alone = (Path(shutil.copytree(finished, to)) for to in (folder / "copy", apart / "alone"))
    moved = shutil.copytree(finished, folder / "moved")
    shutil.move(moved / "members", apart)
    (moved / "members").symlink_to(apart / "members")  # such a run hides no other
    name_own_suite(alone, ["def f(x):\n return x+1", "def f(x):\n return x*2"])
    suite = folder / "small.toml"
    suite.write_text(
        (REPOSITORY / "configs/suites/tiny.toml").read_text().replace("validation = 0.5", "validation = 0.95")
    )
    modules = os.pathsep.join(map(str, (REPOSITORY, Path(__file__).parent)))
    home = {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_LOGGING_LEVEL": "CRITICAL"}
    done = ran(
        [sys.executable, "-c", FLOW, suite, directory, alone],
        cwd=REPOSITORY,
        env=os.environ | home | {"PYTHONPATH": modules},
    )
    assert done.returncode == 0, done.stderr
    return directory, json.loads(done.stdout.splitlines()[-1])


def test_the_flow_measures_what_went_on_and_fails_on_a_fall_below_the_base(
    measured: tuple[Path, dict[str, Any]],
) -> None:
    directory, told = measured
    kept = sorted(
        key for key in told["artifacts"] if not key.endswith("-progress")
    )  # which a slow machine has
    assert kept == [
        *("alone-evaluate-own", "copy-evaluate-tiny", "copy-evaluate-yardstick"),
        *("scores-alone-own", "scores-copy-tiny", "scores-copy-yardstick"),
        *("trend-alone-own", "trend-copy-tiny"),
    ]
    scores, _ = told["artifacts"]["scores-copy-tiny"]
    assert "%" in scores and "points" in scores, "shares are shown as the report shows them"
    first, second, fallen, absent = told["states"]
    assert first == ["COMPLETED", "1 run evaluated on tiny, none below the base twice in a row"]
    assert second[0] == "COMPLETED"
    assert second[1].startswith("0 runs"), "in a folder, only what went on since is taken"
    assert told["yardstick"] == [["COMPLETED", f"{n} evaluated on yardstick"] for n in ("1 run", "0 runs")]
    assert fallen[0] == "FAILED"
    assert fallen[1].startswith("copy: the students are 100 points below the base after generation 3 (")
    assert "as they were after generation 2; copy: the teachers are" in fallen[1]
    assert 'id="evaluations"' in (directory / "report.html").read_text(), "the report is up to date"
    assert absent[0] == "FAILED"
    assert "is not a run directory" in absent[1]
    assert told["few"] == ["COMPLETED", "1 run evaluated on tiny"], "a few members are not their role"


def test_without_a_suite_the_flow_measures_a_run_on_its_own(measured: tuple[Path, dict[str, Any]]) -> None:
    _, told = measured
    kind, message = told["own"]
    assert kind == "COMPLETED" and "1 run evaluated on their own suites" in message, message
    _, described = told["artifacts"]["scores-alone-own"]
    assert described.startswith("own after generation 3 of ")


def fall(directory: Path) -> None:
    """Make the newest evaluation, and one of the generation before, such that the base alone solves anything."""
    source = stage_dir(directory, 3, "evaluate-tiny")
    manifest, items = read_manifest(source), read_table(source, "evaluation_items")
    assert manifest is not None
    rows = items.to_pylist()
    for generation in (2, 3):
        of_base = [row | {"correct": row["member_id"] == BASE, "generation": generation} for row in rows]
        with StageWriter(directory, generation, "evaluate-tiny") as writer:
            writer.write_table("evaluation_items", to_table("evaluation_items", of_base))
            writer.write_table("evaluations", read_table(source, "evaluations"))
            writer.commit(
                writer.draft(
                    key=manifest.key,
                    stage_version=1,
                    seed=0,
                    config=manifest.config,
                    inputs=manifest.inputs,
                    started=0.0,
                    seconds=0.0,
                    code_revision="r",
                )
            )
