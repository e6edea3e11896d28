"""The benchmark of variation gives the rows that its readers rely on."""

from __future__ import annotations

import torch

from bench.variation import qwen_layout, run
from populora_core.population.variation import CROSSOVERS, MUTATIONS


def test_every_operator_and_the_goals_have_a_row() -> None:
    threads = torch.get_num_threads()
    rows = {row.name: row for row in run(samples=1, say=lambda text: None, layers=1)}
    assert torch.get_num_threads() == threads
    operators = {f"seconds.{name}" for name in MUTATIONS | CROSSOVERS}
    assert operators | {"median_over_copy", "peak_memory_adapters"} <= rows.keys()
    assert {rows[name].goal for name in operators} == {"<= 2"}
    assert (rows["median_over_copy"].goal, rows["peak_memory_adapters"].goal) == ("<= 8", "<= 3")
    assert all(0.0 <= row.low <= row.value <= row.high for row in rows.values())
    # Memory that earlier tests left free in this process may be used again: none is needed then.
    assert all(row.low > 0.0 for name, row in rows.items() if name != "peak_memory_adapters")


def test_the_layout_has_the_size_of_qwen() -> None:
    layout = qwen_layout()
    assert (len(layout.modules), layout.dimension) == (196, 80_740_352)
    factors = layout.views(torch.empty(layout.dimension, device="meta"))
    assert factors["model.layers.27.mlp.down_proj"][0].shape == (32, 18944)
    last = layout.modules[-1]
    assert last.b_offset + 32 * last.out_features == layout.dimension
