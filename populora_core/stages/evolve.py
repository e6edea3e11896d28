"""evolve: fitness ranks each sub-population; children of the survivors replace the weakest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from populora_core.compute.breeding import Breed, Child
from populora_core.population.fitness import fitness_of
from populora_core.population.islands import island_of
from populora_core.population.member import Member, Role
from populora_core.population.pbt import explored
from populora_core.population.rating import Rating, newborn_rating
from populora_core.population.replacement import Replacement, evolves, plan_evolution
from populora_core.stages.adapters import updated_folders
from populora_core.stages.context import StageContext, hash_columns
from populora_core.store.rows import AdapterRow, RatingRow, RetiredRow
from populora_core.support import ids


def run(ctx: StageContext) -> None:
    ratings = {row["member_id"]: row for row in ctx.rows("ratings")}
    members = ctx.members()
    plan, fitness = _plan(ctx, members, ratings)
    sizes = Counter(member.role for member in members)
    children = {
        item.removed_id: ids.member_id(item.role, item.slot, ctx.generation, ids.digits(sizes[item.role]))
        for item in plan
    }
    updated = {row["member_id"]: row for row in ctx.rows("adapters")}

    bred: dict[str, Any] = {}
    if plan:
        parents = sorted({parent for item in plan for parent in item.parent_ids})
        before = updated_folders(ctx, [updated[parent] for parent in parents])
        asked = [_child(ctx, item, children[item.removed_id]) for item in plan]
        (bred,) = ctx.shards.map([Breed(before, asked, ctx.config.evolve.inherit)])
    newborn = {child: bred[child]["hashes"] for child in children.values()}

    planned = {item.removed_id: item for item in plan}
    population = []
    for member in members:
        if member.member_id in planned:
            child = children[member.member_id]
            born = _newborn(ctx, planned[member.member_id], child, ratings)
            population.append(born.row(ctx.generation, **hash_columns(newborn[child])))
        else:
            row = updated[member.member_id]
            kept = _rated(member, ratings)
            population.append(kept.row(ctx.generation, row["sha256"], row["moments_sha256"]))
    ctx.write("population", population)
    if ctx.config.pbt.on:
        _write_hyperparameters(ctx, members, planned, children)
    ctx.write(
        "evolutions",
        [
            {
                "generation": ctx.generation,
                "role": item.role,
                "removed_id": item.removed_id,
                "child_id": children[item.removed_id],
                "parent_ids": list(item.parent_ids),
                "operator": item.operator,
                "operator_parameters": json.dumps(bred[children[item.removed_id]]["record"], sort_keys=True),
                "removed_fitness": fitness[item.removed_id],
            }
            for item in plan
        ],
    )
    ctx.write(
        "retired",
        [_retired_row(member, updated, ratings) for member in members if member.member_id in planned],
    )
    ctx.write_adapters(newborn)


def _write_hyperparameters(
    ctx: StageContext,
    members: list[Member],
    planned: Mapping[str, Replacement],
    children: Mapping[str, str],
) -> None:
    """Survivors keep theirs; a child explores from those of its fitter parent, the last of its parents."""
    own, rules = ctx.hyperparameters(), ctx.config.pbt
    rows = []
    for member in members:
        name, hyperparameters = member.member_id, own[member.member_id]
        if (item := planned.get(name)) is not None:
            name = children[name]
            rng = ctx.rng(name, "hyperparameters")
            hyperparameters = explored(own[item.parent_ids[-1]], rules, item.role, rng)
        rows.append(hyperparameters.row(ctx.generation, name))
    ctx.write("hyperparameters", rows)


def _plan(
    ctx: StageContext, members: list[Member], ratings: dict[str, RatingRow]
) -> tuple[list[Replacement], dict[str, float]]:
    """Choose who is replaced and how; return also the fitness that decided it: member_id -> fitness."""
    settings = ctx.config.evolve
    external = {row["member_id"]: row["external_fitness"] for row in ctx.rows("external_fitness")}
    plan: list[Replacement] = []
    fitness: dict[str, float] = {}
    if not evolves(settings, ctx.generation, ctx.config.run.generations):
        return plan, fitness
    islands = ctx.config.population.islands
    for role, island in product(Role, range(islands)):
        own = [
            _rated(member, ratings)
            for member in members
            if member.role is role and island_of(member.slot, islands) == island
        ]
        if own:
            fitness |= fitness_of(settings, own, external)
            eligible = {m.member_id: ratings[m.member_id]["eligible"] for m in own}
            rng = ctx.rng("plan", role, island) if islands > 1 else ctx.rng("plan", role)
            plan += plan_evolution(ctx.generation, own, fitness, eligible, settings, rng)
    return plan, fitness


def _child(ctx: StageContext, item: Replacement, member_id: str) -> Child:
    return Child(
        member_id=member_id,
        parent_ids=item.parent_ids,
        operator=item.operator,
        parameters=ctx.config.evolve.parameters.get(item.operator, {}),
        seed=ids.draw_seed(ctx.seed, member_id, "variation"),
    )


def _rated(member: Member, ratings: dict[str, RatingRow]) -> Member:
    """The member as the generation's matches left it."""
    row = ratings[member.member_id]
    productive = row["productive_generation"]
    return replace(member, mu=row["mu"], sigma=row["sigma"], productive_generation=productive)


def _retired_row(member: Member, updated: dict[str, AdapterRow], ratings: dict[str, RatingRow]) -> RetiredRow:
    """A removed member as it was at the end, for the hall of fame."""
    rating, adapter = ratings[member.member_id], updated[member.member_id]
    return {
        "generation": rating["generation"],
        "member_id": member.member_id,
        "role": member.role,
        "mu": rating["mu"],
        "sigma": rating["sigma"],
        "adapter_sha256": adapter["sha256"],
    }


def _newborn(ctx: StageContext, item: Replacement, child: str, ratings: dict[str, RatingRow]) -> Member:
    """A child as it enters the population, rated by its parents (see `newborn_rating`)."""
    parents = [Rating(ratings[parent]["mu"], ratings[parent]["sigma"]) for parent in item.parent_ids]
    rating = newborn_rating(parents, ctx.config.rating)
    return Member(
        member_id=child,
        role=item.role,
        slot=item.slot,
        born_generation=ctx.generation,
        parent_ids=tuple(item.parent_ids),
        operator=item.operator,
        mu=rating.mu,
        sigma=rating.sigma,
        productive_generation=ctx.generation,
    )
