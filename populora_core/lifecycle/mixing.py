"""Members mixed into one: the exact mean of their updates at their rank, as a player of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from populora_core.compute.breeding import Breed, Child
from populora_core.runs.session import Session
from populora_core.stages.evaluation import Player
from populora_core.store.adapters import WEIGHTS
from populora_core.support import ids


def mixed(
    session: Session, name: str, folders: Mapping[str, Path], seed: int, work: Path
) -> tuple[Player, float]:
    """Mix members; the run itself does not change.

    Args:
        name: of the player.
        folders: of the members' adapters, in the order in which they are mixed.
        seed: of directions that no member has.
        work: folder that the mixture's adapter is written below.

    Returns:
        The player, and the share of the mean's squared norm that the rank holds.
    """
    child = Child(name, list(folders), "average", {}, ids.draw_seed(seed, *folders))
    shards = session.shards(work.name, work)
    (bred,) = shards.map([Breed(folders, [child], inherit=False)])
    made = bred[name]
    return Player(name, made["hashes"][WEIGHTS], shards.files / name), float(made["record"]["energy_kept"])
