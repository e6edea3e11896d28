"""The card of an assembly: nothing that a received run calls itself is live on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from conftest import small_config
from markdown_it import MarkdownIt
from store_run import CHILD, STUDENT, item_row

from populora_core.benchmarks.scores import BASE
from populora_core.benchmarks.suite import Entry, Suite
from populora_core.lifecycle.export import CARD
from populora_core.runs.run import Run
from populora_core.store.adapters import ADAPTER_FILES
from populora_core.store.record import RECORD
from populora_plugins.harvest.assemble import ANY, HOWS, SOUP, Assembly
from populora_plugins.harvest.assembled import write_assembly

HTML = "<img src=x onerror=alert(1)>"
SUITE = Suite(suite="tiny", benchmarks=(Entry(benchmark="tiny_code_o", dataset="bundled:tiny.parquet"),))


def asked(player: str) -> Any:
    row = item_row(1, player) | {"suite": SUITE.suite, "part": "test", "benchmark": "tiny_code_o"}
    return row | {"correct": True}


def test_no_name_of_a_received_run_is_live_on_the_card(tmp_path: Path) -> None:
    run = Run.create(tmp_path / f"`{HTML}[x](x)`", small_config(), "0" * 64)
    record = json.loads((run.directory / RECORD).read_text())
    record["config"]["base"]["dialect"] = f"`{HTML}"
    (run.directory / RECORD).write_text(json.dumps(record))
    soup = tmp_path / "soup"
    soup.mkdir()
    for name in ADAPTER_FILES:
        (soup / name).write_text("{}")
    found = Assembly(
        run=Run.open(run.directory),
        generation=1,
        suite=SUITE,
        adapters={STUDENT: "0" * 64},
        soup=(STUDENT, CHILD),
        soup_folder=soup,
        energy_kept=1.0,
        router="type",
        by_type={},
        validation=dict.fromkeys(HOWS, 0.5),
        items=[asked(player) for player in (BASE, STUDENT, *HOWS, ANY)],
    )
    card = (write_assembly(found, SOUP, tmp_path / "out", base_name=f"`\n\n{HTML}") / CARD).read_text()
    parts = MarkdownIt("commonmark").enable("table").parse(card)
    types = {node.type for part in parts for node in (part, *(part.children or ()))}
    assert types.isdisjoint({"html_block", "html_inline", "link_open", "image"})
    assert card.count("onerror") == 3, "run, base and dialect are shown"
