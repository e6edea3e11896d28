"""Variation: children of the same rank from one parent (mutation) or two (crossover).

Operators see an adapter as its effective update scale * B A: rewriting a parent as (B R, R^-1 A), which is
the same policy, gives the same child. They commute with the scale, which parents and child share.

An operator is a function of the parents [Adapter], a numpy Generator and named parameters with defaults; it
gives the child's factors and what should be recorded of its draws. Yours joins by an entry point or its place
(`support/registry.py`), and `evolve.mutations` or `evolve.crossovers` can choose it.
The registries hold our own by place, so that knowing their names does not cost the import of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from populora_core.support.registry import Registry, settings_of

if TYPE_CHECKING:
    import numpy as np

    from populora_core.population.variation.lowrank import Adapter, Factors

Operator = Callable[..., Any]
"""(parents, rng, *, settings) -> (the child's factors, what it drew), or a `lowrank.Bred`."""


def _at(module: str, *names: str) -> Registry:
    return Registry(
        {name: f"{__name__}.{module}:{name}" for name in names},
        group="populora.variation_operators",
        what="variation operator",
        setting=f"evolve.{module}s",
    )


MUTATIONS = _at(
    "mutation", "svd_perturbation", "layer_gaussian", "component_masking", "full_gaussian", "copy_parent"
)
"""Operators with one parent; copy_parent is the control that changes nothing."""

CROSSOVERS = _at(
    "crossover", "dare_triplets", "dare_factors", "layer_choice", "svd_mix", "extrapolation", "average"
)
"""Operators with two parents; average is the control, dare_factors has cross terms."""


def make_child(
    operator: str,
    parents: Sequence[Adapter],
    rng: np.random.Generator,
    scale: float,
    parameters: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Factors], dict[str, Any]]:
    """A child of the parents, sharing no memory with them, in which every direction can learn.

    Args:
        operator: a name in `MUTATIONS` or `CROSSOVERS`, or "package.module:function".
        parents: one or two adapters, module -> (A [rank, in], B [out, rank]), all in float32 or all in
            float64; of two the fitter second.
        scale: what B A is multiplied by in the parents' and the child's model, alpha / rank.
        parameters: settings of the operator in place of its defaults.

    Returns:
        The child and its record, plain JSON: the parameters used, what the operator drew, `update_norm`
        (Frobenius norm of the child's effective update), `distances` (of the child's effective update to
        each parent's, relative to that parent's norm; None where the parent has no update) and `energy_kept`
        (share of the squared norm of what the operator aimed at that the child has).

    Raises:
        PopulationError: unknown operator or parameter, adapters that differ in modules, shapes or type, or
            numbers that are not finite.
    """
    from populora_core.population.variation import lowrank

    function: Operator = (CROSSOVERS if len(parents) > 1 else MUTATIONS).find(operator)
    settings = settings_of(operator, function, parameters or {})
    lowrank.require_alike(parents, f"the parents of {operator}")
    # Contiguous, since noise fills memory in order: a parent's strides must not change its children.
    parents = [
        {name: (a.contiguous(), b.contiguous()) for name, (a, b) in parent.items()} for parent in parents
    ]

    bred = function(parents, rng, **settings)
    if not isinstance(bred, lowrank.Bred):
        factors, drawn = bred
        lowrank.require_alike([parents[0], factors], f"the child of {operator}")
        lowrank.require_finite(factors, f"the child of {operator}")
        child = {name: lowrank.revive(each, rng) for name, each in factors.items()}
        bred = lowrank.Bred(child, drawn, *lowrank.measured(child, parents))
    record = {
        "energy_kept": 1.0,
        **settings,
        **bred.drawn,
        "update_norm": scale * bred.norm,
        "distances": bred.distances,
    }
    return bred.factors, record
