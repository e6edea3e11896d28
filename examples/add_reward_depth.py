"""Add a reward that looks at more than the solve rate: a `ProblemReward` is given the problem too.

    PYTHONPATH=examples populora run --preset quick --set grade.teacher_reward=add_reward_depth:deep

A package registers it as any other reward.
"""

from __future__ import annotations

from populora_core import GradedProblem, GradeSection, ProblemReward


@ProblemReward
def deep(solve_rate: float, rules: GradeSection, problem: GradedProblem) -> float:
    """Pay 4 p (1 - p), in full from a syntax tree of twelve levels on, and less for a flatter one.

    Args:
        problem: the verified problem as a row of the table `problems`, and its attempts with answers and verdicts.
    """
    return 4.0 * solve_rate * (1.0 - solve_rate) * min(1.0, problem.row["ast_depth"] / 12)
