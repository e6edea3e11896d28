"""Add an operator of variation: a function of the parents, named by its place.

    export PYTHONPATH=examples
    populora run --preset quick --set 'evolve.mutations=["add_operator:shrink"]' \
                 --set 'evolve.parameters={"add_operator:shrink" = {keep = 0.8}}'

A package needs no path: it registers its operator under an entry point of "populora.variation_operators".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from torch import Tensor

Adapter = dict[
    str, tuple[Tensor, Tensor]
]  # module -> (A [rank, in], B [out, rank]); the update is scale * B A


def shrink(
    parents: Sequence[Adapter],
    rng: np.random.Generator,
    *,
    keep: Annotated[float, Field(gt=0.0, le=1.0)] = 0.9,
) -> tuple[Adapter, dict[str, Any]]:
    """Pull the parent towards the base: the child's update is `keep` times the parent's.

    Keyword-only arguments are the operator's settings; a value that the annotation does not allow is refused before
    any work. The second result is recorded in the lineage, beside the norm and the distance that the core measures.
    """
    (parent,) = parents
    return {module: (a.clone(), keep * b) for module, (a, b) in parent.items()}, {}
