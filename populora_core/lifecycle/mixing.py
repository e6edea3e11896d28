"""A run's members mixed into one: the exact mean of their updates at their rank, as a player of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from populora_core.compute.breeding import Breed, Child
from populora_core.runs.session import Session
from populora_core.stages.evaluation import Player
from populora_core.store.adapters import WEIGHTS
from populora_core.support import ids


def mixed(
    session: Session, name: str, members: Sequence[str], generation: int, seed: int, work: Path
) -> tuple[Player, float]:
    """Mix members as they are after a generation; the run itself does not change.

    Args:
        name: of the player.
        seed: of directions that no member has.
        work: folder that the mixture's adapter is written below.

    Returns:
        The player, and the share of the mean's squared norm that the rank holds.
    """
    folders = {member: session.run.adapter_folder(member, generation) for member in members}
    child = Child(name, list(members), "average", {}, ids.draw_seed(seed, *members))
    shards = session.shards(work.name, work)
    (bred,) = shards.map([Breed(folders, [child], inherit=False)])
    made = bred[name]
    return Player(name, made["hashes"][WEIGHTS], shards.files / name), float(made["record"]["energy_kept"])
