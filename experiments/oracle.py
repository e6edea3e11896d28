"""Test whether practice can push the frontier base beyond its corpus: students on fresh problems of the grammar.

    python -m experiments.oracle --arms following fixed supervised shuffled --seeds 0 1 2
    python -m experiments.gains

Every arm trains a newborn LoRA student with AdamW on fresh `code_o` problems, half of a batch at the frontier, a
quarter just below, a quarter from all levels below that, nearer ones more often.

following: the frontier moves up once half of its attempts in a batch are right, and enough of those just below.
fixed: the frontier stays where it starts.
shuffled: as following, with the rewards shuffled within the batch; what drift alone does.
supervised: the thoughts and answers that the rule gives, to the very problems of the following arm of that seed.

Each result, with its scores on the suite, is appended to the output file, after those of the base itself.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from base_model.steps.documents import answer
from base_model.steps.grammar import SolvedProgram, sample
from base_model.steps.measure import weights_sha256
from base_model.steps.problems import answer_cap, output_problem, whole
from base_model.steps.suite import SUITE, read_suite
from experiments.gains import ARMS, RESULTS, SAMPLED_ATTEMPTS, Scores, shares, summary
from experiments.lines import append_lines, parser_of, read_lines
from populora_core.compute.arena import Arena, SamplingRules
from populora_core.config.sections import GradeSection, UpdateSection
from populora_core.learner.estimators import reinforce_pp
from populora_core.learner.rows import TrainingRow, UpdateRules
from populora_core.learner.update import update_members
from populora_core.model.state import MemberState
from populora_core.problems.grading import AttemptJudgement
from populora_core.problems.rewards import student_reward
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sampler.requests import Text
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.store.rows import SampledRow
from populora_core.support import ids
from populora_core.support.aliases import Row
from populora_core.support.revision import code_revision
from populora_core.support.shipped import REPOSITORY

STUDENT = "student"
SAMPLED_PART = 4


@dataclass(frozen=True, slots=True)
class Rules:
    """Length and curriculum of a student's training.

    Attributes:
        start: the level where the frontier starts.
        deepest: the level that the frontier never passes.
        up: the frontier moves up once this share of its attempts in a batch is right,
        below: and this share of those one level below.
        score_every: updates between greedy scores on a part of the suite.
    """

    updates: int = 100
    problems: int = 32
    attempts: int = 8
    learning_rate: float = 2e-3
    warmup: int = 5
    start: int = 4
    deepest: int = 8
    up: float = 0.5
    below: float = 0.7
    score_every: int = 20

    def next_frontier(self, frontier: int, solved: float, below: float) -> int:
        """The frontier after these shares were right at it and just below it."""
        onward = solved >= self.up and below >= self.below
        return min(frontier + onward, self.deepest)


class Oracle:
    """A student in one arm with one seed."""

    def __init__(self, arena: Arena, held_out: Sequence[SolvedProgram], rules: Rules, seed: int) -> None:
        self.arena, self.held_out, self.rules, self.seed = arena, held_out, rules, seed
        self.update = UpdateRules(UpdateSection(learning_rate=rules.learning_rate, warmup_steps=rules.warmup))
        self.state: MemberState = arena.newborn(seed)
        self.source = ids.generator(seed, "oracle problems")
        self.shuffler = ids.generator(seed, "oracle shuffle")

    def batch(self, frontier: int) -> list[SolvedProgram]:
        """Fresh problems: half at the frontier, a quarter just below, a quarter from all levels below that."""
        found = []
        for index in range(self.rules.problems):
            level = (frontier, frontier, frontier - 1, self._replayed(frontier - 2))[index % 4]
            found.append(sample(self.source, level))
        return found

    def _replayed(self, highest: int) -> int:
        """A level up to this one, nearer ones more often: the larger of two draws."""
        return 1 + int(highest * max(self.source.random(), self.source.random()))

    def practise(self, update: int, frontier: int, shuffled: bool) -> tuple[float, float]:
        """One step on the student's own answers; the shares of right ones at the frontier and just below."""
        problems, attempts = self.batch(frontier), self.rules.attempts
        rows, judged = self._answers(problems, attempts, 1.0, answer_cap(frontier), update)
        rewards = [student_reward(one.verdict, GradeSection()) for one in judged]
        if shuffled:
            rewards = [rewards[index] for index in self.shuffler.permutation(len(rewards))]
        groups = [str(index // attempts) for index in range(len(rows))]
        self._step(training_rows(STUDENT, rows, reinforce_pp(rewards, groups, [STUDENT] * len(rows))))
        right = np.array([one.verdict is AttemptVerdict.CORRECT for one in judged]).reshape(-1, attempts)
        levels = np.array([one.level for one in problems])
        return float(right[levels == frontier].mean()), float(right[levels == frontier - 1].mean())

    def imitate(self, frontier: int) -> None:
        """One step on the rule's own answers: the gradient of their mean log-probability per token."""
        self.arena.load({STUDENT: self.state})
        texts = [self.rule_text(one) for one in self.batch(frontier)]
        # At the present log-probabilities the clipped ratio is 1, and its gradient is that of the likelihood.
        scored = self.arena.worker.sampler.score(texts)
        self._step(
            [
                TrainingRow(STUDENT, text.prompt_ids, text.completion_ids, tuple(logprobs), 1.0)
                for text, logprobs in zip(texts, scored, strict=True)
            ]
        )

    def scores(self) -> dict[str, Scores]:
        """Greedy on all held-out problems, and 8 attempts at temperature 1 on the first part of them."""
        part = self.held_out[: len(self.held_out) // SAMPLED_PART]
        return {
            "greedy": self.score(0.0, 1, self.held_out),
            "sampled": self.score(1.0, SAMPLED_ATTEMPTS, part),
        }

    def score(self, temperature: float, attempts: int, problems: Sequence[SolvedProgram]) -> Scores:
        """Level -> how many answers, and how many whole thoughts, are right for each problem, a digit each."""
        cap = answer_cap(max(one.level for one in problems))
        rows, judged = self._answers(problems, attempts, temperature, cap, "score")
        found: Scores = defaultdict(lambda: {"right": "", "whole": ""})
        for index, one in enumerate(problems):
            span = slice(index * attempts, (index + 1) * attempts)
            level = found[str(one.level)]
            level["right"] += str(sum(j.verdict is AttemptVerdict.CORRECT for j in judged[span]))
            level["whole"] += str(sum(whole(one, row["completion"]) for row in rows[span]))
        return dict(found)

    def _answers(
        self,
        problems: Sequence[SolvedProgram],
        attempts: int,
        temperature: float,
        cap: int,
        label: str | int,
    ) -> tuple[list[SampledRow], list[AttemptJudgement]]:
        """Completions with their judgements, problem by problem."""
        self.arena.load({STUDENT: self.state})
        asked = [output_problem(one, str(index)) for index, one in enumerate(problems)]
        rules = SamplingRules(temperature=temperature, answer_tokens=cap)
        return self.arena.solve(STUDENT, asked, attempts, ids.draw_seed(self.seed, label), rules)

    def rule_text(self, found: SolvedProgram) -> Text:
        """Prompt and rule's answer, tokenised."""
        tokenizer = self.arena.worker.vocabulary.tokenizer
        prompt = self.arena.dialect.solve_prompt(output_problem(found, ""))
        return Text(
            STUDENT, tuple(tokenizer(prompt)["input_ids"]), tuple(tokenizer(answer(found))["input_ids"])
        )

    def _step(self, rows: Sequence[TrainingRow]) -> None:
        """One AdamW step."""
        states, _ = update_members(self.arena.worker.stacked, {STUDENT: self.state}, rows, self.update)
        self.state = states[STUDENT]


def training_rows(
    member: str, rows: Sequence[SampledRow], advantages: Sequence[float | None]
) -> list[TrainingRow]:
    """Training rows of a member from its completions, one advantage each."""
    return [
        TrainingRow(
            member, tuple(row["prompt_ids"]), tuple(row["completion_ids"]), tuple(row["logprobs"]), advantage
        )
        for row, advantage in zip(rows, advantages, strict=True)
    ]


def play(oracle: Oracle, arm: str, followed: Sequence[int] | None) -> list[Row]:
    """Train one arm; the frontier of every update, and how much was solved.

    Args:
        followed: the frontiers of this seed's following arm, which the supervised arm takes over.
    """
    rules, frontier = oracle.rules, oracle.rules.start
    curve: list[Row] = []
    for update in range(1, rules.updates + 1):
        point: Row = {"update": update, "frontier": frontier}
        if arm == "supervised":
            if followed is None:
                raise ValueError("the supervised arm needs the following arm of its seed in the results")
            point["frontier"] = followed[update - 1]
            oracle.imitate(point["frontier"])
        else:
            solved, below = oracle.practise(update, frontier, arm == "shuffled")
            point |= {"solved": solved, "below": below}
            frontier = frontier if arm == "fixed" else rules.next_frontier(frontier, solved, below)
        if update % rules.score_every == 0 and update < rules.updates:
            part = oracle.held_out[: len(oracle.held_out) // SAMPLED_PART]
            point["greedy"] = shares(oracle.score(0.0, 1, part), 1)
        curve.append(point)
        print(json.dumps({"arm": arm, "seed": oracle.seed} | point), flush=True)
    return curve


def train(oracle: Oracle, arm: str, followed: Sequence[int] | None) -> Row:
    """Train one arm with one seed, and score it."""
    started = time.monotonic()
    curve = play(oracle, arm, followed)
    return {
        "arm": arm,
        "seed": oracle.seed,
        "rules": asdict(oracle.rules),
        "after": oracle.scores(),
        "curve": curve,
        "base_sha256": weights_sha256(oracle.arena.worker.spec.base.folder()),
        "code_revision": code_revision(),
        "seconds": round(time.monotonic() - started),
    }


def base_result(file: Path, arena: Arena, held_out: Sequence[SolvedProgram]) -> Row:
    """The scores of the base itself; measured and added to the file where it has none."""
    sha256 = weights_sha256(arena.worker.spec.base.folder())
    for known in read_lines(file):
        if known["arm"] == "base" and known["base_sha256"] == sha256:
            return known
    result = {"arm": "base", "base_sha256": sha256, "after": Oracle(arena, held_out, Rules(), 0).scores()}
    append_lines(file, [result])
    return result


def frontiers(results: Iterable[Row], seed: int) -> list[int] | None:
    """The frontier at every update of the last following arm with this seed, or None without one."""
    found = [one["curve"] for one in results if one["arm"] == "following" and one["seed"] == seed]
    return [point["frontier"] for point in found[-1]] if found else None


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--updates", type=int, default=Rules().updates)
    parser.add_argument("--base", type=Path, default=REPOSITORY / "base_model" / "frontier")
    parser.add_argument("--part", type=int, default=1, help="score on the first n-th part of the suite")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    suite = read_suite(SUITE)
    held_out = suite[: len(suite) // options.part]
    with open_sandbox("auto", Limits(), workers=1) as sandbox:
        arena = Arena(options.base, "compact", sandbox)
        base = base_result(options.output, arena, held_out)
        for seed in options.seeds:
            for arm in options.arms:
                followed = frontiers(read_lines(options.output), seed)
                result = train(Oracle(arena, held_out, Rules(options.updates), seed), arm, followed)
                append_lines(options.output, [result])
                print(summary(base, result), flush=True)


if __name__ == "__main__":
    main()
