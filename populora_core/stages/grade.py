"""grade: the sandbox judges the answers; rewards, match outcomes and new ratings follow from its verdicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from populora_core.population.pbt import own_or
from populora_core.population.rating import Match, Outcome, Rating, lower_bound, match_outcome, rate
from populora_core.problems.grading import judge_attempts
from populora_core.problems.model import Problem
from populora_core.problems.rewards import (
    GradedProblem,
    fitness_sharing,
    look_at_problems,
    student_reward,
    teacher_reward,
)
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.stages.adapters import past_members
from populora_core.stages.context import StageContext
from populora_core.stages.history import PROBLEM
from populora_core.store.rows import (
    AttemptGradeRow,
    AttemptRow,
    MatchResultRow,
    ProblemResultRow,
    ProblemRow,
    ProposalCheckRow,
    ProposalGradeRow,
    ProposalRow,
    RatingRow,
)
from populora_core.support.ids import slot_of

SUCCESS = {ProposalVerdict.VALID.value, AttemptVerdict.CORRECT.value}
LOST = {AttemptVerdict.INFRASTRUCTURE.value}
"""The verdicts of a member of whom the sandbox judged nothing."""


def run(ctx: StageContext) -> None:
    ctx.extra["sandbox"] = ctx.session.sandbox.identity
    # All columns only where they are asked for: a past that a fork took over may lack newer ones.
    inherited = (own.teacher_reward for own in ctx.hyperparameters().values())
    paid_by = {*ctx.config.grade.teacher_rewards, *filter(None, inherited)}
    columns = () if look_at_problems(paid_by) else (*PROBLEM, "lines_of_code", "chance")
    verified = {row["problem_id"]: row for row in ctx.rows("problems", *columns, newest=1)}
    problems = {problem_id: Problem.of(row) for problem_id, row in verified.items()}
    attempts = ctx.rows("attempts", "attempt_id", "problem_id", "student_id", "completion", "finish_reason")
    judgements = judge_attempts(
        ctx.dialect,
        ctx.sandbox_runner(determinism=False),
        [(problems[attempt["problem_id"]], attempt) for attempt in attempts],
        ctx.config.grade.cut_answers,
    )
    grades: list[AttemptGradeRow] = [
        {
            "attempt_id": attempt["attempt_id"],
            "answer": judgement.answer,
            "verdict": judgement.verdict,
            "reward": student_reward(judgement.verdict, ctx.config.grade),
        }
        for attempt, judgement in zip(attempts, judgements, strict=True)
    ]
    graded = _graded(verified, attempts, grades)
    checks = {row["proposal_id"]: row for row in ctx.rows("proposal_checks")}
    proposals = ctx.rows("proposals", "proposal_id", "teacher_id", "match_id")
    outcomes = _match_results(ctx, proposals, checks, graded)

    ctx.write("attempt_grades", grades)
    ctx.write("problem_results", _problem_results(graded))
    ctx.write("proposal_grades", _proposal_grades(ctx, proposals, checks, graded))
    ctx.write("match_results", outcomes.values())
    ctx.write("ratings", _ratings(ctx, outcomes, proposals, checks, attempts, grades))


def _graded(
    verified: Mapping[str, ProblemRow], attempts: Iterable[AttemptRow], grades: Iterable[AttemptGradeRow]
) -> dict[str, GradedProblem]:
    judged: dict[str, list[AttemptGradeRow]] = {problem_id: [] for problem_id in verified}
    for attempt, grade in zip(attempts, grades, strict=True):
        if grade["verdict"] != AttemptVerdict.INFRASTRUCTURE:
            judged[attempt["problem_id"]].append(grade)
    return {problem_id: GradedProblem(row, judged[problem_id]) for problem_id, row in verified.items()}


def _problem_results(graded: Mapping[str, GradedProblem]) -> list[ProblemResultRow]:
    return [
        {"problem_id": problem_id, "n_attempts": len(each.attempts), "solve_rate": each.solve_rate}
        for problem_id, each in graded.items()
    ]


def _proposal_grades(
    ctx: StageContext,
    proposals: Sequence[ProposalRow],
    checks: Mapping[str, ProposalCheckRow],
    graded: Mapping[str, GradedProblem],
) -> list[ProposalGradeRow]:
    rewards, crowds, lengths, opening = [], [], [], _in_new_cells(ctx)
    own = ctx.hyperparameters()
    for proposal in proposals:
        check = checks[proposal["proposal_id"]]
        problem_id = check["problem_id"]
        problem = graded[problem_id] if problem_id else None
        reward = teacher_reward(
            ProposalVerdict(check["verdict"]),
            problem.solve_rate if problem else None,
            ctx.config.grade,
            chance=problem.row["chance"] if problem else 0.0,
            new_cell=problem_id in opening,
            attempts=len(problem.attempts) if problem else 0,
            slot=slot_of(proposal["teacher_id"]),
            own=own_or(own, proposal["teacher_id"], "teacher_reward", None),
            problem=problem,
        )
        rewards.append(reward)
        crowds.append((proposal["teacher_id"], problem.row["problem_type"] if problem else None))
        lengths.append(problem.row["lines_of_code"] if problem else None)
    return [
        {"proposal_id": proposal["proposal_id"], "reward": reward}
        for proposal, reward in zip(
            proposals, fitness_sharing(rewards, lengths, crowds, ctx.config.grade.niche), strict=True
        )
    ]


def _in_new_cells(ctx: StageContext) -> set[str]:
    """The generation's problems whose cell no problem of their type had in the window before; all that share it.

    None where that pays nothing.
    """
    rules = ctx.config.grade
    if not rules.new_cell_bonus:
        return set()
    rows = ctx.rows(
        "problems", "problem_id", "generation", "problem_type", "cell", newest=rules.new_cell_window + 1
    )
    seen = {(row["problem_type"], row["cell"]) for row in rows if row["generation"] < ctx.generation}
    return {
        row["problem_id"]
        for row in rows
        if row["generation"] == ctx.generation and (row["problem_type"], row["cell"]) not in seen
    }


def _match_results(
    ctx: StageContext,
    proposals: Iterable[ProposalRow],
    checks: Mapping[str, ProposalCheckRow],
    graded: Mapping[str, GradedProblem],
) -> dict[str, MatchResultRow]:
    """Outcome of each match, over the problems that were solved at least once."""
    by_match: dict[str, list[ProposalCheckRow]] = defaultdict(list)
    for proposal in proposals:
        by_match[proposal["match_id"]].append(checks[proposal["proposal_id"]])
    rows: dict[str, MatchResultRow] = {}
    for match in ctx.rows("matches"):
        played = by_match[match["match_id"]]
        rates = [graded[c["problem_id"]].solve_rate for c in played if c["problem_id"]]
        solved = [rate for rate in rates if rate is not None and rate > 0.0]
        solve_rate = sum(solved) / len(solved) if solved else None
        outcome = match_outcome(
            solve_rate,
            n_valid=len(rates),
            n_lost=sum(c["verdict"] == ProposalVerdict.INFRASTRUCTURE for c in played),
            p_student_win=match["p_student_win"],
            draw_band=ctx.config.rating.draw_band,
        )
        if match["teacher_id"] == match["student_id"]:
            outcome = Outcome.VOID  # self-play has no winner: what one side gains the other, itself, loses
        rows[match["match_id"]] = {
            "match_id": match["match_id"],
            "outcome": outcome,
            "solve_rate": solve_rate,
            "n_problems": len(solved),
        }
    return rows


def _ratings(
    ctx: StageContext,
    outcomes: Mapping[str, MatchResultRow],
    proposals: Iterable[ProposalRow],
    checks: Mapping[str, ProposalCheckRow],
    attempts: Iterable[AttemptRow],
    grades: Iterable[AttemptGradeRow],
) -> list[RatingRow]:
    """Fold the matches in stored order; a member without success in the window is not eligible."""
    students = {match["match_id"]: match["student_id"] for match in ctx.rows("matches")}
    verdicts: dict[str, set[str]] = defaultdict(set)
    for proposal in proposals:
        verdict = checks[proposal["proposal_id"]]["verdict"]
        verdicts[proposal["teacher_id"]].add(verdict)
        if verdict in LOST:  # which may have been the one to solve
            verdicts[students[proposal["match_id"]]].add(verdict)
    for attempt, grade in zip(attempts, grades, strict=True):
        verdicts[attempt["student_id"]].add(grade["verdict"])
    members = ctx.members()
    matches = [
        Match(match["teacher_id"], match["student_id"], Outcome(outcomes[match["match_id"]]["outcome"]))
        for match in ctx.rows("matches")
    ]
    before = {member.member_id: member.rating for member in members}
    players = {player for match in matches for player in (match.teacher_id, match.student_id)}
    past = past_members(ctx, players - before.keys())  # whose ratings stay: nothing more is written of them
    before |= {name: Rating(row["mu"], row["sigma"]) for name, row in past.items()}
    ratings = rate(matches, before, ctx.config.rating)
    rows: list[RatingRow] = []
    for member in members:
        rating = ratings[member.member_id]
        last = member.productive_generation
        found = verdicts[member.member_id]
        if found & SUCCESS:
            last = ctx.generation
        elif member.member_id not in players or found == LOST:  # it could not have had a success
            last += 1
        rows.append(
            {
                "generation": ctx.generation,
                "member_id": member.member_id,
                "role": member.role,
                "mu": rating.mu,
                "sigma": rating.sigma,
                "fitness": lower_bound(rating),
                "eligible": ctx.generation - last < ctx.config.grade.eligible_window,
                "productive_generation": last,
            }
        )
    return rows
