"""A run audited from the outside: rewards and ratings follow from verdicts, chances and match rows alone."""

from __future__ import annotations

from collections import defaultdict
from math import comb
from pathlib import Path

import audited_run
import pytest
import trueskill
from audited_run import CHOSEN, within
from conftest import ask

from populora_core.config.load import Config
from populora_core.config.sections import GradeSection
from populora_core.problems.rewards import TEACHER_REWARDS, GradedProblem, ProblemReward
from populora_core.support import ids

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]
audited, config, generations = audited_run.audited, audited_run.config, audited_run.generations

PAYS = {
    "one_minus_p": lambda p: 1.0 - p,
    "learnability": lambda p: 4.0 * p * (1.0 - p),
    "zone": lambda p: min(p, 1.0 - p),
    "azr": lambda p: 1.0 - p,
}


def payment(p: float, n: int, c: float, rules: GradeSection, new_cell: bool, problem: GradedProblem) -> float:
    """The pay of a valid problem with n attempts, solve rate p and chance c."""
    if rules.chance == "subtract":
        p = max(0.0, (p - c) / (1.0 - c)) if c < 1.0 else 0.0
    if rules.chance == "reject":
        fewer = sum(comb(n, right) * c**right * (1.0 - c) ** (n - right) for right in range(round(p * n)))
        p = p if 1.0 - fewer <= 0.2 else 0.0
    ends = {0.0: rules.teacher_unsolved, 1.0: rules.teacher_always_solved}
    ends = dict.fromkeys(ends, -0.5) if rules.teacher_reward == "azr" else ends
    bonus = rules.new_cell_bonus if new_cell else 0.0
    if pay := PAYS.get(rules.teacher_reward):
        paid = ends.get(p, pay(p) + bonus)
    else:  # another package's function says what it pays at the ends too, which no bonus raises
        own = TEACHER_REWARDS.find(rules.teacher_reward)
        paid = own(p, rules, problem) if isinstance(own, ProblemReward) else own(p, rules)
        paid += bonus if 0.0 < p < 1.0 else 0.0
    return paid * (1.0 - c) ** 2 if rules.chance == "discount" and paid > 0.0 else paid


def graded(audited: Path) -> dict[str, GradedProblem]:
    """Proposal -> the problem that it became."""
    attempts: dict[str, list[dict[str, object]]] = defaultdict(list)
    for attempt in ask(audited, "FROM attempts WHERE verdict <> 'infrastructure' ORDER BY attempt_id"):
        attempts[attempt["problem_id"]].append(attempt)
    return {
        row["proposal_id"]: GradedProblem(row, attempts[row["problem_id"]])
        for row in ask(audited, "FROM problems")
    }


def test_teachers_are_paid_by_verdict_solve_rate_and_chance(
    audited: Path, config: Config, generations: range
) -> None:
    rows = ask(
        audited,
        f"""SELECT p.proposal_id, p.teacher_id, p.verdict, p.reward, count(a.attempt_id) AS n,
                  any_value(h.teacher_reward) AS inherited,
                  avg((a.verdict = 'correct')::INT) AS p, any_value(q.chance) AS c,
                  count(any_value(q.problem_id)) OVER (
                      PARTITION BY p.generation, p.teacher_id, p.problem_type, any_value(q.lines_of_code)
                  ) / count(any_value(q.problem_id)) OVER (PARTITION BY p.generation, p.teacher_id, p.problem_type)
                  AS alike,
                  NOT EXISTS (
                      FROM problems o WHERE o.problem_type = p.problem_type AND o.cell = any_value(q.cell)
                      AND o.generation BETWEEN p.generation - {config.grade.new_cell_window} AND p.generation - 1
                  ) AS new_cell
           FROM proposals p LEFT JOIN attempts a ON a.problem_id = p.problem_id AND a.verdict <> 'infrastructure'
           LEFT JOIN problems q ON q.problem_id = p.problem_id
           LEFT JOIN hyperparameters h ON h.member_id = p.teacher_id AND h.generation = p.generation - 1
           WHERE p.generation {within(generations)}
           GROUP BY p.proposal_id, p.verdict, p.reward, p.problem_type, p.generation, p.teacher_id""",
    )
    asked = len(generations) * config.proposals
    assert asked <= len(rows) <= asked * (1 + config.propose.refills)
    problems = graded(audited)
    for row in rows:
        if row["verdict"] != "valid":
            expected = None if row["verdict"] == "infrastructure" else config.grade.teacher_invalid
        else:
            assert 0.0 <= row["c"] <= config.verify.largest_chance
            paid_by = row["inherited"] or config.grade.reward_of(ids.slot_of(row["teacher_id"]))
            rules = config.grade.model_copy(update={"teacher_reward": paid_by})
            known = (rules, row["new_cell"], problems[row["proposal_id"]])
            expected = None if row["n"] == 0 else payment(row["p"], row["n"], row["c"], *known)
            if expected and expected > 0.0:
                expected *= min(1.0, config.grade.niche / row["alike"])
        assert row["reward"] == (None if expected is None else pytest.approx(expected))


def test_students_are_paid_by_verdict(audited: Path, config: Config, generations: range) -> None:
    rows = ask(
        audited, f"SELECT DISTINCT verdict, reward FROM attempts WHERE generation {within(generations)}"
    )
    rules = config.grade
    paid = {"correct": rules.student_correct, "format_error": rules.student_format, "infrastructure": None}
    assert rows or CHOSEN
    for row in rows:
        assert row["reward"] == paid.get(row["verdict"], rules.student_wrong)


def rated(audited: Path, rows: str) -> dict[str, trueskill.Rating]:
    """Member -> its rating in the rows of a table."""
    return {
        row["member_id"]: trueskill.Rating(row["mu"], row["sigma"])
        for row in ask(audited, f"SELECT member_id, mu, sigma FROM {rows}")
    }


def test_ratings_replay_from_the_match_rows_in_order(
    audited: Path, config: Config, generations: range
) -> None:
    rules = config.rating
    environment = trueskill.TrueSkill(rules.mu, rules.sigma, rules.beta, rules.tau, rules.draw_probability)
    evolved = ask(audited, "SELECT * FROM evolutions ORDER BY generation, child_id")
    begun = generations.start - 1
    ratings = rated(audited, f"tables.population WHERE generation = {begun}")
    assert begun or all(rating == environment.create_rating() for rating in ratings.values())
    past = rated(
        audited,
        f"ratings JOIN members USING (member_id) WHERE generation = died_generation AND generation <= {begun}",
    )
    for generation in generations:
        playing = past | ratings  # a past member's rating moves for the moment only
        for match in ask(audited, f"SELECT * FROM matches WHERE generation = {generation} ORDER BY match_id"):
            teacher, student = match["teacher_id"], match["student_id"]
            if match["outcome"] in ("teacher", "student", "draw"):
                first, second = (teacher, student) if match["outcome"] == "teacher" else (student, teacher)
                playing[first], playing[second] = environment.rate_1vs1(
                    playing[first], playing[second], drawn=match["outcome"] == "draw"
                )
        ratings = {member: playing[member] for member in ratings}
        stored = ask(
            audited, f"SELECT member_id, mu, sigma, fitness FROM ratings WHERE generation = {generation}"
        )
        assert {row["member_id"] for row in stored} == set(ratings)
        for row in stored:
            replayed = ratings[row["member_id"]]
            assert (row["mu"], row["sigma"]) == pytest.approx((replayed.mu, replayed.sigma))
            assert row["fitness"] == pytest.approx(replayed.mu - 3 * replayed.sigma)
        children = [row for row in evolved if row["generation"] == generation]
        born = {
            row["child_id"]: environment.create_rating(
                mu=sum(ratings[parent].mu for parent in row["parent_ids"]) / len(row["parent_ids"])
            )
            for row in children
        }
        for row in children:
            past[row["removed_id"]] = ratings.pop(row["removed_id"])
        ratings |= born
