"""Members mixed into one: the exact mean of their updates at their rank, as a player of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from populora_core.compute.breeding import Breed, Child
from populora_core.compute.shards import Shards
from populora_core.stages.evaluation import Player
from populora_core.store.adapters import WEIGHTS
from populora_core.support import ids


def mixed(shards: Shards, name: str, folders: Mapping[str, Path], seed: int) -> tuple[Player, float]:
    """Mix members; the run itself does not change.

    Args:
        shards: of a stage, or of another piece of work; the mixture's adapter lies among their files.
        name: of the player; no other mixture of these shards has it.
        folders: of the members' adapters, in the order in which they are mixed.
        seed: of directions that no member has.

    Returns:
        The player, and the share of the mean's squared norm that the rank holds.
    """
    child = Child(name, list(folders), "average", {}, ids.draw_seed(seed, *folders))
    (bred,) = shards.map([Breed(folders, [child], inherit=False)])
    made = bred[name]
    return Player(name, made["hashes"][WEIGHTS], shards.files / name), float(made["record"]["energy_kept"])
