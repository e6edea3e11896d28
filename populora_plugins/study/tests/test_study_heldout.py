"""Held-out answers by level, by vote and of the member to take home, against scores worked out by hand."""

from __future__ import annotations

import pytest
from store_run import adapter_row, commit_stage, generation_tables, item_row, member_row, rating_row

from populora_core.benchmarks.scores import BASE
from populora_core.benchmarks.suite import Entry, Suite, load_suite
from populora_core.store.catalogue import Catalogue
from populora_core.support.shipped import REPOSITORY
from populora_plugins.study.heldout import held_out_by_level, sampled_suite

FIRST, SECOND, TEACHER = "student-00-g0000", "student-01-g0000", "teacher-00-g0000"
SUITE = Suite(suite="small", benchmarks=(Entry(benchmark="frontier_code_o", dataset="bundled:tiny.parquet"),))
# Two problems a level: what each player answers to them, R for right, other letters for wrong answers.
GREEDY = {
    BASE: {2: "Ra", 3: "ab", 4: "ab", 5: "ab"},
    FIRST: {2: "RR", 3: "RR", 4: "Ra", 5: "ab"},
    SECOND: {2: "RR", 3: "Ra", 4: "ab", 5: "Rc"},
    TEACHER: {2: "RR", 3: "RR", 4: "RR", 5: "RR"},
}
RIGHT = {FIRST: 3, SECOND: 1}  # of eight attempts at the one problem that is sampled


def answers(suite: str, member: str, level: int, item: int, told: str) -> list[dict]:
    return [
        item_row(1, member)
        | {"suite": suite, "part": "test", "stratum": f"level {level}", "item_id": f"{level}-{item}"}
        | {
            "sample_index": number,
            "answer": answer,
            "correct": answer == "R",
            "completion_tokens": 10 * level,
        }
        for number, answer in enumerate(told)
    ]


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], float]:
    run = tmp_path_factory.mktemp("run")
    members = (TEACHER, FIRST, SECOND)
    commit_stage(
        run,
        0,
        "found",
        {
            "population": [member_row(0, name) for name in members],
            "adapters": [adapter_row(0, name) for name in members],
        },
    )
    for stage, tables in generation_tables(1).items():
        if stage == "grade":
            tables["ratings"] = [rating_row(1, name) for name in members]
        if stage == "evaluate":
            fitness = {TEACHER: 0.9, FIRST: 0.3, SECOND: 0.4}
            tables["external_fitness"] = [
                {"generation": 1, "member_id": name, "external_fitness": score}
                for name, score in fitness.items()
            ]
        if stage == "evolve":
            tables["population"] = [member_row(1, name) for name in members]
        commit_stage(run, 1, stage, tables)
    items = [
        row
        for member, levels in GREEDY.items()
        for level, told in levels.items()
        for item, answer in enumerate(told)
        for row in answers("small", member, level, item, answer)
    ]
    items.append(item_row(1, FIRST) | {"suite": "small", "part": "test"})  # infrastructure counts for nothing
    items.append(answers("another", FIRST, 2, 0, "a")[0])
    commit_stage(run, 1, "evaluate-small", {"evaluation_items": items})
    sampled = sampled_suite(SUITE, 1)
    drawn = [
        row
        for member, right in RIGHT.items()
        for row in answers(sampled.suite, member, 6, 0, "R" * right + "a" * (8 - right))
    ]
    commit_stage(run, 1, f"evaluate-{sampled.suite}", {"evaluation_items": drawn})
    with Catalogue(run) as catalogue:
        found = list(held_out_by_level(catalogue, SUITE, sampled))
    assert len({value[:3] for value in found}) == len(found), "one value of each"
    assert {value.generation for value in found} == {1}
    return {(value.measure, value.part): value.value for value in found}


def test_scores_are_by_level_and_a_band_is_the_mean_of_its_levels(
    values: dict[tuple[str, str], float],
) -> None:
    levels = [values[f"held_out.level_{level}", "student-00"] for level in (2, 3, 4, 5)]
    assert levels == [1.0, 1.0, 0.5, 0.0]
    assert values["held_out.edge", "student-00"] == 0.25
    assert values["held_out.levels_2_5", "student-00"] == 0.625
    assert values["held_out.levels_2_5", "student-01"] == (1.0 + 0.5 + 0.0 + 0.5) / 4
    assert values["held_out.levels_2_5", BASE] == 0.125
    assert ("held_out.beyond", "student-00") not in values, "no level of the band was asked"


def test_the_frontier_is_the_highest_level_with_so_many_solved(values: dict[tuple[str, str], float]) -> None:
    # The second student solves half of level 5, though nothing of level 4; the base nothing above half of level 2.
    players = ("student-00", "student-01", BASE)
    assert [values["frontier", part] for part in players] == [4.0, 5.0, 2.0]
    assert [values["frontier_tenth", part] for part in players] == [4.0, 5.0, 2.0]


def test_a_vote_is_of_the_solvers_alone_and_in_a_tie_the_better_by_validation_decides(
    values: dict[tuple[str, str], float],
) -> None:
    # The second has more of the other half. Level 3: right, and R against a. Level 4: R against a, a against b.
    # Level 5: a against R, b against c.
    assert [values[f"vote.level_{level}", "all"] for level in (2, 3, 4, 5)] == [1.0, 0.5, 0.0, 0.5]
    assert values["vote.levels_2_5", "all"] == 0.5


def test_what_a_user_takes_home_is_chosen_on_the_other_half(values: dict[tuple[str, str], float]) -> None:
    assert values["take_home.levels_2_5", "all"] == values["held_out.levels_2_5", "student-01"]


def test_eight_attempts_give_a_mean_and_the_solvers_together_a_pass_rate(
    values: dict[tuple[str, str], float],
) -> None:
    assert values["mean_at_8", "student-00"] == 0.375
    assert values["mean_at_8.level_6", "student-01"] == 0.125
    # Four of sixteen attempts are right: eight drawn from these are all wrong in C(12, 8) of C(16, 8) cases.
    assert values["pass_at_8.level_6", "all"] == pytest.approx(1 - 495 / 12870)


def test_tokens_are_those_of_the_greedy_answers(values: dict[tuple[str, str], float]) -> None:
    assert values["held_out_tokens", "student-00"] == 35.0


def test_the_sampled_suite_is_a_fixed_sample_with_eight_attempts_at_temperature_one() -> None:
    found = sampled_suite(load_suite(REPOSITORY / "configs/suites/frontier.toml"), 70)
    assert (found.suite, found.sample) == ("frontier-70-mean_at_8", 70)
    (entry,) = found.benchmarks
    assert (entry.attempts, entry.k, entry.temperature) == (8, (1, 8), 1.0)
    assert Suite.model_validate(found.model_dump()) == found
