"""run.json of older versions: what it lacks is as it was then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import small_config, start

from populora_core.runs.run import Run


@pytest.mark.parametrize(
    ("lacks", "found"),
    [((), (True, 0.25)), (("inherit", "last_share"), (False, 0.0)), (("last_share",), (True, 0.0))],
)
def test_a_record_without_a_setting_follows_the_rule_before_it(
    lacks: tuple[str, ...], found: tuple[bool, float], tmp_path: Path
) -> None:
    path = start(tmp_path / "run", small_config(evolve={"last_share": 0.25})).directory / "run.json"
    record = json.loads(path.read_text())
    for setting in lacks:
        del record["config"]["evolve"][setting]
    path.write_text(json.dumps(record))
    evolve = Run.open(path.parent).config.evolve
    assert (evolve.inherit, evolve.last_share) == found
    assert json.loads(path.read_text()) == record, "the record itself stays"
