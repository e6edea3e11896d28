"""Which operators are in the default set follows from the record of the retention experiment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from populora_core.config.sections import EvolveSection
from populora_core.support.shipped import REPOSITORY

RECORD = REPOSITORY / "bench" / "results" / "retention.jsonl"
Curve = list[dict[str, Any]]


def returned(curves: Sequence[Curve]) -> int | None:
    """The first update after which an operator's children are back at their better parent; None where they never are.

    The mean difference over the seeds must not be below 0 by more than its standard error (from those within seeds).
    """
    for points in zip(*curves, strict=True):
        gap = np.mean([point["difference"] for point in points])
        error = np.sqrt(np.sum([point["standard_error"] ** 2 for point in points])) / len(points)
        if gap >= -error:
            return points[0]["update"]
    return None


@pytest.mark.parametrize("operator", EvolveSection().mutations + EvolveSection().crossovers)
def test_every_operator_of_the_default_set_returned(operator: str) -> None:
    results = [json.loads(line) for line in RECORD.read_text().splitlines()]
    curves = [c["curve"] for result in results for c in result["children"] if c["operator"] == operator]
    assert len(curves) == len(results) >= 3
    assert returned(curves) is not None, f"{operator} does not return and must leave the default set"
