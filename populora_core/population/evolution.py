"""Evolution of one sub-population, by ask and tell.

    evolution = Evolution(rules)
    for generation in range(1, 101):
        ...                                      # play: matches, ratings, fitness
        evolution.tell(generation, members, fitness, eligible)
        for replacement in evolution.ask(rng):   # empty in most generations
            child, record = make_child(replacement.operator, ..., rng, scale)
            ...                                  # the child takes the slot in `members`

It holds no weights, opens no files and draws only from the generator that it is given. Every error names the
call that went before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from populora_core.population.fitness import rank
from populora_core.population.member import Member
from populora_core.population.replacement import (
    EvolutionRules,
    Replacement,
    plan_evolution,
    require_one_sub_population,
)
from populora_core.support.errors import PopulationError


class Evolution:
    """Tell it what play found of the living members, ask it who is replaced and how."""

    def __init__(self, rules: EvolutionRules) -> None:
        self.rules = rules
        self._previous = "nothing"
        self._generation = -1
        self._told: tuple[Sequence[Member], Mapping[str, float], Mapping[str, bool]] | None = None
        self._living: dict[int, str] = {}  # slot -> member_id after the last ask; "" where a child goes

    def tell(
        self,
        generation: int,
        members: Sequence[Member],
        fitness: Mapping[str, float],
        eligible: Mapping[str, bool],
    ) -> None:
        """The living members of one role at the end of a generation, and how fit they are.

        Args:
            fitness: member_id -> fitness, larger is better.
            eligible: member_id -> whether the member was productive lately.

        Raises:
            PopulationError: told twice, a generation that is not later than the last, members that do not
                follow from the last plan, or one without fitness.
        """
        call = f"tell(generation {generation})"
        if self._told is not None:
            raise self._refused(call, "ask(), which uses what was told", call)
        if generation <= self._generation:
            raise self._refused(call, f"a generation after {self._generation}", str(generation))
        require_one_sub_population(members)
        rank(members, fitness, eligible)
        self._require_succession(call, members)
        self._generation, self._told, self._previous = generation, (members, fitness, eligible), call

    def ask(self, rng: np.random.Generator) -> list[Replacement]:
        """Who is replaced at the end of the generation that was told, and how; first to go first.

        Raises:
            PopulationError: nothing was told since the last ask.
        """
        if self._told is None:
            raise self._refused("ask()", "tell(), which says how fit the members are", "ask()")
        members, fitness, eligible = self._told
        plan = plan_evolution(self._generation, members, fitness, eligible, self.rules, rng)
        self._living = {member.slot: member.member_id for member in members}
        self._living |= {item.slot: "" for item in plan}
        self._told, self._previous = None, f"ask() for generation {self._generation}"
        return plan

    def _require_succession(self, call: str, members: Sequence[Member]) -> None:
        """The survivors live on, and every slot that was vacated holds a child born in that generation."""
        living = {member.slot: member for member in members}
        for slot in sorted(self._living.keys() | (living.keys() if self._living else set())):
            member, expected = living.get(slot), self._living.get(slot)
            if member is not None and expected == "" and member.born_generation == self._generation:
                continue
            if member is None or member.member_id != expected:
                child = f"a child born in generation {self._generation}"
                raise self._refused(
                    call,
                    f"in slot {slot} {child if expected == '' else expected or 'nobody'}",
                    "nobody" if member is None else f"{member.member_id}, born in {member.born_generation}",
                )

    def _refused(self, call: str, expected: str, came: str) -> PopulationError:
        return PopulationError(
            f"{call} cannot follow {self._previous}",
            expected=expected,
            came=came,
            remedy="tell the fitness of the living members, ask, let the children take their slots; in turn",
        )
