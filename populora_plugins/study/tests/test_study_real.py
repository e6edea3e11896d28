"""The study on a pretrained base: its arms differ in one thing each, and planted values decide its claims both ways."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_study import changed

from populora_core.config.files import merged, read_config
from populora_core.config.sections import GradeSection
from populora_core.problems.rewards import teacher_reward
from populora_core.problems.verdicts import ProposalVerdict
from populora_core.support.shipped import REPOSITORY
from populora_plugins.study.config import StudyConfig
from populora_plugins.study.real import REAL
from populora_plugins.study.report import render
from populora_plugins.study.summary import Origin, Summary, Value, write_summary
from populora_plugins.study.verdicts import as_json, read_results, write_verdicts

STUDY = REPOSITORY / "configs/study-real.toml"
PAGE = REPOSITORY / "bench/results/study-real/study.md"
ARMS = ("self-play", "format-only", "pool")
CLAIMS = [claim.key for claim in REAL.claims]


def study() -> StudyConfig:
    """The study as its file has it; neither the base nor the pool need be there."""
    return StudyConfig.model_validate(read_config(STUDY))


def made(arm: str, seed: int, score: float) -> Summary:
    noise = float(np.random.default_rng([seed, ARMS.index(arm)]).normal(0.0, 0.002))
    spent = [Value(at, name, "all", 1.0) for at in (1, 2) for name in ("updates", "total_tokens")]
    values = (*spent, Value(2, "held_out", "student-00", score + noise), Value(2, "held_out", "base", 0.3))
    config = {"run": {"generations": 2}}
    return Summary(Origin(arm, seed, config, {"match": 1}, "base", "suite", 2, ("abc",), 60.0), values)


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ((0.4, 0.3, 0.3), "supported"),
        ((0.3, 0.3, 0.3), "no difference"),
        ((0.2, 0.3, 0.3), "refuted"),
    ],
)
def test_a_claim_is_decided_by_what_its_arms_score(
    tmp_path: Path, scores: tuple[float, ...], verdict: str
) -> None:
    for arm, score in zip(ARMS, scores, strict=True):
        for run in (made(arm, seed, score) for seed in range(5)):
            write_summary(tmp_path / f"{run.origin.name}.parquet", run.origin, run.values)
    write_verdicts(study().model_copy(update={"results": tmp_path}))
    found = read_results(tmp_path)
    assert {claim["key"]: claim["verdict"] for claim in as_json(found)["claims"]} == dict.fromkeys(
        CLAIMS, verdict
    )
    assert verdict in render(found)


def test_the_arms_differ_in_what_they_are_named_after() -> None:
    asked = study()
    base = merged(read_config(STUDY.parent / "real.toml"), asked.settings)
    assert {arm.name: changed(base, merged(base, arm.settings)) for arm in asked.arms} == {
        "self-play": set(),
        "format-only": {"grade.teacher_reward"},
        "pool": {
            *("propose.per_type", "propose.references", "propose.max_tokens"),
            *("anchors.source", "anchors.share", "anchors.parameters", "update.roles"),
        },
        "shuffled": {"update.shuffle_rewards"},
        "frozen-teacher": {"update.roles"},
        "own-answers": {"update.estimator"},
    }
    assert {arm.config for arm in asked.arms} == {"real.toml"}
    assert {arm.generations for arm in asked.arms} == {24}
    assert {asked.arm(name).seeds for name in asked.compared} == {(0, 1, 2, 3, 4)}


def test_the_page_names_the_margin_of_every_claim() -> None:
    text = PAGE.read_text()
    rows = [line.split("|") for line in text[text.index("| claim |") :].splitlines()[2:4]]
    assert [row[1].strip() for row in rows] == CLAIMS
    assert [float(row[3]) for row in rows] == [claim.margin for claim in REAL.claims]


@pytest.mark.parametrize("solve_rate", [0.0, 0.5, 1.0])
def test_a_teacher_that_is_paid_for_format_earns_alike_for_every_valid_problem(solve_rate: float) -> None:
    (arm,) = (arm for arm in study().arms if arm.name == "format-only")
    rules = GradeSection.model_validate({"chance": "reject", **arm.settings["grade"]})
    assert teacher_reward(ProposalVerdict.VALID, solve_rate, rules, chance=0.9, attempts=8) == 1.0
    assert teacher_reward(ProposalVerdict.TRIVIAL, solve_rate, rules) == rules.teacher_invalid
