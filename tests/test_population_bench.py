"""The benchmark of variation gives the rows that its readers rely on."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch

from bench.harness import BenchRow
from bench.variation import qwen_layout, run
from populora_core.population.variation import CROSSOVERS, MUTATIONS


def measured() -> list[BenchRow]:
    threads = torch.get_num_threads()
    rows = run(samples=1, say=lambda text: None, layers=1)
    assert torch.get_num_threads() == threads
    return rows


@pytest.mark.thorough
def test_every_operator_and_the_goals_have_a_row() -> None:
    # In a process of its own: what earlier tests left free of this one's memory would be used again without a peak.
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        rows = {row.name: row for row in process.submit(measured).result()}
    operators = {f"seconds.{name}" for name in MUTATIONS | CROSSOVERS}
    assert operators | {"median_over_copy", "peak_memory_adapters"} <= rows.keys()
    assert {rows[name].goal for name in operators} == {"<= 2"}
    assert {rows[name].goal for name in ("seconds.average_of_4", "seconds.average_of_4_by_half")} == {"<= 60"}
    assert (rows["median_over_copy"].goal, rows["peak_memory_adapters"].goal) == ("<= 8", "<= 3")
    assert all(0.0 < row.low <= row.value <= row.high for row in rows.values())


def test_the_layout_has_the_size_of_qwen() -> None:
    layout = qwen_layout()
    assert (len(layout.modules), layout.dimension) == (196, 80_740_352)
    factors = layout.views(torch.empty(layout.dimension, device="meta"))
    assert factors["model.layers.27.mlp.down_proj"][0].shape == (32, 18944)
    last = layout.modules[-1]
    assert last.b_offset + 32 * last.out_features == layout.dimension
