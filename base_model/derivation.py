"""Random typed programs: a derivation is a chain of typed blocks, so it stays typed when changed or extended.

Difficulty comes from structure. A block's ``cost`` counts control flow (a step 1, a loop 2, a loop with a
condition 3, a nested one 4 or more); constants and operands are small throughout. The sum of the costs is the
program's level.

Every program halts by construction: ``for`` runs over finite values, ``while`` decreases an int to a bound.
"""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from base_model import tables
from base_model.blocks import Block, choose, choose_weighted, draw_block, draw_merge
from base_model.tables import Type

MAX_LEVEL = 8
ACCUMULATORS = "uvwz"


class Relation(StrEnum):
    """The difference between a relative and the program that it is derived from."""

    EXTEND = "extend"
    REPLACE = "replace"
    REPLACE_AND_EXTEND = "replace_and_extend"


RELATION_WEIGHTS: dict[Relation, float] = {
    Relation.EXTEND: 0.5,
    Relation.REPLACE: 0.3,
    Relation.REPLACE_AND_EXTEND: 0.2,
}


@dataclass(frozen=True, slots=True)
class Derivation:
    """A program as the chain of blocks it was derived from."""

    arguments: tuple[Type, ...]
    blocks: tuple[Block, ...]

    @property
    def level(self) -> int:
        """Sum of the blocks' costs."""
        return sum(block.cost for block in self.blocks)

    @property
    def program(self) -> str:
        """Python text: one function ``f``, one-space indents."""
        signature = "def f(x,y):" if len(self.arguments) == 2 else "def f(x):"
        name, value, depth = "x", "x", 0
        body: list[str] = []
        accumulators = iter(ACCUMULATORS)
        for block in self.blocks:
            if value != name and (block.needs_variable or block.own_line or depth >= 2):
                body.append(f" {name}={value}")
                value, depth = name, 0
            if block.lines:
                target = next(accumulators) if block.value == "{a}" else name
                body += [" " + line.format(v=name, a=target) for line in block.lines]
                name = value = target
                depth = 0
            else:
                value = block.value.format(v=_bracketed(value), e=value)
                depth += 1
        return "\n".join([signature, *body, f" return {value}"])


@functools.lru_cache(maxsize=65536)
def _bracketed(expression: str) -> str:
    """The expression, in parentheses where it does not bind tightly by itself."""
    node = ast.parse(expression, mode="eval").body
    tight = isinstance(node, ast.Name | ast.Call | ast.Subscript | ast.List | ast.ListComp)
    return expression if tight else f"({expression})"


def derive(rng: np.random.Generator, level: int) -> Derivation:
    """A random derivation of exactly this level (1 to `MAX_LEVEL`)."""
    while True:
        arguments: tuple[Type, ...] = (choose_weighted(rng, tables.FIRST_ARGUMENT),)
        if rng.random() < 0.25:
            arguments += (choose(rng, tuple(Type)),)
        blocks: list[Block] = []
        current, left = arguments[0], level
        merge_at = int(rng.random() * 2) if level > 1 else 0
        while left > 0:
            if len(arguments) == 2 and len(blocks) == merge_at:
                block = draw_merge(rng, current, None, arguments[1])
                if block is None:
                    break
            else:
                block = draw_block(rng, current, None, left)
            blocks.append(block)
            current, left = block.result, left - block.cost
        derivation = Derivation(arguments, tuple(blocks))
        if left == 0 and _well_formed(derivation):
            return derivation


def _well_formed(derivation: Derivation) -> bool:
    merges = sum(block.merges for block in derivation.blocks)
    loops = sum(block.value == "{a}" for block in derivation.blocks)
    return (
        merges == len(derivation.arguments) - 1
        and loops <= len(ACCUMULATORS)
        and 1 <= derivation.level <= MAX_LEVEL
    )


def relative(rng: np.random.Generator, derivation: Derivation) -> Derivation:
    """A derivation that keeps most of this one: a block replaced, one added, or both; never the same."""
    while True:
        relation = choose_weighted(rng, RELATION_WEIGHTS)
        changed = derivation
        if relation is not Relation.EXTEND:
            changed = _with_replaced_block(rng, changed)
        if relation is not Relation.REPLACE:
            changed = _with_added_block(rng, changed)
        if _well_formed(changed) and changed.program != derivation.program:
            return changed


def _with_replaced_block(rng: np.random.Generator, derivation: Derivation) -> Derivation:
    at = int(rng.random() * len(derivation.blocks))
    old = derivation.blocks[at]
    last = at == len(derivation.blocks) - 1
    result = None if last and rng.random() < 0.3 else old.result
    if old.merges:
        new = draw_merge(rng, old.source, result, derivation.arguments[1])
    else:
        new = draw_block(rng, old.source, result, min(old.cost + 2, MAX_LEVEL))
    if new is None:
        return derivation
    return replace(derivation, blocks=(*derivation.blocks[:at], new, *derivation.blocks[at + 1 :]))


def _with_added_block(rng: np.random.Generator, derivation: Derivation) -> Derivation:
    room = MAX_LEVEL - derivation.level
    if room < 1:
        return derivation
    at = int(rng.random() * (len(derivation.blocks) + 1))
    blocks = derivation.blocks
    source = blocks[at].source if at < len(blocks) else blocks[-1].result
    new = draw_block(rng, source, source if at < len(blocks) else None, min(room, 1 + int(rng.random() * 3)))
    return replace(derivation, blocks=(*blocks[:at], new, *blocks[at:]))
