"""The second study: its arms run, and each of its claims is decided both ways by planted values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from populora_core.support.errors import ConfigError
from populora_core.support.shipped import REPOSITORY
from populora_plugins.study.budget import JUDGED
from populora_plugins.study.conduct import plan
from populora_plugins.study.config import load_study
from populora_plugins.study.frontier import FRONTIER, RESTATED
from populora_plugins.study.judgement import Rule, Verdict, decide
from populora_plugins.study.outcomes import outcomes_table
from populora_plugins.study.reckoning import costs, power
from populora_plugins.study.report import render
from populora_plugins.study.statistics import Test, equivalence, one_sample, two_samples
from populora_plugins.study.summary import Origin, Summary, Value, read_summary, write_summary
from populora_plugins.study.verdicts import as_json, read_results, write_verdicts

STUDY = REPOSITORY / "configs/study-frontier.toml"
PAGE = REPOSITORY / "bench/results/study-2/study.md"
SOLO = {"updates": 2.0, "trained_tokens": 2000.0, "total_tokens": 6000.0}
MEMBER = {"updates": 1.0, "trained_tokens": 1000.0, "total_tokens": 24_000.0}
BASE = 0.3
CLAIMS = {claim.key: claim for claim in FRONTIER.claims}
# What each arm's students gain over the base by the end, and the chance of its problems.
PUSHED = {"pop-4+4": (0.4, 0.05), "frozen-teacher": (0.2, 0.05), "pop-1+1": (0.25, 0.05), "solo": (0.1, 0.1)}
ALIKE = dict.fromkeys(PUSHED, (0.0, 0.05))
BACKWARDS = {
    "pop-4+4": (-0.1, 0.25),
    "frozen-teacher": (0.2, 0.05),
    "pop-1+1": (0.2, 0.05),
    "solo": (0.2, 0.1),
}


def made(arm: str, seed: int, gain: float, chance: float, noise: float) -> Summary:
    """A run of twenty generations, evaluated every five; a score rises evenly with its share of them."""
    rng, solo = np.random.default_rng([seed, len(arm)]), arm == "solo"
    slots = ["solo-00"] if solo else ["student-00", "student-01"]
    generations = 40 if solo else 20
    values, shift = [], noise * rng.normal()
    for at in range(1, generations + 1):
        spent = (SOLO if solo else MEMBER) | {"chance": chance + 0.1 * shift, "level": 3.0, "solve_rate": 0.5}
        values += [Value(at, name, "all", value) for name, value in spent.items()]
        if at % 5 == 0:
            rising = BASE + (gain + shift) * min(1.0, at * spent["updates"] / 20)
            for name in ("levels_2_5", "edge", "level_4", "level_5"):
                values += [Value(at, f"held_out.{name}", slot, rising) for slot in slots]
                values.append(Value(at, f"held_out.{name}", "base", BASE))
    origin = Origin(
        arm, seed, {"run": {"generations": generations}}, {"match": 1}, "base", "suite", 5, ("abc",), 60.0
    )
    return Summary(origin, tuple(values))


def results(
    folder: Path, arms: Mapping[str, tuple[float, float]], noise: float = 0.01, seeds: int = 8
) -> Path:
    study, _ = load_study(STUDY)
    study = study.model_copy(update={"results": folder})
    for run in (made(arm, seed, *told, noise) for arm, told in arms.items() for seed in range(seeds)):
        write_summary(folder / f"{run.origin.name}.parquet", run.origin, run.values)
    write_verdicts(study)
    return folder


def elsewhere(folder: Path, *changes: tuple[str, str]) -> Path:
    """The study's file with changes, none of whose runs is made."""
    text = STUDY.read_text().replace('"frontier.toml"', f'"{STUDY.parent}/frontier.toml"')
    for old, new in (("bench/results/study-2", str(folder / "results")), *changes):
        assert old in text
        text = text.replace(old, new)
    path = folder / "study.toml"
    path.write_text(text)
    return path


def verdicts(folder: Path) -> dict[str, str]:
    return {claim["key"]: claim["verdict"] for claim in as_json(read_results(folder))["claims"]}


def test_every_claim_is_supported_where_it_is_so(tmp_path: Path) -> None:
    assert verdicts(results(tmp_path, PUSHED)) == dict.fromkeys(CLAIMS, "supported")


def test_where_arms_are_alike_that_is_what_is_found(tmp_path: Path) -> None:
    alike = dict.fromkeys(CLAIMS, "no difference") | {"luck": "supported"}
    assert verdicts(results(tmp_path, ALIKE)) == alike


def test_the_opposite_refutes(tmp_path: Path) -> None:
    assert verdicts(results(tmp_path, BACKWARDS)) == dict.fromkeys(CLAIMS, "refuted")


def test_the_table_of_outcomes_tells_members_apart_and_begins_with_the_base(tmp_path: Path) -> None:
    folder = results(tmp_path, PUSHED, noise=0.0, seeds=2)
    run = read_summary(folder / "pop-4+4-seed-0001.parquet")
    worse = [
        value for value in run.values if (value.part, value.measure) != ("student-01", "held_out.levels_2_5")
    ]
    worse += [
        Value(20, "held_out.levels_2_5", "student-01", 0.5),
        Value(20, "take_home.levels_2_5", "all", 0.6),
        Value(20, "vote.levels_2_5", "all", 0.6),
    ]
    write_summary(folder / "pop-4+4-seed-0001.parquet", run.origin, worse)
    rows = {row["arm"]: row for row in outcomes_table(read_results(folder)).rows}
    assert list(rows) == ["base", "pop-4+4 (2)", "frozen-teacher (2)", "pop-1+1 (2)", "solo (2)"]
    assert (rows["base"]["levels 2 to 5"], rows["base"]["vote"]) == ("0.3", "–")
    found = rows["pop-4+4 (2)"]
    assert found["levels 2 to 5"] == "0.65 (0.6 to 0.7)"
    assert found["weakest member"] == "0.6 (0.5 to 0.7)"
    assert found["taken home"] == "0.65 (0.6 to 0.7)"
    assert found["chance"] == "0.05"


def test_each_arm_says_how_far_it_lies_above_the_population(tmp_path: Path) -> None:
    said = "levels 2 to 5, above pop-4+4"
    rows = {
        row["arm"]: row for row in outcomes_table(read_results(results(tmp_path, PUSHED, noise=0.0))).rows
    }
    assert rows["frozen-teacher (8)"][said] == "−0.2 (−0.2 to −0.2)"
    assert (rows["base"][said], rows["pop-4+4 (8)"][said]) == ("–", "–")
    few = outcomes_table(read_results(results(tmp_path / "few", PUSHED, noise=0.0, seeds=2))).rows
    assert few[2][said] == "−0.2", "two seeds bound nothing"


def test_seeds_too_few_or_too_far_apart_cannot_tell(tmp_path: Path) -> None:
    unknown = dict.fromkeys(CLAIMS, "cannot tell")
    assert verdicts(results(tmp_path / "few", PUSHED, seeds=3)) == unknown
    assert verdicts(results(tmp_path / "wide", PUSHED, noise=0.9)) == unknown


@pytest.mark.parametrize(
    ("rule", "test", "p", "p_same", "verdict"),
    [
        (Rule.DIFFERENCE, Test(0.05, 0.04, 0.06, None, 0.001), 0.01, 1.0, Verdict.SUPPORTED),
        (Rule.DIFFERENCE, Test(0.05, 0.04, 0.06, None, 0.02), 0.1, 1.0, Verdict.CANNOT_TELL),
        (Rule.DIFFERENCE, Test(0.02, 0.01, 0.04, None, 0.001), 0.01, 0.2, Verdict.CANNOT_TELL),
        (Rule.DIFFERENCE, Test(0.02, 0.01, 0.03, None, 0.001), 0.01, 0.04, Verdict.NO_DIFFERENCE),
        (Rule.DIFFERENCE, Test(-0.02, -0.03, -0.01, None, 1.0), 1.0, 0.04, Verdict.NO_DIFFERENCE),
        (Rule.DIFFERENCE, Test(-0.05, -0.06, -0.01, None, 1.0), 1.0, 0.9, Verdict.REFUTED),
        (Rule.EQUIVALENCE, Test(0.01, 0.0, 0.02, None, 0.3), 0.04, 0.01, Verdict.SUPPORTED),
        (Rule.EQUIVALENCE, Test(0.01, 0.0, 0.02, None, 0.3), 0.06, 0.04, Verdict.CANNOT_TELL),
        (Rule.EQUIVALENCE, Test(0.06, 0.04, 0.08, None, 0.001), 1.0, 1.0, Verdict.REFUTED),
        (Rule.EQUIVALENCE, Test(-0.06, -0.08, -0.04, None, 1.0), 1.0, 1.0, Verdict.REFUTED),
    ],
)
def test_the_rules_of_the_second_study(
    rule: Rule, test: Test, p: float, p_same: float, verdict: Verdict
) -> None:
    claim = next(claim for claim in FRONTIER.claims if claim.rule is rule and claim.margin == 0.03)
    assert decide(claim, test, p, [], p_same) is verdict


def test_equivalence_is_the_ninety_per_cent_interval_within_the_margin() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.normal(0.1, 1.0, 7), rng.normal(0.0, 1.0, 7)
    edge = next(m for m in np.linspace(0.0, 5.0, 501) if equivalence(two_samples, m, x, y) <= 0.05)
    for side, other in ((x, y), (y, x)):
        assert two_samples(side + edge, other).p <= 0.05
    assert max(two_samples(x + edge - 0.011, y).p, two_samples(y + edge - 0.011, x).p) > 0.05
    assert equivalence(one_sample, 1.0, [0.1, -0.1, 0.2, 0.0, 0.1]) == 1 / 32
    assert equivalence(one_sample, 0.05, [1.0, 1.1, 0.9, 1.2, 1.0]) == 1.0


def test_the_table_is_recomputed_from_the_summaries_alone_and_the_report_has_both_families(
    tmp_path: Path,
) -> None:
    folder = results(tmp_path, PUSHED)
    kept = json.loads((folder / "verdicts.json").read_text())
    found = read_results(folder)
    assert kept == json.loads(json.dumps(as_json(found)))
    assert [claim["key"] for claim in kept["paper"]] == [claim.key for claim in RESTATED.claims]
    page = render(found)
    assert "Of 5 claims, 5 are supported" in page
    assert "All of it holds for these problems." in page and "The oscillation is withdrawn" in page
    assert page.index('id="claims"') < page.index('id="paper"') < page.index('id="levels"')
    levels = page[page.index('id="levels"') : page.index('id="arms"')]
    assert [title in levels for title in ("Score by level", "Level 4", "Level 5", "Level 6")] == [
        True,
        True,
        True,
        False,
    ]
    for claim in (*FRONTIER.claims, *RESTATED.claims):
        assert claim.title.replace("'", "&#39;") in page


def test_the_arms_of_the_study_are_what_its_claims_compare() -> None:
    study, configs = load_study(STUDY)
    compared = [study.arm(name) for name in (study.population, study.frozen, study.pair, study.solo) if name]
    assert {len(arm.seeds) for arm in compared} == {8}
    assert min(arm.generations for arm in study.arms) >= 60
    assert max(seed for arm in study.arms for seed in arm.seeds) < 1000, "tuning seeds are never reported"
    population, frozen, pair, solo = (configs[arm.name] for arm in compared)
    assert frozen.model_copy(update={"update": population.update}) == population
    assert (frozen.update.roles, population.update.roles) == ("students", "both")
    assert (pair.population.teachers, pair.population.students, solo.population.solo) == (1, 1, 1)
    assert (solo.update.estimator, solo.grade.teacher_reward) == ("trr_pp", "azr")
    assert {config.propose.types for config in configs.values()} == {("code_o",)}
    assert {config.base.path for config in configs.values()} == {population.base.path}


def test_the_page_names_the_margin_of_every_claim() -> None:
    text = PAGE.read_text()
    rows = [
        line.split("|") for line in text[text.index("| claim |") :].splitlines() if line.startswith("| ")
    ][2:7]
    for claim, row in zip(FRONTIER.claims, rows, strict=True):
        assert row[1].strip().replace(" ", "_") == claim.key
        assert row[3].split() == [f"{claim.margin:g}", claim.unit]
        assert ("all three" in row[4]) is (claim.bases == JUDGED)


def test_no_member_is_evaluated_in_the_generation_of_its_birth() -> None:
    study, configs = load_study(STUDY)
    for arm in study.arms:
        every = configs[arm.name].evolve.every
        evaluated = {*range(study.evaluate_every, arm.generations + 1, study.evaluate_every), arm.generations}
        assert not every or not [at for at in evaluated if at % every == 0], arm.name


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('frozen = "frozen-teacher"\n', "", "there is no arm ''"),
        ('pair = "pop-1+1"', 'pair = "solo"', "different arms"),
    ],
)
def test_the_claims_of_the_second_study_need_all_their_arms(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_study(elsewhere(tmp_path, (old, new)))


def test_the_arms_that_decide_are_made_first_seed_by_seed(tmp_path: Path) -> None:
    names = [run.name for run in plan(elsewhere(tmp_path)).left]
    assert names[:5] == [f"{arm}-seed-0000" for arm in ("pop-4+4", "frozen-teacher", "pop-1+1", "solo")] + [
        "pop-4+4-seed-0001"
    ]
    assert names[32:36] == [f"shuffled-seed-000{seed}" for seed in range(3)] + ["chance-off-seed-0000"]


def test_a_study_is_reckoned_from_its_file_and_from_what_was_measured() -> None:
    study, _ = load_study(STUDY)
    run = made("pop-4+4", 0, 0.0, 0.0, 0.0)
    by_file, measured = ({cost.arm: cost for cost in costs(study, own)} for own in ((), (run,)))
    assert set(by_file) == {arm.name for arm in study.arms}
    assert by_file["pop-4+4"].hours == pytest.approx(8 * 60 * study.arm("pop-4+4").core_seconds / 3600)
    assert measured["pop-4+4"].seconds == 1.0
    assert sum(cost.hours for cost in by_file.values()) <= 28.0


def test_what_eight_seeds_can_reach() -> None:
    rng = np.random.default_rng(6)
    assert power(0.1, 0.03, (0.01, 0.01), 8, 5, rng, draws=20) == {Verdict.SUPPORTED: 1.0}
    assert power(0.0, 0.03, (0.005, None), 8, 5, rng, draws=20) == {Verdict.NO_DIFFERENCE: 1.0}


def test_the_base_answers_once_and_samples_are_drawn_at_both_ends(tmp_path: Path) -> None:
    run = next(run for run in plan(elsewhere(tmp_path)).left if run.name == "pop-4+4-seed-0000")
    assert run.members == "solvers"
    asked = [(suite.suite, generation, base) for suite, generation, base in run.evaluations()]
    assert asked == [
        ("frontier", 15, True),
        ("frontier-70-mean_at_8", 15, True),
        ("frontier", 30, False),
        ("frontier", 45, False),
        ("frontier", 60, False),
        ("frontier-70-mean_at_8", 60, False),
    ]
