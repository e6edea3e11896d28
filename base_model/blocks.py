"""The blocks that programs are built of: expressions, branches and loops with their types and costs."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from base_model import control_flow, tables
from base_model.tables import Type

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Block:
    """One typed transformation of the current value.

    Attributes:
        source: type of the current value before the block.
        result: type of the current value after it.
        lines: statements; ``{v}`` stands for the current variable, ``{a}`` for a fresh accumulator.
        value: the expression of the result; ``{v}`` is bracketed when composed, ``{e}`` never is.
        cost: structural difficulty.
        merges: whether the block reads the second argument ``y``.
        own_line: whether the expression before it is first stored in the variable.
    """

    source: Type
    result: Type
    lines: tuple[str, ...]
    value: str
    cost: int
    merges: bool = False
    own_line: bool = False

    @property
    def needs_variable(self) -> bool:
        """True if the current value must be a plain name: it is read several times, or assigned to."""
        return bool(self.lines) or self.value.count("{v}") + self.value.count("{e}") > 1


def choose(rng: np.random.Generator, items: Sequence[T]) -> T:
    """One item, uniformly (`Generator.choice` makes arrays first, which takes longer than all the rest)."""
    return items[int(rng.random() * len(items))]


def choose_weighted(rng: np.random.Generator, weights: dict[T, float]) -> T:
    """One key, with probability proportional to its weight."""
    mark = rng.random() * sum(weights.values())
    for item, weight in weights.items():
        mark -= weight
        if mark < 0:
            return item
    return item


def _filled(rng: np.random.Generator, template: str) -> str:
    """The template with its constants drawn; the holes for values stay open."""
    for hole, constants in tables.CONSTANTS.items():
        while hole in template:
            template = template.replace(hole, choose(rng, constants), 1)
    return template


@functools.cache
def _weighted(templates: tuple[str, ...]) -> tuple[str, ...]:
    """Each template as often as the root of the number of its fillings, so that programs seldom repeat."""

    def weight(template: str) -> int:
        fillings = math.prod(len(c) ** template.count(hole) for hole, c in tables.CONSTANTS.items())
        return round(math.sqrt(fillings))

    return tuple(template for template in templates for _ in range(weight(template)))


@functools.cache
def _merges(source: Type, second: Type, result: Type | None) -> tuple[tuple[str, Type], ...]:
    kinds = tables.MERGES[source, second]
    return tuple(
        (value, kind) for kind in kinds if result in (None, kind) for value in _weighted(kinds[kind])
    )


def _step(rng: np.random.Generator, source: Type, result: Type) -> Block:
    value = _filled(rng, choose(rng, _weighted(tables.STEPS[source, result])))
    return Block(source, result, (), value, 1, own_line=rng.random() < 0.3)


def _assignment(rng: np.random.Generator, source: Type, result: Type, target: str) -> str:
    value = _filled(rng, choose(rng, _weighted(tables.STEPS[source, result])))
    return f"{target}=" + value.replace("{e}", "{v}")


def _branch(rng: np.random.Generator, source: Type, result: Type, merged: Type | None = None) -> Block:
    """Draw an ``if`` around an assignment; with a change of type both arms are needed."""
    conditions = (
        control_flow.CONDITIONS[source] if merged is None else control_flow.MERGING_CONDITIONS[source, merged]
    )
    lines = [f"if {_filled(rng, choose(rng, conditions))}:"]
    both = source is not result or rng.random() < 0.4
    target = "{v}" if source is result else "{a}"
    lines.append(" " + _assignment(rng, source, result, target))
    if both:
        lines += ["else:", " " + _assignment(rng, source, result, target)]
    return Block(source, result, tuple(lines), target, 3 if both else 2, merges=merged is not None)


def _loop_head(rng: np.random.Generator, source: Type) -> tuple[str, str]:
    """A ``for`` header over the current value, and the kind of its item."""
    if source is Type.INT:
        return _filled(rng, choose(rng, control_flow.INT_RANGES)), "int"
    return "for i in {v}:", "int" if source is Type.LIST else "char"


def _loop(rng: np.random.Generator, source: Type, result: Type, merged: Type | None = None) -> Block:
    """A ``for`` that folds into an accumulator: plain, conditional, two-armed, or with an inner loop."""
    head, item = _loop_head(rng, source)
    start = _filled(rng, choose(rng, _weighted(control_flow.STARTS[result])))
    updates = _weighted(control_flow.UPDATES[item, result])

    def update() -> str:
        return "{a}" + _filled(rng, choose(rng, updates))

    conditions = list(control_flow.ITEM_CONDITIONS[item])
    if merged is not None:
        conditions = list(control_flow.MERGING_ITEM_CONDITIONS[item, merged])
    elif result is not Type.INT and not (item == "int" and result is Type.STR):
        conditions.append("i not in {a}")
    condition = f" if {_filled(rng, choose(rng, conditions))}:"
    shape = rng.random()
    if merged is None and shape < 0.35:
        body, cost = [" " + update()], 2
    elif merged is not None or shape < 0.7:
        body, cost = [condition, "  " + update()], 3
    elif shape < 0.82:
        body, cost = [condition, "  " + update(), " else:", "  " + update()], 4
    elif shape < 0.9 or item != "int":
        body, cost = [" " + update(), condition, "  " + update()], 4
    else:
        inner = _filled(rng, choose(rng, control_flow.INNER_UPDATES[result]))
        body, cost = [f" for j in range(i%{choose(rng, ('2', '3'))}):", "  {a}" + inner], 4
    return Block(source, result, ("{a}=" + start, head, *body), "{a}", cost, merges=merged is not None)


def _countdown(rng: np.random.Generator) -> Block:
    """A ``while`` that decreases an int to a bound."""
    bound = choose(rng, ("0", "1", "2", "3"))
    decrease = choose(rng, ("{v}-=1", "{v}-=2", "{v}-=3", "{v}//=2"))
    lines = ["{a}=" + choose(rng, ("0", "0", "1")), f"while {{v}}>{bound}:"]
    update = choose(rng, ("{a}+=1", "{a}+={v}", "{a}+=2"))
    if rng.random() < 0.6:
        return Block(Type.INT, Type.INT, (*lines, " " + update, " " + decrease), "{a}", 2)
    condition = f" if {{v}}%{choose(rng, ('2', '3'))}=={choose(rng, ('0', '1'))}:"
    return Block(Type.INT, Type.INT, (*lines, condition, "  " + update, " " + decrease), "{a}", 3)


def _neighbours(rng: np.random.Generator, source: Type) -> Block:
    """A loop over adjacent pairs, or over all pairs, of a sequence."""
    if rng.random() < 0.6:
        start, *body = choose(rng, control_flow.ADJACENT[source])
        head, cost = ["for i in range(len({v})-1):"], 4
    else:
        start, *body = choose(rng, control_flow.PAIRS[source])
        head, cost = ["for i in {v}:", " for j in {v}:"], 5
    result = Type.LIST if start == "[]" else Type.INT
    lines = tuple(_filled(rng, line) for line in ("{a}=" + start, *head, *body))
    return Block(source, result, lines, "{a}", cost)


def draw_merge(rng: np.random.Generator, source: Type, result: Type | None, second: Type) -> Block | None:
    """A block that brings in the second argument, or None where no such block has these types."""
    shape = rng.random()
    if shape < 0.6:
        options = _merges(source, second, result)
        if not options:
            return None
        value, kind = choose(rng, options)
        return Block(source, kind, (), _filled(rng, value), 1, merges=True, own_line=rng.random() < 0.2)
    if shape < 0.75:
        return _branch(rng, source, source if result is None else result, second)
    item = "char" if source is Type.STR else "int"
    if (item, second) not in control_flow.MERGING_ITEM_CONDITIONS:
        return None
    return _loop(rng, source, _accumulated(rng, source) if result is None else result, second)


def _accumulated(rng: np.random.Generator, source: Type) -> Type:
    kinds = (Type.INT, Type.INT, Type.STR) if source is Type.STR else (Type.INT, Type.INT, Type.LIST)
    return choose(rng, kinds)


def draw_block(rng: np.random.Generator, source: Type, result: Type | None, budget: int) -> Block:
    """A block from ``source`` (to ``result`` where given) that costs at most ``budget``.

    Control flow is preferred as soon as the budget allows it.
    """
    for _ in range(8):
        kind = result or (source if rng.random() < 0.5 else choose(rng, tuple(Type)))
        shape = rng.random()
        if budget == 1 or shape < 0.3:
            return _step(rng, source, kind)
        if shape < 0.48:
            block = _branch(rng, source, kind if result or rng.random() < 0.4 else source)
        elif shape < 0.6 and source is Type.INT:
            block = _countdown(rng)
        elif shape > 0.9 and source is not Type.INT:
            block = _neighbours(rng, source)
        else:
            block = _loop(rng, source, result or _accumulated(rng, source))
        if block.cost <= budget and (result is None or block.result is result):
            return block
    return _step(rng, source, result or source)
