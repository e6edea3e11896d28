"""Dealing work of unlike size to workers, so that all end at about the same time."""

from __future__ import annotations

from collections.abc import Sequence


def deal(sizes: Sequence[float], workers: int) -> list[int]:
    """Deal pieces to workers: the largest first, always to the worker that has least.

    The fullest then has at most 4/3 - 1 / (3 workers) times what the best dealing gives it (Graham 1969, longest
    processing time first).

    Args:
        sizes: expected, of each piece, in any unit.

    Returns:
        A worker's number for each piece.
    """
    loads, dealt = [0.0] * workers, [0] * len(sizes)
    for piece in sorted(range(len(sizes)), key=lambda piece: -sizes[piece]):
        least = min(range(workers), key=loads.__getitem__)
        loads[least] += sizes[piece]
        dealt[piece] = least
    return dealt
