"""found: generation 0, the founders.

A newborn founder equals the base (B = 0) with its own random A; one that starts warm has an existing adapter's policy.
"""

from __future__ import annotations

from populora_core.compute.members import Found
from populora_core.population.member import Member, Role
from populora_core.population.pbt import founded
from populora_core.runs.warm_start import OPERATOR, require_unchanged, start_folders
from populora_core.stages.context import StageContext, hash_columns
from populora_core.support import ids


def run(ctx: StageContext) -> None:
    population, rating = ctx.config.population, ctx.config.rating
    sizes = {
        Role.STUDENT: population.students,
        Role.TEACHER: population.teachers,
        Role.SOLO: population.solo,
    }
    slots = [(role, slot) for role, size in sizes.items() for slot in range(size)]
    names = [ids.member_id(role, slot, 0, ids.digits(sizes[role])) for role, slot in slots]
    sources = start_folders(ctx.config)
    require_unchanged(sources, ctx.session.run.start_digests)
    if sources:
        ctx.extra["start_from"] = {name: str(folder) for name, folder in sources.items()}
    seeds = {name: ids.draw_seed(ctx.seed, name, "birth") for name in names if name not in sources}
    (hashes,) = ctx.shards.map([Found(seeds, sources)])
    ctx.write(
        "population",
        [
            Member(
                member_id=name,
                role=role,
                slot=slot,
                born_generation=0,
                parent_ids=(),
                operator=OPERATOR if name in sources else "founder",
                mu=rating.mu,
                sigma=rating.sigma,
                productive_generation=0,
            ).row(ctx.generation, **hash_columns(hashes[name]))
            for name, (role, slot) in zip(names, slots, strict=True)
        ],
    )
    if ctx.config.pbt.on:
        rng = {name: ctx.rng(name, "hyperparameters") for name in names}
        own = {
            name: founded(ctx.config.pbt, role, rng[name])
            for name, (role, _) in zip(names, slots, strict=True)
        }
        ctx.write("hyperparameters", [each.row(ctx.generation, name) for name, each in own.items()])
    ctx.write_adapters(hashes)
