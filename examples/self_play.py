"""The whole method in one file: teachers and students learn from each other, and breed.

    python examples/self_play.py
    python examples/self_play.py --generations 12 --members 4 --proposals 24 --attempts 8

One frozen base model carries a population of LoRA adapters. Teachers write small programs as problems, students
answer, a sandbox says what is right: no data set, no labels. Every member learns by policy gradients, ratings say
who meets whom, and children made in weight space replace the weakest. `populora run` takes the same steps and
commits each one to disk, with evaluation beside them; this file keeps nothing.

Shapes: P members, D numbers in an adapter, T tokens in a completion.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from functools import partial
from statistics import mean
from typing import Any

import numpy as np
import torch

from populora_core import (
    AdapterLayout,
    AttemptVerdict,
    Buffer,
    Config,
    Limits,
    Member,
    MemberState,
    ProposalVerdict,
    Request,
    Role,
    Sandbox,
    StackedAdapters,
    TorchSampler,
    TrainingRow,
    UpdateRules,
    advantages,
    check_proposals,
    dialect,
    draw_matches,
    heir,
    ids,
    judge_attempts,
    load_base,
    make_child,
    open_sandbox,
    plan_evolution,
    rating,
    student_reward,
    teacher_reward,
    update_members,
    verify_or_raise,
)

TYPES = ("code_o", "code_i", "code_f")  # predict the output, find an input, write the program
SETTINGS = Config.model_validate(
    {
        "evolve": {
            "every": 2,
            "fraction": 0.25,  # of each role, at least one
            "minimum_age": 2,  # a newborn is untried
            "crossover_probability": 0.5,
            "mutations": ("svd_perturbation", "layer_gaussian"),
            "crossovers": ("svd_mix", "average"),
        }
    }
)
RATING, REWARD = SETTINGS.rating, SETTINGS.grade
# A dictionary: a match, or one completion, with who wrote it, prompt and tokens, later its verdict and reward.
Row = Any


class SelfPlay:
    """A population on the bundled base; `generation` is one turn of its life."""

    def __init__(self, sandbox: Sandbox, members: int, proposals: int, attempts: int, seed: int) -> None:
        self.base, self.dialect, self.sandbox = load_base(SETTINGS.base.folder()), dialect("compact"), sandbox
        self.proposals, self.attempts, self.seed = proposals, attempts, seed
        self.layout = AdapterLayout.of(self.base.model, rank=8, alpha=16.0)
        # All members lie over one base, as a matrix [P, D]: one batch holds completions of several of them.
        self.stacked = StackedAdapters(self.base.model, self.layout)
        self.sampler = TorchSampler(self.stacked, self.base.stop_ids)
        self.known = Buffer(capacity=16384)  # every problem so far: references to show, duplicates to refuse
        self.members: dict[str, Member] = {}
        self.states: dict[str, MemberState] = {}  # weights and Adam's two moments, each [D]
        for role in (Role.TEACHER, Role.STUDENT):
            for slot in range(members):
                name = ids.member_id(role, slot, 0)
                self.members[name] = Member(name, role, slot, 0, (), "founder", RATING.mu, RATING.sigma, 0)
                # B = 0, so that a founder equals the base; A is random, so that they learn apart.
                self.states[name] = MemberState.newborn(self.layout.init_row(self.rng(name)))

    def generation(self, number: int) -> str:
        """match, propose, verify, solve, grade, update, evolve; what came of it, in a line."""
        matches = self.match(number)
        proposals = self.verify(self.propose(number, matches))
        attempts = self.grade(matches, proposals, self.solve(proposals))
        entropy = self.update(proposals, attempts)
        born = self.evolve(number)
        valid = mean(row["verdict"] is ProposalVerdict.VALID for row in proposals)
        solved = mean([row["verdict"] is AttemptVerdict.CORRECT for row in attempts] or [0])
        line = f"generation {number}: {valid:.0%} of proposals valid, {solved:.0%} of attempts correct"
        return "; ".join([f"{line}, entropy {entropy:.2f} nats", *born])

    def match(self, number: int) -> list[Row]:
        """Each teacher draws a student, near-even pairs first: where the result is open, both can learn."""
        teachers, students = self.of(Role.TEACHER), self.of(Role.STUDENT)
        # [teachers, students]: the probability that the student wins, by what the ratings believe.
        p = rating.win_probabilities([s.rating for s in students], [t.rating for t in teachers], RATING)
        # PFSP: drawn by weights p (1 - p), without replacement; the floor keeps every pair possible.
        pairs = draw_matches(p, SETTINGS.match, number, self.rng(number, "match"))
        return [
            {"teacher": teachers[t].member_id, "student": students[s].member_id, "p": p[t, s]}
            for t, s in ((pair.teacher, pair.student) for pair in pairs)
        ]

    def propose(self, number: int, matches: list[Row]) -> list[Row]:
        """Each teacher writes problems of every type, from scratch or after one or two earlier ones."""
        rows = []
        for match in matches:
            for place, kind in enumerate(TYPES * self.proposals):
                name = f"{number}-{match['teacher']}-{place}"
                rng = self.rng(name)
                prompt = self.dialect.propose_prompt(kind, self.known.sample(kind, int(rng.integers(3)), rng))
                rows.append(match | {"name": name, "problem_type": kind, "prompt": prompt})
        return self.complete("teacher", rows, max_tokens=160)

    def verify(self, proposals: list[Row]) -> list[Row]:
        """A proposal is a problem if its program runs, twice to the same outputs, and was never written before."""
        run_twice = partial(verify_or_raise, self.sandbox, determinism=True)
        # In the random order of the matches: no teacher is always the first to write a program.
        for row, check in zip(proposals, check_proposals(self.dialect, run_twice, proposals), strict=True):
            row |= {"verdict": check.verdict, "problem": None}
            if check.draft is not None and check.verdict is ProposalVerdict.VALID:
                problem = check.draft.problem(row["name"], check.outputs)
                new = self.known.add(problem)
                row |= {"problem": problem} if new else {"verdict": ProposalVerdict.DUPLICATE}
        return proposals

    def solve(self, proposals: list[Row]) -> list[Row]:
        """The matched student answers each problem several times: that share tells how hard it is for this one."""
        rows = []
        for row in (row for row in proposals if row["problem"]):
            prompt = self.dialect.solve_prompt(row["problem"])
            asked = {key: row[key] for key in ("student", "problem_type", "problem")} | {"prompt": prompt}
            rows += [asked | {"name": f"{row['name']}-{sample}"} for sample in range(self.attempts)]
        return self.complete("student", rows, max_tokens=96)

    def grade(self, matches: list[Row], proposals: list[Row], attempts: list[Row]) -> list[Row]:
        """The sandbox judges the answers; rewards and ratings follow from its verdicts alone."""
        run = partial(verify_or_raise, self.sandbox, determinism=False)
        judgements = judge_attempts(self.dialect, run, [(row["problem"], row) for row in attempts])
        correct: dict[str, list[bool]] = defaultdict(list)
        for row, judged in zip(attempts, judgements, strict=True):
            row |= {"verdict": judged.verdict, "reward": student_reward(judged.verdict, REWARD)}
            if judged.verdict is not AttemptVerdict.INFRASTRUCTURE:  # no one's fault, so it counts nowhere
                correct[row["problem"].problem_id].append(judged.verdict is AttemptVerdict.CORRECT)
        solve_rate = {problem: mean(answers) for problem, answers in correct.items()}
        for row in proposals:  # 1 - p, but 0 where p = 0: hard is well paid, impossible is not
            row["reward"] = teacher_reward(row["verdict"], solve_rate.get(row["name"]), REWARD)
        played = []
        for match in matches:
            own = [row["name"] for row in proposals if row["problem"] and row["teacher"] == match["teacher"]]
            # Only what was solved at all counts, or a teacher would win by writing the impossible.
            solved = [solve_rate[name] for name in own if solve_rate.get(name)]
            mean_rate = mean(solved) if solved else None
            # A student wins by solving more than the ratings predicted, whatever that was.
            outcome = rating.match_outcome(mean_rate, n_valid=len(own), n_lost=0, p_student_win=match["p"])
            played.append(rating.Match(match["teacher"], match["student"], outcome))
        rated = rating.rate(played, {name: each.rating for name, each in self.members.items()}, RATING)
        for name, new in rated.items():
            self.members[name] = replace(self.members[name], mu=new.mu, sigma=new.sigma)
        return attempts

    def update(self, proposals: list[Row], attempts: list[Row]) -> float:
        """One clipped policy-gradient step for every member, all in one pass over the base; the mean entropy."""
        training = []
        for role, rows in (("teacher", proposals), ("student", attempts)):
            cohorts = [f"{row[role]} {row['problem_type']}" for row in rows]
            # The baseline is the mean over what was asked alike: the answers to one problem, so that a hard one
            # teaches as much as an easy one; for proposals, those of one teacher and type.
            groups = cohorts if role == "teacher" else [row["problem"].problem_id for row in rows]
            rewards = [row["reward"] for row in rows]
            values = advantages("reinforce_pp", rewards, groups, cohorts, std_floor=0.1, clip=5.0)
            training += [
                TrainingRow(row[role], row["prompt_ids"], row["completion_ids"], row["logprobs"], value)
                for row, value in zip(rows, values, strict=True)
            ]
        # Gradients are a matrix [P, D], too: a completion moves its own member's row and nothing else.
        self.states, stats = update_members(self.stacked, self.states, training, UpdateRules(SETTINGS.update))
        return mean([each.entropy for each in stats.values() if each.entropy is not None] or [0.0])

    def evolve(self, number: int) -> list[str]:
        """Replace the weakest of each role by children of the others; return who was born, and of whom."""
        born = []
        # mu - 3 sigma, what a member almost surely can do: luck in one match does not outrank a long record.
        fitness = {name: rating.lower_bound(member.rating) for name, member in self.members.items()}
        for role in (Role.TEACHER, Role.STUDENT):
            rng, eligible = self.rng(number, role), dict.fromkeys(fitness, True)
            for plan in plan_evolution(number, self.of(role), fitness, eligible, SETTINGS.evolve, rng):
                # Module -> (A [rank, in], B [out, rank]). Operators work on the product B A, which is the policy:
                # equal policies may have any factors, so that mixing these number by number would mean nothing.
                parents = [self.states[name] for name in plan.parent_ids]
                views = [self.layout.views(parent.weights) for parent in parents]
                factors, _ = make_child(plan.operator, views, rng, self.layout.scale)
                # As good as its parents on average, as uncertain as a founder, with the moments that they learnt with.
                new = rating.newborn_rating([self.members[name].rating for name in plan.parent_ids], RATING)
                name = ids.member_id(role, plan.slot, number)
                made = (plan.parent_ids, plan.operator, new.mu, new.sigma, number)
                self.members[name] = Member(name, role, plan.slot, number, *made)
                self.states[name] = heir(self.layout, self.layout.row(factors), parents)
                del self.members[plan.removed_id], self.states[plan.removed_id]
                born.append(f"{name} = {plan.operator}({', '.join(plan.parent_ids)})")
        return born

    def complete(self, role: str, rows: list[Row], max_tokens: int) -> list[Row]:
        """One completion for each row by the member in its `role`; members share the batches."""
        self.stacked.load({name: state.weights for name, state in self.states.items()})
        requests = [
            Request(
                row[role],
                tuple(self.dialect.encode(self.base.tokenizer, row["prompt"])),
                seed=ids.draw_seed(self.seed, row["name"]),  # a stream of its own: no batch decides a token
                max_tokens=max_tokens,
            )
            for row in rows
        ]
        for row, asked, done in zip(rows, requests, self.sampler.generate(requests), strict=True):
            words = [token for token in done.token_ids if token not in self.base.stop_ids]
            row |= {
                "prompt_ids": asked.prompt_ids,
                "completion_ids": done.token_ids,  # [T]
                "logprobs": done.logprobs,  # [T], as sampled: the ratio that the update clips starts at 1
                "completion": self.base.tokenizer.decode(words),
                "finish_reason": done.finish_reason,  # cut off is a format error, whatever it says
            }
        return rows

    def of(self, role: Role) -> list[Member]:
        return [member for member in self.members.values() if member.role is role]

    def rng(self, *names: object) -> np.random.Generator:
        return ids.generator(self.seed, *names)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = {"members": 4, "proposals": 8, "attempts": 4, "seed": 0}  # members of a role, proposals of a type
    for name, default in {"generations": 8, **sizes}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    chosen = vars(parser.parse_args(arguments))
    torch.set_num_threads(1)  # matrices of the bundled base are too small to share
    with open_sandbox("auto", Limits(), workers=2) as sandbox:
        play = SelfPlay(sandbox, **{name: chosen[name] for name in sizes})
        for number in range(1, chosen["generations"] + 1):
            print(play.generation(number), flush=True)


if __name__ == "__main__":
    main()
