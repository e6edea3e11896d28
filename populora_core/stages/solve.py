"""solve: the matched student answers each problem of its teacher, and its share of the anchors, G times.

A problem that none of these attempts solved may be answered again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from populora_core.benchmarks.anchors import PEERS
from populora_core.compute.work import Prompt
from populora_core.population.islands import island_of, island_of_problem
from populora_core.population.pbt import own_or
from populora_core.problems.grading import Completed, judge_attempts
from populora_core.problems.model import Problem
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.stages.context import StageContext
from populora_core.stages.history import PROBLEM
from populora_core.stages.sampling import generate
from populora_core.store.rows import MatchRow, ProblemRow
from populora_core.support import ids


def run(ctx: StageContext) -> None:
    settings = ctx.config.solve
    asked = _asked(ctx)
    rows, prompts = _attempts(ctx, asked, range(settings.attempts))
    answers = generate(ctx, prompts)
    if settings.extra_attempts and answers is not None:
        left = _unsolved(ctx, asked, answers)
        more, prompts = _attempts(ctx, left, range(settings.attempts, settings.most_attempts))
        further = generate(ctx, prompts)
        if further is not None:
            rows, answers = rows + more, pa.concat_tables([answers, further])
    ctx.write("attempts", rows, answers)


def _asked(ctx: StageContext) -> list[tuple[Problem, MatchRow]]:
    """Each problem with the match whose student answers it."""
    matches = ctx.rows("matches", "match_id", "teacher_id", "student_id")
    match_of = {match["teacher_id"]: match for match in matches}
    # Anchors have no teacher: they are dealt out among the students that learn from them, not those of the past.
    living, islands = {member.member_id for member in ctx.members()}, ctx.config.population.islands
    learning = [match for match in matches if match["student_id"] in living] or matches
    weights, phases = _weights(ctx, learning)
    turns = [
        in_turns(
            {
                match["match_id"]: weights[match["match_id"]]
                for match in learning
                if island_of(ids.slot_of(match["student_id"]), islands) == island
            },
            phases,
        )
        for island in range(islands)
    ]
    by_id = {match["match_id"]: match for match in matches}

    student = {ids.slot_of(match["student_id"]): match for match in reversed(matches)}

    def match_for(row: ProblemRow) -> MatchRow:
        if row["teacher_id"] != ids.ANCHOR:
            return match_of[row["teacher_id"]]
        if ctx.config.anchors.source == PEERS:  # each was drawn for one student
            return student[island_of_problem(row["problem_id"], ids.ANCHOR, ctx.config.population.students)]
        return by_id[next(turns[island_of_problem(row["problem_id"], ids.ANCHOR, islands)])]

    return [(Problem.of(row), match_for(row)) for row in ctx.rows("problems", *PROBLEM, "teacher_id")]


def _weights(ctx: StageContext, matches: Sequence[MatchRow]) -> tuple[dict[str, float], dict[str, float]]:
    """The weight and the phase of each match when anchors are dealt out; matches of one student share its weight."""
    if "replay" not in ctx.config.pbt.own:
        return {match["match_id"]: 1.0 for match in matches}, {}
    own, asked = ctx.hyperparameters(), Counter(match["student_id"] for match in matches)
    weights = {
        match["match_id"]: own_or(own, match["student_id"], "replay", 1.0) / asked[match["student_id"]]
        for match in matches
    }
    return weights, {name: ctx.rng("replay", name).random() for name in weights}


def in_turns(weights: Mapping[str, float], phases: Mapping[str, float]) -> Iterator[str]:
    """Yield names for ever, each as often as its share of the weights: at every turn who is furthest behind.

    Equal weights take turns in order.

    Args:
        phases: name -> the part of a turn, from 0 to 1, by which it comes earlier; drawn at random, they give a light
            name its share of few turns in the mean.
    """
    had = dict.fromkeys(weights, 0)
    while had:
        name = min(had, key=lambda name: (had[name] + 1 - phases.get(name, 0.0)) / weights[name])
        had[name] += 1
        yield name


def _attempts(
    ctx: StageContext, asked: Sequence[tuple[Problem, MatchRow]], numbers: Iterable[int]
) -> tuple[list[dict[str, object]], list[Prompt]]:
    """The attempts of these numbers at each problem, by the student of its match, before they are sampled; prompts."""
    settings, own = ctx.config.solve, ctx.hyperparameters()
    rows: list[dict[str, object]] = []
    prompts: list[Prompt] = []
    for problem, match in asked:
        text = ctx.dialect.solve_prompt(problem)
        for sample_index in numbers:
            attempt_id = ids.attempt_id(problem.problem_id, sample_index)
            rows.append(
                {
                    "generation": ctx.generation,
                    "attempt_id": attempt_id,
                    "problem_id": problem.problem_id,
                    "match_id": match["match_id"],
                    "student_id": match["student_id"],
                    "sample_index": sample_index,
                }
            )
            prompts.append(
                Prompt(
                    member_id=match["student_id"],
                    text=text,
                    seed=ids.draw_seed(ctx.seed, attempt_id, "tokens"),
                    temperature=own_or(own, match["student_id"], "temperature", settings.temperature),
                    top_p=settings.top_p,
                    max_tokens=settings.max_tokens,
                )
            )
    return rows, prompts


def _unsolved(
    ctx: StageContext, asked: Sequence[tuple[Problem, MatchRow]], answers: pa.Table
) -> list[tuple[Problem, MatchRow]]:
    """The problems without a correct attempt among their first, judged as `grade` will judge them."""
    problems = (problem for problem, _ in asked for _ in range(ctx.config.solve.attempts))
    written: list[Completed] = answers.select(["completion", "finish_reason"]).to_pylist()
    attempts = list(zip(problems, written, strict=True))
    judged = judge_attempts(
        ctx.dialect, ctx.sandbox_runner(determinism=False), attempts, ctx.config.grade.cut_answers
    )
    solved = {
        problem.problem_id
        for (problem, _), judgement in zip(attempts, judged, strict=True)
        if judgement.verdict is AttemptVerdict.CORRECT
    }
    return [each for each in asked if each[0].problem_id not in solved]
