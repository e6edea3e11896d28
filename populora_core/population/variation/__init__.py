"""Variation: children of the same rank from one parent (mutation) or two (crossover).

Operators see an adapter as its effective update scale * B A: rewriting a parent as (B R, R^-1 A), which is
the same policy, gives the same child. The scale (alpha / rank) is one number for the whole population;
every operator commutes with it, so that none needs to know it.

An operator is a function of the parents [Adapter], a numpy Generator and named parameters with defaults; it
gives the child's factors and what should be recorded of its draws. Put one into `MUTATIONS` or `CROSSOVERS`
and `evolve.mutations` or `evolve.crossovers` can name it. The registries hold our own by place, so that
knowing their names does not cost the import of torch.
"""

from __future__ import annotations

import inspect
import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from populora_core.errors import PopulationError

if TYPE_CHECKING:
    import numpy as np

    from populora_core.population.variation.lowrank import Adapter, Factors

Operator = Callable[..., tuple[dict[str, "Factors"], dict[str, Any]]]


def _at(module: str, *names: str) -> dict[str, Operator | str]:
    return {name: f"{__name__}.{module}:{name}" for name in names}


MUTATIONS: dict[str, Operator | str] = _at(
    "mutation", "svd_perturbation", "layer_gaussian", "component_masking", "full_gaussian", "copy_parent"
)
"""Operators with one parent; copy_parent is the control that changes nothing."""

CROSSOVERS: dict[str, Operator | str] = _at(
    "crossover", "dare_triplets", "layer_choice", "svd_mix", "extrapolation", "average"
)
"""Operators with two parents; average is the control."""


def make_child(
    operator: str,
    parents: Sequence[Adapter],
    rng: np.random.Generator,
    scale: float,
    parameters: Mapping[str, float] | None = None,
) -> tuple[dict[str, Factors], dict[str, Any]]:
    """A child of the parents, sharing no memory with them, in which every direction can learn.

    Args:
        operator: a name in `MUTATIONS` or `CROSSOVERS`.
        parents: one or two adapters, module -> (A [rank, in], B [out, rank]) in float32; of two the fitter
            second.
        scale: alpha / rank, what B A is multiplied by in the model.
        parameters: settings of the operator in place of its defaults.

    Returns:
        The child and its record, plain JSON: the parameters used, what the operator drew, `update_norm`
        (Frobenius norm of the child's effective update), `distances` (of the child's update to each
        parent's, relative to that parent's norm; None where the parent has no update) and `energy_kept`
        (share of the squared norm of what the operator aimed at that fits into the rank).

    Raises:
        PopulationError: unknown operator or parameter, the wrong number of parents, or adapters that differ
            in modules, shapes or type.
    """
    from populora_core.population.variation import lowrank

    function, n_parents = _lookup(operator)
    settings = _settings(operator, function, parameters or {})
    if len(parents) != n_parents:
        raise PopulationError(
            f"{operator} cannot breed from these parents",
            expected=f"{n_parents} of them",
            came=str(len(parents)),
            remedy="choose as many parents as the operator's registry says",
        )
    lowrank.require_alike(parents, f"the parents of {operator}")
    child, drawn = function(parents, rng, **settings)
    lowrank.require_alike([parents[0], child], f"the child of {operator}")
    child = {name: lowrank.revive(factors, rng) for name, factors in child.items()}
    record = {
        "energy_kept": 1.0,
        **settings,
        **drawn,
        "update_norm": scale * math.sqrt(lowrank.inner(child, child)),
        "distances": [lowrank.relative_distance(child, parent) for parent in parents],
    }
    return child, record


def _lookup(name: str) -> tuple[Operator, int]:
    for registry, n_parents in ((MUTATIONS, 1), (CROSSOVERS, 2)):
        if name in registry:
            entry = registry[name]
            return (pkgutil.resolve_name(entry) if isinstance(entry, str) else entry), n_parents
    raise PopulationError(
        f"{name!r} is no variation operator",
        expected="one of " + ", ".join(sorted(MUTATIONS | CROSSOVERS)),
        came=repr(name),
        remedy="name a registered operator in evolve.mutations or evolve.crossovers",
    )


def _settings(name: str, function: Operator, parameters: Mapping[str, float]) -> dict[str, float]:
    """The operator's own defaults, which are its keyword-only arguments, overridden by the parameters."""
    known = {
        argument.name: argument.default
        for argument in inspect.signature(function).parameters.values()
        if argument.kind is argument.KEYWORD_ONLY
    }
    if unknown := sorted(parameters.keys() - known.keys()):
        raise PopulationError(
            f"{name} has no parameter {unknown[0]!r}",
            expected=", ".join(known) or "no parameters",
            came=", ".join(unknown),
            remedy="correct the name or leave the parameter out",
        )
    return known | dict(parameters)
