"""Settings that advice names, as `KEY=VALUE`: where members inherit a hyperparameter, its prior.

A changed prior bounds those of children; living members keep theirs. `STAYS` says so.
"""

from __future__ import annotations

from populora_core.config.load import Config

STAYS = " (children stay within the changed prior; living members keep their own)"


def learning_rate(config: Config, role: str, factor: float) -> str:
    """The setting that multiplies a role's learning rate."""
    of_teachers = role == "teacher" and config.update.teacher_learning_rate
    return _times(
        config, "learning_rate", "update", "teacher_learning_rate" if of_teachers else "learning_rate", factor
    )


def temperature(config: Config, factor: float) -> str:
    """The setting that multiplies the temperature at which teachers propose."""
    return _times(config, "temperature", "propose", "temperature", factor)


def reward(config: Config, name: str) -> str:
    """The setting that pays every teacher by this reward."""
    if config.pbt.teacher_reward:
        return f'pbt.teacher_reward=["{name}"]'
    return f'grade.teacher_reward="{name}"'


def rewards(config: Config) -> frozenset[str]:
    """Names of all rewards by which teachers may be paid."""
    return frozenset(config.pbt.teacher_reward or config.grade.teacher_rewards)


def stays(config: Config, name: str) -> str:
    """`STAYS` where members inherit the hyperparameter, else nothing."""
    return STAYS if name in config.pbt.own else ""


def _times(config: Config, inherited: str, section: str, key: str, factor: float) -> str:
    prior: tuple[float, ...] = getattr(config.pbt, inherited)
    if prior:
        low, high = prior
        return f"pbt.{inherited}=[{factor * low:g}, {factor * high:g}]"
    return f"{section}.{key}={factor * getattr(getattr(config, section), key):g}"
