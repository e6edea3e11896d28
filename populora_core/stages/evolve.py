"""evolve: fitness ranks each sub-population; children of the survivors replace the weakest."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from populora_core import ids
from populora_core.population.member import Member, Role
from populora_core.population.replacement import EvolutionRules, Replacement, plan_evolution
from populora_core.stages.context import StageContext
from populora_core.stages.table import MEMBERS

Row = dict[str, Any]


def run(ctx: StageContext) -> None:
    ratings = {row["member_id"]: row for row in ctx.rows("ratings")}
    members = ctx.members()
    plan = _plan(ctx, members, ratings)
    children = {item.removed_id: _child_id(ctx, item) for item in plan}
    hashes = {row["member_id"]: row["sha256"] for row in ctx.rows("adapters")}

    if plan:
        bred = ctx.work(
            "breed",
            members_file=ctx.input_file(MEMBERS),
            survivors=[m.member_id for m in members if m.member_id not in children],
            children=[
                {
                    "member_id": children[item.removed_id],
                    "parent_ids": item.parent_ids,
                    "operator": item.operator,
                    "seed": ids.draw_seed(ctx.seed, children[item.removed_id], "variation"),
                }
                for item in plan
            ],
            output=ctx.path(MEMBERS),
            folders=ctx.adapter_folders(children.values()),
        )
        newborn = {child: bred[child]["sha256"] for child in children.values()}
    else:
        ctx.link(MEMBERS)  # nothing changed: the same bytes, at no cost
        bred, newborn = {}, {}

    planned = {item.removed_id: item for item in plan}
    population = []
    for member in members:
        if member.member_id in planned:
            item = planned[member.member_id]
            child = children[member.member_id]
            population.append(_newborn_row(ctx, item, child, ratings, newborn[child]))
        else:
            population.append(_survivor_row(ctx, member, ratings, hashes[member.member_id]))
    ctx.write("population", population)
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
                "removed_fitness": ratings[item.removed_id]["fitness"],
            }
            for item in plan
        ],
    )
    ctx.write_adapters(newborn)


def _plan(ctx: StageContext, members: list[Member], ratings: dict[str, Row]) -> list[Replacement]:
    settings = ctx.config.evolve
    rules = EvolutionRules(
        every=settings.every,
        fraction=settings.fraction,
        minimum_age=settings.minimum_age,
        crossover_probability=settings.crossover_probability,
        mutations=settings.mutations,
        crossovers=settings.crossovers,
    )
    plan: list[Replacement] = []
    for role in Role:
        own = [member for member in members if member.role is role]
        if own:
            plan += plan_evolution(
                ctx.generation,
                own,
                {m.member_id: ratings[m.member_id]["fitness"] for m in own},
                {m.member_id: ratings[m.member_id]["eligible"] for m in own},
                rules,
                ctx.rng("plan", role),
            )
    return plan


def _child_id(ctx: StageContext, item: Replacement) -> str:
    return ids.member_id(item.role, item.slot, ctx.generation)


def _survivor_row(ctx: StageContext, member: Member, ratings: dict[str, Row], sha256: str) -> Row:
    rating = ratings[member.member_id]
    changed = {name: rating[name] for name in ("mu", "sigma", "productive_generation")}
    kept = asdict(member) | {"parent_ids": list(member.parent_ids)}
    return kept | changed | {"generation": ctx.generation, "adapter_sha256": sha256}


def _newborn_row(
    ctx: StageContext, item: Replacement, child: str, ratings: dict[str, Row], sha256: str
) -> Row:
    """A child starts at its parents' mean mu with full sigma, so that it is neither favoured nor culled first."""
    mus = [ratings[parent]["mu"] for parent in item.parent_ids]
    return {
        "generation": ctx.generation,
        "member_id": child,
        "role": item.role,
        "slot": item.slot,
        "born_generation": ctx.generation,
        "parent_ids": list(item.parent_ids),
        "operator": item.operator,
        "mu": sum(mus) / len(mus),
        "sigma": ctx.config.rating.sigma,
        "productive_generation": ctx.generation,
        "adapter_sha256": sha256,
    }
