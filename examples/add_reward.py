"""Add a reward for teachers: a function of a problem's solve rate, named by its place.

    PYTHONPATH=examples populora run --preset quick --set grade.teacher_reward=add_reward:hill

A package needs no path: it registers its reward under an entry point of "populora.teacher_rewards".
"""

from __future__ import annotations

from populora_core import GradeSection


def hill(solve_rate: float, rules: GradeSection) -> float:
    """Pay most for a problem that is solved half of the time, and nothing at both ends: 4 p (1 - p).

    The core asks for valid problems alone; what an invalid one costs is `rules.teacher_invalid`.

    Args:
        solve_rate: p, the share of attempts that were right, in [0, 1].
        rules: the settings under [grade].
    """
    return 4.0 * solve_rate * (1.0 - solve_rate)
