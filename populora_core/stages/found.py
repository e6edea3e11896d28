"""found: generation 0, the founders; every adapter equals the base (B = 0) with its own random A."""

from __future__ import annotations

from populora_core import ids
from populora_core.population.member import Role
from populora_core.stages.context import StageContext
from populora_core.stages.table import MEMBERS


def run(ctx: StageContext) -> None:
    population, rating = ctx.config.population, ctx.config.rating
    slots = [(Role.STUDENT, slot) for slot in range(population.students)]
    slots += [(Role.TEACHER, slot) for slot in range(population.teachers)]
    names = [ids.member_id(role, slot, 0) for role, slot in slots]
    hashes = ctx.work(
        "found",
        seeds={name: ids.draw_seed(ctx.seed, name, "birth") for name in names},
        members_file=ctx.path(MEMBERS),
        folders=ctx.adapter_folders(names),
    )
    ctx.write(
        "population",
        [
            {
                "generation": ctx.generation,
                "member_id": name,
                "role": role,
                "slot": slot,
                "born_generation": 0,
                "parent_ids": [],
                "operator": "founder",
                "mu": rating.mu,
                "sigma": rating.sigma,
                "productive_generation": 0,
                "adapter_sha256": hashes[name],
            }
            for name, (role, slot) in zip(names, slots, strict=True)
        ],
    )
    ctx.write_adapters(hashes)
