"""Is learning real? A student on fresh problems, a teacher against a frozen student.

    python -m bench.learning student --type code_i --seeds 0 1 2
    python -m bench.learning teacher --seeds 0 1 2
    python -m bench.learning table

student: trained for G generations on problems that the base model's grammar makes fresh each time, scored on 200
held-out ones that it never trains on, before and after, paired by problem.
teacher: trained for G generations against a student that stays the base; the share of its proposals (invalid ones
included) that the student solves sometimes but not always, before and after.

Each seed's result is appended to the output file as it is finished; `table` prints the files as Markdown.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from base_model.grammar import sample_problem
from populora_core.compute.arena import Arena, solve_rates, training_rows
from populora_core.config.sections import GradeSection, UpdateSection
from populora_core.learner.estimators import reinforce_pp
from populora_core.learner.rows import UpdateRules
from populora_core.learner.update import update_members
from populora_core.problems.model import Problem
from populora_core.problems.normal import program_key
from populora_core.problems.rewards import student_reward, teacher_reward
from populora_core.runs.run import code_revision
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.sandbox.literals import canonical
from populora_core.support import ids
from populora_core.support.shipped import REPOSITORY

TYPES = ("code_o", "code_i", "code_f")
HELD_OUT = 200
_Result = dict[str, Any]


def student(
    arena: Arena, kind: str, seed: int, generations: int, rules: UpdateRules, log: Callable[[str], None]
) -> _Result:
    """Train a student on one problem type; the paired gain on held-out problems with its standard error."""
    per_generation, attempts = 32, 8
    held_out = fresh_problems(kind, HELD_OUT, ids.generator(4242, "held out"), set())
    known = {_key(problem) for problem in held_out}
    source = ids.generator(seed, "training problems")
    state = arena.newborn(seed)

    def score(label: str) -> list[float]:
        arena.load({"student": state})
        _, judged = arena.solve("student", held_out, attempts, ids.draw_seed(seed, label))
        return [rate or 0.0 for rate in solve_rates(judged, attempts)]

    before = score("before")
    curve = []
    for generation in range(generations):
        problems = fresh_problems(kind, per_generation, source, known)
        arena.load({"student": state})
        answers, judged = arena.solve("student", problems, attempts, ids.draw_seed(seed, generation))
        rewards = [student_reward(j.verdict, GradeSection()) for j in judged]
        groups = [str(index // attempts) for index in range(len(answers))]
        training = training_rows("student", answers, reinforce_pp(rewards, groups, [kind] * len(answers)))
        states, _ = update_members(arena.worker.stacked, {"student": state}, training, rules)
        state = states["student"]
        curve.append(round(fmean(rate or 0.0 for rate in solve_rates(judged, attempts)), 4))
        log(
            f"student {kind} seed {seed} generation {generation + 1}: solved {curve[-1]:.3f} of the fresh problems"
        )
    after = score("after")
    gains = [b - a for a, b in zip(before, after, strict=True)]
    gain, error = fmean(gains), stdev(gains) / math.sqrt(len(gains))
    return {
        "experiment": "student",
        "type": kind,
        "seed": seed,
        "generations": generations,
        "before": fmean(before),
        "after": fmean(after),
        "gain": gain,
        "standard_error": error,
        "gain_over_error": gain / error if error else None,
        "n_held_out": len(held_out),
        "curve": curve,
    }


def teacher(
    arena: Arena,
    kinds: Sequence[str],
    seed: int,
    generations: int,
    per_type: int,
    rules: UpdateRules,
    log: Callable[[str], None],
) -> _Result:
    """Train a teacher on some problem types; the rise of the learnable share with its standard error."""
    attempts, measured = 8, 600 // len(kinds)
    states = {"teacher": arena.newborn(seed), "student": arena.newborn(seed + 1)}

    def play(count: int, label: object) -> tuple[list[_Result], list[float | None], list[str]]:
        """Proposals, the reward of each, and "learnable", "valid" or "invalid" for each."""
        arena.load(states)
        asked = [(kind, ()) for kind in kinds for _ in range(count)]
        rows, checks = arena.propose("teacher", asked, ids.draw_seed(seed, label))
        seen: set[tuple[str, ...]] = set()
        problems: list[Problem] = []
        index_of: dict[int, int] = {}
        for index, check in enumerate(checks):
            if check.draft is not None and check.outputs:
                problem = check.draft.problem(str(index), check.outputs)
                if _key(problem) not in seen:
                    seen.add(_key(problem))
                    index_of[index] = len(problems)
                    problems.append(problem)
        _, judged = arena.solve("student", problems, attempts, ids.draw_seed(seed, label))
        rates = solve_rates(judged, attempts)
        rewards, found = [], []
        for index, check in enumerate(checks):
            rate = rates[index_of[index]] if index in index_of else None
            duplicate = bool(check.outputs) and index not in index_of
            rewards.append(
                GradeSection().teacher_invalid
                if duplicate
                else teacher_reward(check.verdict, rate, GradeSection())
            )
            found.append("invalid" if rate is None else "learnable" if 0.0 < rate < 1.0 else "valid")
        return rows, rewards, found

    def share(found: Sequence[str], label: str) -> float:
        return sum(item == label for item in found) / len(found)

    _, _, before = play(measured, "before")
    curve = []
    for generation in range(generations):
        rows, rewards, found = play(per_type, generation)
        cohorts = [row["problem_type"] for row in rows]
        training = training_rows("teacher", rows, reinforce_pp(rewards, cohorts, cohorts))
        new, _ = update_members(arena.worker.stacked, {"teacher": states["teacher"]}, training, rules)
        states |= new
        curve.append(round(share(found, "learnable"), 4))
        log(
            f"teacher seed {seed} generation {generation + 1}: learnable {curve[-1]:.3f}, "
            f"invalid {share(found, 'invalid'):.3f}"
        )
    _, _, after = play(measured, "after")
    p, q = share(before, "learnable"), share(after, "learnable")
    error = math.sqrt(p * (1 - p) / len(before) + q * (1 - q) / len(after))
    return {
        "experiment": "teacher",
        "types": list(kinds),
        "proposals_per_type": per_type,
        "seed": seed,
        "generations": generations,
        "before": p,
        "after": q,
        "gain": q - p,
        "standard_error": error,
        "gain_over_error": (q - p) / error,
        "factor": q / p,
        "invalid_before": share(before, "invalid"),
        "invalid_after": share(after, "invalid"),
        "n_proposals": len(before),
        "curve": curve,
    }


def fresh_problems(
    kind: str, count: int, source: np.random.Generator, known: set[tuple[str, ...]]
) -> list[Problem]:
    """Problems from the base model's grammar that are not in `known`; their keys are added to it."""
    problems: list[Problem] = []
    while len(problems) < count:
        program, inputs, outputs = sample_problem(source, kind)
        problem = Problem(
            f"{kind}-{len(known):06d}",
            kind,
            program,
            tuple(canonical(tuple(arguments)) for arguments in inputs),
            tuple(canonical(output) for output in outputs),
            "",
        )
        if _key(problem) not in known:
            known.add(_key(problem))
            problems.append(problem)
    return problems


def _key(problem: Problem) -> tuple[str, ...]:
    return problem.problem_type, program_key(problem.program), *problem.inputs


def table(folder: Path) -> str:
    """The results in a folder as a Markdown table, a row an experiment and a figure a seed."""
    lines = ["| what | before → after, each seed | gain ± one standard error |", "| --- | --- | --- |"]
    for file in sorted(folder.glob("learning-*.jsonl")):
        results = sorted(map(json.loads, file.read_text().splitlines()), key=lambda result: result["seed"])
        kinds = ", ".join(f"`{kind}`" for kind in results[0].get("types") or [results[0]["type"]])
        student = results[0]["experiment"] == "student"
        what = (
            f"student, {kinds} solved"
            if student
            else f"teacher, {kinds} problems solved sometimes but not always"
        )
        moves = ", ".join(f"{result['before']:.2f} → {result['after']:.2f}" for result in results)
        gains = ", ".join(f"{result['gain']:+.3f} ± {result['standard_error']:.3f}" for result in results)
        lines.append(f"| {what} | {moves} | {gains} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", choices=("student", "teacher", "table"))
    parser.add_argument("--type", choices=TYPES, default="code_i", help="problem type of the student")
    parser.add_argument(
        "--types", choices=TYPES, nargs="+", default=TYPES, help="problem types of the teacher"
    )
    parser.add_argument("--per-type", type=int, default=32, help="proposals of the teacher in a generation")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--generations", type=int, default=60)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--base", type=Path, default=REPOSITORY / "base_model" / "tiny")
    parser.add_argument("--output", type=Path, default=None, help="default: bench/results/learning-*.jsonl")
    options = parser.parse_args()

    if options.experiment == "table":
        print(table(REPOSITORY / "bench" / "results"))
        return
    name = f"learning-{options.experiment}" + (f"-{options.type}" if options.experiment == "student" else "")
    output = options.output or REPOSITORY / "bench" / "results" / f"{name}.jsonl"
    rules = UpdateRules(UpdateSection(learning_rate=options.learning_rate))
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    with open_sandbox("auto", Limits(), workers=2) as sandbox:
        arena = Arena(options.base, "compact", sandbox)
        for seed in options.seeds:
            started = time.time()
            if options.experiment == "student":
                result = student(arena, options.type, seed, options.generations, rules, print)
            else:
                result = teacher(
                    arena, options.types, seed, options.generations, options.per_type, rules, print
                )
            result |= {
                "rules": asdict(rules),
                "base_digest": arena.worker.spec.digest,
                "seconds": round(time.time() - started, 1),
                "machine": machine,
                "code_revision": code_revision(),
            }
            output.parent.mkdir(parents=True, exist_ok=True)
            with open(output, "a") as file:
                file.write(json.dumps(result) + "\n")
            print(
                json.dumps(
                    {key: value for key, value in result.items() if key not in ("curve", "rules")}, indent=1
                )
            )


if __name__ == "__main__":
    main()
