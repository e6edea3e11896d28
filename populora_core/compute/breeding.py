"""Work that makes members of members: children, and averages. Each to the folder of its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from populora_core.compute.members import export
from populora_core.compute.work import Worker
from populora_core.support import ids
from populora_core.support.aliases import Progress

if TYPE_CHECKING:
    from torch import Tensor

    from populora_core.model.layout import AdapterLayout
    from populora_core.model.state import MemberState
    from populora_core.population.variation.moments import Moments


@dataclass(frozen=True, slots=True)
class Child:
    """A member to make from others.

    Attributes:
        operator: of `population.variation`; `parameters` are its settings, and `seed` is what it draws from.
    """

    member_id: str
    parent_ids: Sequence[str]
    operator: str
    parameters: Mapping[str, Any]
    seed: int


@dataclass(frozen=True, slots=True)
class Breed:
    """Children to make from the parents in the folders of `parents`.

    Attributes:
        inherit: a child takes its parents' moments and the mean of their step counts, so that it learns at the
            rate of its parents' age; otherwise its optimiser starts fresh.
    """

    parents: Mapping[str, Path]
    children: Sequence[Child]
    inherit: bool = True

    def run(self, worker: Worker, folder: Path, progress: Progress) -> dict[str, dict[str, Any]]:
        """Make and write them.

        Returns:
            child member_id -> {"hashes": of its files, "record": what the operator drew and did}.
        """
        from populora_core.model.adapter_files import read_state, read_weights
        from populora_core.model.state import MemberState
        from populora_core.population.variation import make_child

        layout = worker.layout
        states = {
            parent: read_state(path) if self.inherit else MemberState.newborn(read_weights(path, layout))
            for parent, path in self.parents.items()
        }
        views = {parent: layout.views(state.weights) for parent, state in states.items()}
        newborn, records = {}, {}
        for child in self.children:
            adapter, record = make_child(
                child.operator,
                [views[parent] for parent in child.parent_ids],
                ids.generator(child.seed),
                layout.scale,
                child.parameters,
            )
            row = layout.row(adapter)
            own = [states[parent] for parent in child.parent_ids]
            state = heir(layout, row, own) if self.inherit else MemberState.newborn(row)
            newborn[child.member_id] = state
            records[child.member_id] = record | {"seed": child.seed, "steps": state.steps}
        hashes = export(worker, newborn, folder)
        return {member: {"hashes": hashes[member], "record": records[member]} for member in newborn}


@dataclass(frozen=True, slots=True)
class Average:
    """Members to move towards the mean of their group, which keep their names and their step counts.

    Attributes:
        members: member_id -> its folder.
        groups: members that are averaged with each other.
        share: of the way to the mean.
        seed: for directions that an update does not have.
    """

    members: Mapping[str, Path]
    groups: Sequence[Sequence[str]]
    share: float
    seed: int

    def run(self, worker: Worker, folder: Path, progress: Progress) -> dict[str, dict[str, Any]]:
        """Make and write them.

        Returns:
            member_id -> {"hashes": of its files, "distance", "energy_kept": as in `Averaged`}.
        """
        from populora_core.model.adapter_files import read_state
        from populora_core.model.state import MemberState
        from populora_core.population.variation.averaging import averaged

        layout, states, told = worker.layout, dict[str, MemberState](), dict[str, dict[str, Any]]()
        for group in self.groups:
            before = {member: read_state(self.members[member]) for member in group}
            found = averaged(
                [layout.views(state.weights) for state in before.values()],
                [_moments(layout, state) for state in before.values()],
                self.share,
                ids.generator(self.seed, *group),
            )
            usual = mean_steps(before.values())  # of who made none, and gets moments now
            for (member, state), own in zip(before.items(), found, strict=True):
                moments = layout.row(own.moments.mean), layout.row(own.moments.square)
                states[member] = MemberState(layout.row(own.factors), *moments, state.steps or usual)
                told[member] = {"distance": own.distance, "energy_kept": own.energy_kept}
        hashes = export(worker, states, folder)
        return {member: own | {"hashes": hashes[member]} for member, own in told.items()}


def heir(layout: AdapterLayout, weights: Tensor, parents: Sequence[MemberState]) -> MemberState:
    """A child of these weights [D] with its parents' moments, and with as many steps as they made on average."""
    from populora_core.model.state import MemberState
    from populora_core.population.variation.moments import inherited

    moments = inherited(
        layout.views(weights),
        [layout.views(parent.weights) for parent in parents],
        [_moments(layout, parent) for parent in parents],
    )
    return MemberState(weights, layout.row(moments.mean), layout.row(moments.square), mean_steps(parents))


def mean_steps(members: Iterable[MemberState]) -> int:
    """The step count for averaged moments: zero only if no member made a step."""
    made = [member.steps for member in members]
    return max(round(fmean(made)), min(sum(made), 1))


def _moments(layout: AdapterLayout, state: MemberState) -> Moments:
    from populora_core.population.variation.moments import Moments

    return Moments(layout.views(state.exp_avg), layout.views(state.exp_avg_sq))
