"""A run whose own suite asks programs that it plays."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from populora_core.support.trust import remember


def name_own_suite(directory: Path, programs: Iterable[str]) -> None:
    """Let the run name a suite file of its own: CRUXEval, with a row for each of these programs."""
    rows, suite, record = (directory / name for name in ("own.jsonl", "own.toml", "run.json"))
    rows.write_text(
        "".join(
            json.dumps({"id": str(number), "code": program, "input": "1", "output": "1"}) + "\n"
            for number, program in enumerate(programs)
        )
    )
    suite.write_text(
        f'suite = "own"\n[[benchmarks]]\nbenchmark = "cruxeval_o"\ndataset = "file:{rows}"\nmax_tokens = 32\n'
    )
    document = json.loads(record.read_text())
    document["config"]["evaluate"]["suite"] = str(suite)
    record.write_text(json.dumps(document))
    remember([str(suite)])
