"""Can practice push the frontier base beyond its corpus? Students on fresh problems of the grammar.

    python -m bench.oracle --arms following fixed supervised shuffled --seeds 0 1 2
    python -m bench.oracle table

Every arm trains a newborn LoRA student with AdamW on fresh `code_o` problems of the stepwise grammar, half of a
batch at the frontier, a quarter just below, a quarter from all levels below that.

following: the frontier moves up once half of its problems in a batch are solved.
fixed: the frontier stays where it starts.
shuffled: as following, with the rewards shuffled within the batch; what drift alone does.
supervised: the thoughts and answers that the rule gives, to the very problems of the following arm of that seed.

Each result, with every level's greedy and sampled scores before and after, is appended to the output file;
`table` prints it as Markdown. A thought is *whole* if every token of it is what the rule gives.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from base_model.steps.documents import answer
from base_model.steps.grammar import SolvedProgram, sample
from base_model.steps.problems import answer_cap, output_problem, whole
from base_model.steps.suite import SUITE, read_suite
from populora_core.compute.arena import Arena, SamplingRules
from populora_core.config.sections import REPOSITORY, GradeSection, UpdateSection
from populora_core.learner.estimators import reinforce_pp
from populora_core.learner.rows import TrainingRow, UpdateRules
from populora_core.learner.update import update_members
from populora_core.model.state import MemberState
from populora_core.problems.rewards import student_reward
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.runs.run import code_revision
from populora_core.sampler.requests import Text
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.support import ids

ARMS = ("following", "fixed", "shuffled", "supervised")
EDGE, BEYOND = (4, 5), (6, 7, 8)
SAMPLED_ATTEMPTS = 8
SAMPLED_PART = 2
STUDENT = "student"
OUTPUT = REPOSITORY / "bench" / "results" / "oracle.jsonl"
_Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rules:
    """How long and on what a student trains.

    Attributes:
        start: the level where the frontier starts.
        deepest: the level that the frontier never passes.
        up: the frontier moves up once this share of its attempts in a batch is right.
        score_every: updates between greedy scores on a part of the suite.
    """

    updates: int = 60
    problems: int = 32
    attempts: int = 8
    learning_rate: float = 2e-3
    warmup: int = 5
    start: int = 4
    deepest: int = 8
    up: float = 0.5
    score_every: int = 20


DEFAULT = Rules()


class Oracle:
    """One arm with one seed."""

    def __init__(self, arena: Arena, held_out: Sequence[SolvedProgram], rules: Rules, seed: int) -> None:
        self.arena, self.held_out, self.rules, self.seed = arena, held_out, rules, seed
        self.state: MemberState = arena.newborn(seed)
        self.source = ids.generator(seed, "oracle problems")
        self.shuffler = ids.generator(seed, "oracle shuffle")

    def batch(self, frontier: int) -> list[SolvedProgram]:
        """Fresh problems: half at the frontier, a quarter just below, a quarter from all levels below that."""
        found = []
        for index in range(self.rules.problems):
            level = (frontier, frontier, frontier - 1, 1 + int(self.source.random() * (frontier - 2)))[
                index % 4
            ]
            found.append(sample(self.source, level))
        return found

    def answers(
        self, problems: Sequence[SolvedProgram], attempts: int, temperature: float, cap: int, label: object
    ) -> tuple[list[_Figures], list[Any]]:
        """Completions with their judgements, problem by problem."""
        self.arena.load({STUDENT: self.state})
        asked = [output_problem(one, str(index)) for index, one in enumerate(problems)]
        rules = SamplingRules(temperature=temperature, answer_tokens=cap)
        return self.arena.solve(STUDENT, asked, attempts, ids.draw_seed(self.seed, label), rules)

    def practise(self, update: int, frontier: int, shuffled: bool) -> float:
        """One step on the student's own answers; the share of right ones at the frontier."""
        problems, attempts = self.batch(frontier), self.rules.attempts
        rows, judged = self.answers(problems, attempts, 1.0, answer_cap(frontier), update)
        rewards = [student_reward(one.verdict, GradeSection()) for one in judged]
        if shuffled:
            rewards = [rewards[index] for index in self.shuffler.permutation(len(rewards))]
        groups = [str(index // attempts) for index in range(len(rows))]
        values = reinforce_pp(rewards, groups, [STUDENT] * len(rows))
        self.step(
            [
                TrainingRow(
                    STUDENT,
                    tuple(row["prompt_ids"]),
                    tuple(row["completion_ids"]),
                    tuple(row["logprobs"]),
                    value,
                )
                for row, value in zip(rows, values, strict=True)
            ]
        )
        right = [one.verdict is AttemptVerdict.CORRECT for one in judged]
        at_frontier = [
            good for index, good in enumerate(right) if problems[index // attempts].level == frontier
        ]
        return float(np.mean(at_frontier))

    def imitate(self, frontier: int) -> None:
        """One step on the rule's own answers: the gradient of their mean log-probability a token."""
        self.arena.load({STUDENT: self.state})
        tokenizer = self.arena.worker.vocabulary.tokenizer
        texts = []
        for index, one in enumerate(self.batch(frontier)):
            prompt = self.arena.dialect.solve_prompt(output_problem(one, str(index)))
            texts.append(
                Text(
                    STUDENT, tuple(tokenizer(prompt)["input_ids"]), tuple(tokenizer(answer(one))["input_ids"])
                )
            )
        # At the present log-probabilities the clipped ratio is 1, and its gradient is that of the likelihood.
        scores = self.arena.worker.sampler.score(texts)
        self.step(
            [
                TrainingRow(STUDENT, text.prompt_ids, text.completion_ids, tuple(score), 1.0)
                for text, score in zip(texts, scores, strict=True)
            ]
        )

    def step(self, rows: Sequence[TrainingRow]) -> None:
        """One AdamW step."""
        rules = UpdateRules(
            UpdateSection(learning_rate=self.rules.learning_rate, warmup_steps=self.rules.warmup)
        )
        states, _ = update_members(self.arena.worker.stacked, {STUDENT: self.state}, rows, rules)
        self.state = states[STUDENT]

    def score(self, temperature: float, attempts: int, every: int = 1) -> _Figures:
        """Level -> right answers and whole thoughts of each held-out problem (of the first n-th of them)."""
        problems = self.held_out[: len(self.held_out) // every]
        cap = answer_cap(max(one.level for one in problems))
        rows, judged = self.answers(problems, attempts, temperature, cap, "score")
        found: dict[str, _Figures] = defaultdict(lambda: {"right": [], "whole": []})
        for index, one in enumerate(problems):
            span = slice(index * attempts, (index + 1) * attempts)
            level = found[str(one.level)]
            level["right"].append(sum(j.verdict is AttemptVerdict.CORRECT for j in judged[span]))
            level["whole"].append(sum(whole(one, row["completion"]) for row in rows[span]))
        return dict(found)


def play(oracle: Oracle, arm: str, frontiers: Sequence[int] | None) -> _Figures:
    """Train one arm; the curve, and the frontier at every update.

    Args:
        frontiers: what the following arm of this seed did; the supervised arm does the same.
    """
    rules, frontier = oracle.rules, oracle.rules.start
    curve: list[_Figures] = []
    visited: list[int] = []
    for update in range(1, rules.updates + 1):
        if arm == "supervised":
            assert frontiers is not None
            frontier = frontiers[update - 1]
            oracle.imitate(frontier)
            solved = None
        else:
            solved = oracle.practise(update, frontier, arm == "shuffled")
        visited.append(frontier)
        point: _Figures = {"update": update, "frontier": frontier, "solved": solved}
        if solved is not None and arm != "fixed" and solved >= rules.up:
            frontier = min(frontier + 1, rules.deepest)
        if update % rules.score_every == 0 and update < rules.updates:
            point["greedy"] = shares(oracle.score(0.0, 1, 4), 1)
        curve.append(point)
        print(json.dumps({"arm": arm, "seed": oracle.seed} | point), flush=True)
    return {"curve": curve, "frontiers": visited}


def shares(scores: _Figures, attempts: int) -> _Figures:
    """Level -> [share right, share with a whole thought]."""
    return {
        level: [round(float(np.mean(found[name])) / attempts, 3) for name in ("right", "whole")]
        for level, found in sorted(scores.items())
    }


def gain(
    before: _Figures, after: _Figures, levels: Sequence[int], name: str = "right"
) -> tuple[float, float]:
    """Mean paired gain over the problems of these levels, each level counting alike, with its standard error."""
    means, errors = [], []
    for level in levels:
        moved = np.subtract(after[str(level)][name], before[str(level)][name])
        means.append(float(moved.mean()))
        errors.append(float(moved.var(ddof=1)) / len(moved))
    return float(np.mean(means)), math.sqrt(sum(errors)) / len(levels)


def scores(oracle: Oracle) -> _Figures:
    """Greedy on all held-out problems, and 8 attempts at temperature 1 on the first part of them."""
    return {"greedy": oracle.score(0.0, 1), "sampled": oracle.score(1.0, SAMPLED_ATTEMPTS, SAMPLED_PART)}


def run(oracle: Oracle, arm: str, followed: Sequence[int] | None) -> _Figures:
    """Train one arm with one seed, and score it."""
    started = time.time()
    trained = play(oracle, arm, followed)
    return {
        "arm": arm,
        "seed": oracle.seed,
        "rules": asdict(oracle.rules),
        "after": scores(oracle),
        **trained,
        "base_digest": oracle.arena.worker.spec.digest,
        "code_revision": code_revision(),
        "seconds": round(time.time() - started),
    }


def summary(before: _Figures, result: _Figures) -> str:
    """One line for one result, beside the base's scores."""
    parts = [f"{result['arm']} {result['seed']}", f"frontier {result['frontiers'][-1]}"]
    for name, levels in (("edge", EDGE), ("beyond", BEYOND)):
        for what in ("right", "whole"):
            mean, error = gain(before["greedy"], result["after"]["greedy"], levels, what)
            parts.append(f"{name} {what} {mean:+.3f} ± {1.96 * error:.3f}")
    greedy = shares(result["after"]["greedy"], 1)
    parts.append(" ".join(f"{level}:{right:.2f}/{good:.2f}" for level, (right, good) in greedy.items()))
    return ", ".join(parts)


def append(file: Path, result: _Figures) -> None:
    """Add one result to the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "a") as stream:
        stream.write(json.dumps(result) + "\n")


def results(file: Path) -> list[_Figures]:
    """What the file holds."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def known_base(file: Path, digest: str) -> _Figures | None:
    """The scores of this base, where the file has them."""
    found = [one for one in results(file) if one["arm"] == "base" and one["base_digest"] == digest]
    return found[-1] if found else None


def table(file: Path) -> str:
    """Every arm and seed: greedy gains over the base at the edge and beyond, and scores at temperature 1."""
    found = results(file)
    before = next(one for one in found if one["arm"] == "base")["after"]
    lines = [
        "| arm | seed | frontier | edge, greedy | beyond, greedy | edge, whole | beyond, whole "
        "| edge, temperature 1 | beyond, temperature 1 |",
        "| --- |" + " --- |" * 8,
    ]
    for one in sorted(
        (one for one in found if one["arm"] != "base"), key=lambda r: (ARMS.index(r["arm"]), r["seed"])
    ):
        cells = [
            moved(before[how], one["after"][how], levels, what, count)
            for how, what, count in (("greedy", "right", 1), ("greedy", "whole", 1), ("sampled", "right", 8))
            for levels in (EDGE, BEYOND)
        ]
        lines.append(f"| {one['arm']} | {one['seed']} | {one['frontiers'][-1]} | {' | '.join(cells)} |")
    lines += [
        "",
        "| arm | seed | " + " | ".join(f"level {level}" for level in sorted(before["greedy"])) + " |",
    ]
    lines.append("| --- |" + " --- |" * (len(before["greedy"]) + 1))
    for one in found:
        levels = shares(one["after"]["greedy"], 1).values()
        cells = [f"{right:.2f} / {good:.2f}" for right, good in levels]
        lines.append(f"| {one['arm']} | {one.get('seed', '')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def moved(before: _Figures, after: _Figures, levels: Sequence[int], what: str, attempts: int) -> str:
    """Mean before and after, the paired gain and its 95 % half-width."""
    mean, error = gain(before, after, levels, what)
    first = float(np.mean([np.mean(before[str(level)][what]) for level in levels]))
    return f"{first / attempts:.2f} {mean / attempts:+.3f} ± {1.96 * error / attempts:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="?", choices=("run", "table"), default="run")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--updates", type=int, default=DEFAULT.updates)
    parser.add_argument("--learning-rate", type=float, default=DEFAULT.learning_rate)
    parser.add_argument("--start", type=int, default=DEFAULT.start)
    parser.add_argument("--base", type=Path, default=REPOSITORY / "base_model" / "frontier")
    parser.add_argument("--suite", type=Path, default=SUITE)
    parser.add_argument("--part", type=int, default=1, help="score on the first n-th part of the suite")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    if options.command == "table":
        print(table(options.output))
        return
    rules = replace(
        Rules(), updates=options.updates, learning_rate=options.learning_rate, start=options.start
    )
    held_out = read_suite(options.suite)
    held_out = held_out[: len(held_out) // options.part]
    with open_sandbox("auto", Limits(), workers=1) as sandbox:
        arena = Arena(options.base, "compact", sandbox)
        before = known_base(options.output, arena.worker.spec.digest)
        if before is None:
            untrained = Oracle(arena, held_out, rules, 0)
            before = {"arm": "base", "base_digest": arena.worker.spec.digest, "after": scores(untrained)}
            append(options.output, before)
        for seed in options.seeds:
            followed = None
            for arm in options.arms:
                result = run(Oracle(arena, held_out, rules, seed), arm, followed)
                followed = result["frontiers"] if arm == "following" else followed
                append(options.output, result)
                print(summary(before["after"], result), flush=True)


if __name__ == "__main__":
    main()
