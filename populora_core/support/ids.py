"""Identifiers: derived from position, zero-padded so that text order is numeric order, never random."""

from __future__ import annotations

import hashlib

import numpy as np

ROLE_LETTERS = {"teacher": "t", "student": "s", "solo": "x"}
ANCHOR = "anchor"
"""The teacher_id of a problem from outside the population."""


def digits(members: int) -> int:
    """Number of digits in the slot numbers of a sub-population of this size."""
    return max(2, len(str(members - 1)))


def member_id(role: str, slot: int, born_generation: int, digits: int = 2) -> str:
    return f"{role}-{slot:0{digits}d}-g{born_generation:04d}"


def slot_of(member: str) -> int:
    """The slot in a member's id."""
    return int(member.split("-")[1])


def match_id(generation: int, position: int, digits: int = 2) -> str:
    return f"match-g{generation:04d}-{position:0{digits}d}"


def proposal_id(generation: int, role: str, slot: int, problem_type: str, index: int, digits: int = 2) -> str:
    return f"prop-g{generation:04d}-{ROLE_LETTERS[role]}{slot:0{digits}d}-{problem_type}-{index:04d}"


def index_of(proposal: str) -> int:
    """The index in the id of a proposal, an anchor or a problem."""
    return int(proposal.rpartition("-")[2])


def anchor_id(generation: int, problem_type: str, index: int) -> str:
    """The id of an anchor, in the place of a proposal's."""
    return f"prop-g{generation:04d}-{ANCHOR}-{problem_type}-{index:04d}"


def problem_id(proposal: str) -> str:
    """The id of the problem that a valid, new proposal becomes."""
    return "prob-" + proposal.removeprefix("prop-")


def attempt_id(problem: str, sample_index: int) -> str:
    return f"att-{problem.removeprefix('prob-')}-s{sample_index:02d}"


def draw_seed(seed: int, *names: object) -> int:
    """A 63-bit seed that depends on `seed` and the names alone, equal on every machine."""
    text = "\x1f".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *names: object) -> np.random.Generator:
    """An independent random stream for the named purpose."""
    return np.random.Generator(np.random.Philox(key=draw_seed(seed, *names)))
