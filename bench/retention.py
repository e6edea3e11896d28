"""Do children come back? Every variation operator's child, trained as its parents were, on the tiny base.

    python -m bench.retention [--seeds 0 1 2]
    python -m bench.retention table

For each seed two students are trained from the base, apart: their own start, their own problems. Then every
operator makes one child: a mutation of the better parent, a crossover of both. Controls: `copy_parent`,
`average` (the midpoint), and `founder`, a new member that equals the base. All children then learn in one
population, each from its own answers to the same fresh problems.

The solve rate is measured on held-out problems, each member with the same problems and random numbers, so that
equal members score equally. Which parent is the better one is decided on other problems: chosen by the
held-out ones, its rate there would be flattered by its luck.

An operator returns its children at the first measurement where the difference of their held-out solve rates to
the better parent's, averaged over the seeds, is not below 0 by more than its standard error. Each seed's
result is appended to the output file as it is finished; a seed that stands there is not done again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.learning import fresh_problems, mean, paired, student_step
from populora_core.compute.arena import Arena, solve_rates
from populora_core.config.sections import REPOSITORY, EvolveSection
from populora_core.learner.rows import UpdateRules
from populora_core.model.state import MemberState
from populora_core.population.variation import CROSSOVERS, MUTATIONS, make_child
from populora_core.problems.model import Problem
from populora_core.runs.run import code_revision
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.support import ids

OUTPUT = REPOSITORY / "bench" / "results" / "retention.jsonl"
FOUNDER = "founder"
CONTROLS = ("copy_parent", "average", FOUNDER)
_Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is trained and measured.

    Attributes:
        parent_updates: of each parent before it breeds.
        child_updates: of each child.
        problems, attempts: fresh problems of an update, and answers to each.
        every: updates between two measurements of the children.
        held_out, held_out_attempts: what a solve rate is measured on.
    """

    kind: str = "code_i"
    parent_updates: int = 40
    problems: int = 32
    child_updates: int = 20
    attempts: int = 8
    every: int = 5
    held_out: int = 200
    held_out_attempts: int = 4


def retention(arena: Arena, seed: int, plan: Plan, rules: UpdateRules, log: Callable[[str], None]) -> _Result:
    """One seed: two parents, a child of every operator, and how the children's solve rates go."""
    known: set[tuple[str, ...]] = set()
    held_out = fresh_problems(plan.kind, plan.held_out, ids.generator(4242, "held out"), known)
    choice = fresh_problems(plan.kind, plan.held_out, ids.generator(4242, "choice"), known)

    def train(
        states: Mapping[str, MemberState], updates: range, source: np.random.Generator
    ) -> dict[str, MemberState]:
        trained = dict(states)
        for update in updates:
            fresh = fresh_problems(plan.kind, plan.problems, source, known)
            draw = ids.draw_seed(seed, *states, update)
            trained, solved = student_step(arena, trained, fresh, plan.attempts, draw, rules)
            log(
                f"seed {seed}, update {update + 1}: solved {mean(list(solved.values())):.3f} of the fresh problems"
            )
        return trained

    def rates(states: Mapping[str, MemberState], problems: Sequence[Problem]) -> dict[str, list[float]]:
        arena.load(states)
        judged = arena.solve_each(
            list(states), problems, plan.held_out_attempts, ids.draw_seed(seed, "rates")
        )
        return {
            member: [rate or 0.0 for rate in solve_rates(judgements, plan.held_out_attempts)]
            for member, (_, judgements) in judged.items()
        }

    parents: dict[str, MemberState] = {}
    for name in ("parent 0", "parent 1"):
        newborn = {name: arena.newborn(ids.draw_seed(seed, name))}
        source = ids.generator(seed, name, "problems")
        parents |= train(newborn, range(plan.parent_updates), source)
    chosen_by = {name: mean(found) for name, found in rates(parents, choice).items()}
    worse, better = sorted(parents, key=chosen_by.__getitem__)

    children, records = breed(arena, parents[worse], parents[better], seed)
    measured = rates(parents | {"base": arena.newborn(0)}, held_out)
    goal = measured[better]
    curves: dict[str, list[_Result]] = {name: [] for name in children}
    source = ids.generator(seed, "children's problems")
    for start in range(0, plan.child_updates + 1, plan.every):
        for name, found in rates(children, held_out).items():
            gap, error = paired([own - parents_ for own, parents_ in zip(found, goal, strict=True)])
            curves[name].append(
                {"update": start, "rate": mean(found), "difference": gap, "standard_error": error}
            )
            log(f"seed {seed}, {name} after {start} updates: {mean(found):.3f} ({gap:+.3f} ± {error:.3f})")
        if start < plan.child_updates:
            children = train(children, range(start, start + plan.every), source)
    return {
        "experiment": "retention",
        "seed": seed,
        "plan": asdict(plan),
        "base_rate": mean(measured["base"]),
        "parent_rates": [mean(measured[name]) for name in (better, worse)],
        "children": [
            {"operator": name, "record": records.get(name, {}), "curve": curve}
            for name, curve in curves.items()
        ],
    }


def breed(
    arena: Arena, worse: MemberState, better: MemberState, seed: int
) -> tuple[dict[str, MemberState], dict[str, _Result]]:
    """A child of every operator, and the founder; with what the operators recorded."""
    layout = arena.worker.layout
    children = {FOUNDER: arena.newborn(ids.draw_seed(seed, FOUNDER))}
    records = {}
    for name in (*MUTATIONS, *CROSSOVERS):
        parents = [better] if name in MUTATIONS else [worse, better]
        child, records[name] = make_child(
            name,
            [layout.views(parent.weights) for parent in parents],
            ids.generator(seed, name),
            layout.scale,
        )
        children[name] = MemberState.newborn(layout.row(child))
    return children, records


def table(results: Sequence[_Result]) -> str:
    """The mean difference to the better parent over the seeds, a row an operator, and who returns when."""
    updates = [point["update"] for point in results[0]["children"][0]["curve"]]
    head = ["operator", *(f"after {update}" for update in updates), "the seeds' last", "returns", "default"]
    lines = [head, ["---"] * len(head)]
    defaults = EvolveSection()
    for name, curves in _curves(results).items():
        last = [curve[-1]["difference"] for curve in curves]
        back = returned(curves)
        lines.append(
            [
                f"`{name}`" + (" (control)" if name in CONTROLS else ""),
                *(f"{gap:+.3f} ± {error:.3f}" for gap, error in zip(*_mean_curve(curves), strict=True)),
                ", ".join(f"{gap:+.3f}" for gap in last),
                "**no**" if back is None else f"after {back}",
                "yes" if name in defaults.mutations + defaults.crossovers else "no",
            ]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def returned(curves: Sequence[Sequence[_Result]]) -> int | None:
    """The first update after which the children are back at the better parent; None where they never are.

    Args:
        curves: of one operator, one a seed, measured after the same updates.
    """
    for point, gap, error in zip(curves[0], *_mean_curve(curves), strict=True):
        if gap >= -error:
            return point["update"]
    return None


def _mean_curve(curves: Sequence[Sequence[_Result]]) -> tuple[list[float], list[float]]:
    """The mean difference over the seeds at each measurement, and its standard error from those within seeds."""
    gaps = np.array([[point["difference"] for point in curve] for curve in curves])
    errors = np.array([[point["standard_error"] for point in curve] for curve in curves])
    return gaps.mean(axis=0).tolist(), (np.sqrt((errors**2).sum(axis=0)) / len(curves)).tolist()


def _curves(results: Sequence[_Result]) -> dict[str, list[list[_Result]]]:
    """operator -> its curve in each seed."""
    names = [child["operator"] for child in results[0]["children"]]
    return {
        name: [
            child["curve"] for result in results for child in result["children"] if child["operator"] == name
        ]
        for name in names
    }


def read(output: Path) -> list[_Result]:
    """The seeds that are done, in order."""
    lines = output.read_text().splitlines() if output.is_file() else []
    return sorted(map(json.loads, lines), key=lambda result: result["seed"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "table"), nargs="?", default="run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--base", type=Path, default=REPOSITORY / "base_model" / "tiny")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    if options.what == "table":
        print(table(read(options.output)))
        return
    rules = UpdateRules(lr=options.learning_rate)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    with open_sandbox("auto", Limits(), workers=2) as sandbox:
        arena = Arena(options.base, "compact", sandbox)
        for seed in sorted(set(options.seeds) - {result["seed"] for result in read(options.output)}):
            started = time.process_time()
            result = retention(arena, seed, Plan(), rules, lambda text: print(text, flush=True))
            result |= {
                "rules": asdict(rules),
                "base_digest": arena.worker.spec.digest,
                "cpu_seconds": round(time.process_time() - started, 1),
                "machine": machine,
                "code_revision": code_revision(),
            }
            options.output.parent.mkdir(parents=True, exist_ok=True)
            with open(options.output, "a") as file:
                file.write(json.dumps(result) + "\n")
    print(table(read(options.output)))


if __name__ == "__main__":
    main()
