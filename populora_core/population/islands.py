"""Islands: groups of a population that share nothing but averages.

A member belongs to the island of its slot, whoever holds it. Members meet, breed, are shown references and are asked
again on their island alone, and what is new there was never a problem there. With averages every k generations this
is local training with communication (DiLoCo); without them the islands are independent populations of one run.
"""

from __future__ import annotations

from populora_core.support import ids


def island_of(slot: int, islands: int) -> int:
    """The island of a slot: slots go round."""
    return slot % islands


def island_of_problem(problem_id: str, teacher_id: str, islands: int) -> int:
    """The island on which a problem was asked: its teacher's, or that which an anchor was drawn for."""
    if teacher_id == ids.ANCHOR:
        return island_of(ids.index_of(problem_id), islands)
    return island_of(ids.slot_of(teacher_id), islands)


def anchor_index(number: int, island: int, islands: int) -> int:
    """The index among a generation's anchors of an island's own one of this number."""
    return number * islands + island
