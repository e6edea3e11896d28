"""Anchors: problems from outside the population are verified, marked and learnt from, and pay no teacher."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import ask, small_config, start, write_lines

from base_model import anchors as grammars
from populora_core.benchmarks.anchors import draw_anchors, left_by
from populora_core.config.load import Config
from populora_core.config.sections import AnchorSection
from populora_core.lifecycle.loop import rerun, train
from populora_core.problems.archive import Graded
from populora_core.problems.buffer import Buffer
from populora_core.problems.coverage import Cell
from populora_core.problems.dialects import dialect
from populora_core.problems.grading import check_proposals
from populora_core.problems.model import Draft
from populora_core.problems.verdicts import ProposalVerdict
from populora_core.runs.preflight import preflight
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.sandbox.jobs import Sandbox
from populora_core.stages.decisive import decisive
from populora_core.support.errors import ConfigError, ProblemError
from populora_core.support.trust import remember


def row(number: int, problem_type: str = "code_o") -> dict:
    return {
        "problem_type": problem_type,
        "program": f"def f(a):\n    return a * {number} + 1",
        "inputs": ["(2,)"],
    }


def settings(share: float = 0.2, source: str = "dataset", **parameters: object) -> AnchorSection:
    return AnchorSection(share=share, source=source, parameters=parameters)


def drawn(
    chosen: AnchorSection, asked: dict[str, int], played: Buffer | None = None, past: Sequence[Graded] = ()
) -> dict[str, list[Draft]]:
    return draw_anchors(chosen, asked, played or Buffer(10), past, lambda _: np.random.default_rng(7))


def several(rng: np.random.Generator, count: int, problem_type: str, *, factor: int = 1) -> Iterator[Draft]:
    """A source of the tests'."""
    for number in range(count):
        yield Draft(problem_type, f"def f(a):\n return a*{factor}+{number}", (f"({rng.integers(9)},)",), "")


def of_one_type(rng: np.random.Generator, count: int, problem_type: str) -> list[Draft]:
    return [Draft("code_i", "def f(a):\n return a+1", ("(1,)",), "")]


def test_the_share_is_of_all_problems_that_are_asked_for() -> None:
    assert settings(0.25).beside(24) == 8, "8 of 32"
    assert settings(0.01).beside(4) == 1, "a share above 0 is never nothing"
    assert settings(0.0).beside(24) == 0
    config = small_config(anchors={"share": 0.25}, propose={"per_type": 8})
    assert config.attempts == 3 * (24 + 8) * 3


def test_a_data_set_gives_its_problems_by_type_in_a_seeded_order(tmp_path: Path) -> None:
    rows = [*(row(number) for number in range(30)), *(row(number, "code_i") for number in range(30, 33))]
    chosen = settings(0.5, path=str(write_lines(tmp_path / "own.jsonl", rows)))
    first = drawn(chosen, {"code_o": 8, "code_i": 8, "code_f": 8})
    assert {name: len(drafts) for name, drafts in first.items()} == {"code_o": 8, "code_i": 3, "code_f": 0}
    assert all(draft.problem_type == name for name, drafts in first.items() for draft in drafts)
    assert first == drawn(chosen, {"code_o": 8, "code_i": 8, "code_f": 8})
    assert [draft.program for draft in first["code_o"]] != [each["program"] for each in rows[:8]]


def test_what_was_played_does_not_come_again(tmp_path: Path) -> None:
    chosen = settings(0.5, path=str(write_lines(tmp_path / "own.jsonl", map(row, range(5)))))
    played = Buffer(10)
    for draft in drawn(chosen, {"code_o": 3})["code_o"]:
        played.add(draft.problem("problem", ("1",)))
    left = drawn(chosen, {"code_o": 3}, played)["code_o"]
    assert len(left) == 2 and not any(played.add(draft.problem("again", ("1",))) is False for draft in left)
    assert not drawn(chosen, {"code_o": 3}, played)["code_o"], "it is used up"


def test_a_data_set_may_be_drawn_anew_in_every_generation(tmp_path: Path) -> None:
    chosen = settings(0.5, path=str(write_lines(tmp_path / "own.jsonl", map(row, range(5)))), again=True)
    played = Buffer(10)
    for draft in drawn(chosen, {"code_o": 5})["code_o"]:
        played.add(draft.problem("problem", ("1",)))
    assert len(drawn(chosen, {"code_o": 3}, played)["code_o"]) == 3


def asked_before(*solve_rates: float, problem_type: str = "code_o") -> list[Graded]:
    """Problems that were played with these solve rates; the program of each is its place."""
    return [
        Graded(
            Draft(problem_type, f"def f(a):\n return a+{place}", ("(1,)",), "").problem(f"p{place}", ("1",)),
            Cell((), ()),
            2,
            rate,
        )
        for place, rate in enumerate(solve_rates)
    ]


def of_length(lines: int, solve_rate: float, programs: int = 10) -> list[Graded]:
    """Different programs of so many lines that were solved so often."""
    return [
        Graded(
            Draft(
                "code_o", "def f(a):" + f"\n a+={place}" * (lines - 2) + "\n return a", ("(1,)",), ""
            ).problem(f"p{lines}-{place}", ("1",)),
            Cell((), ()),
            lines,
            solve_rate,
        )
        for place in range(programs)
    ]


def test_a_replay_asks_again_what_someone_solved() -> None:
    past = [*asked_before(0.0, 0.125, 0.25, 0.5, 1.0), *asked_before(0.125, problem_type="code_i")]
    played = Buffer(10)
    for each in past:
        played.add(each.problem)
    chosen = settings(0.5, "replay")
    first = drawn(chosen, {"code_o": 8}, played, past)["code_o"]
    assert sorted(draft.program[-1] for draft in first) == ["1", "2", "3", "4"], (
        "of no other type, and not never"
    )
    assert first == drawn(chosen, {"code_o": 8}, played, past)["code_o"]
    assert len(drawn(chosen, {"code_o": 1}, played, past)["code_o"]) == 1
    rarer = drawn(settings(0.5, "replay", largest=0.2), {"code_o": 8}, played, past)["code_o"]
    assert [draft.program[-1] for draft in rarer] == ["1"]


def test_of_what_was_asked_several_times_the_newest_solve_rate_counts() -> None:
    past = asked_before(0.125, 0.125, 0.125, 1.0) + asked_before(0.25, 0.5, 0.0, 0.125)
    again = drawn(settings(0.5, "replay", largest=0.25), {"code_o": 8}, past=past)["code_o"]
    assert sorted(draft.program[-1] for draft in again) == ["0", "3"], "each once"


def lengths(past: Sequence[Graded], count: int = 8) -> dict[int, int]:
    """Lines -> how many programs of so many lines a replay at the frontier asks again."""
    chosen = settings(0.5, "replay", frontier=0.5)
    drafts = drawn(chosen, {"code_o": count}, past=past)["code_o"]
    assert len({draft.program for draft in drafts}) == len(drafts), "each once"
    return dict(Counter(len(draft.program.splitlines()) for draft in drafts))


def test_at_the_frontier_half_is_one_line_longer_than_what_is_solved_whether_or_not_it_was_solved() -> None:
    past = of_length(3, 0.9) + of_length(4, 0.6) + of_length(5, 0.0) + of_length(6, 0.0)
    assert lengths(past) == {5: 4, 4: 2, 3: 2}


def test_the_frontier_moves_with_the_newest_solve_rates() -> None:
    past = of_length(4, 0.6) + of_length(5, 0.2)
    assert lengths([*past, *of_length(5, 0.7), *of_length(6, 0.1)]) == {6: 4, 5: 2, 4: 2}
    assert lengths([*of_length(5, 0.7), *past]) == {5: 4, 4: 4}, "there is nothing shorter"


def test_few_programs_move_no_frontier_and_shorter_ones_fill_up_what_a_length_lacks() -> None:
    past = (
        of_length(3, 0.9) + of_length(4, 0.6) + of_length(5, 0.1, programs=1) + of_length(8, 1.0, programs=7)
    )
    assert lengths(past) == {5: 1, 4: 2, 3: 5}


def test_where_no_length_is_solved_the_frontier_is_at_the_shortest() -> None:
    assert lengths(of_length(4, 0.4) + of_length(5, 0.1)) == {5: 4, 4: 4}
    assert lengths(of_length(4, 0.9, programs=7) + of_length(5, 0.9, programs=7)) == {5: 4, 4: 4}, "too few"


def test_a_frontier_needs_something_that_was_asked() -> None:
    assert lengths([]) == {}


def test_a_generator_is_named_by_its_place_and_has_settings() -> None:
    remember([f"{__name__}:several"])
    chosen = settings(0.5, f"{__name__}:several", factor=3)
    assert [draft.program for draft in drawn(chosen, {"code_o": 2})["code_o"]] == [
        "def f(a):\n return a*3+0",
        "def f(a):\n return a*3+1",
    ]


def test_a_generator_of_another_type_is_told_so() -> None:
    remember([f"{__name__}:of_one_type"])
    with pytest.raises(ProblemError, match="no draft of code_o") as raised:
        drawn(settings(0.5, f"{__name__}:of_one_type"), {"code_o": 2})
    assert raised.value.expected and raised.value.got and raised.value.fix


BROKEN = {
    "no path": (None, "needs a value of its parameter 'path'"),
    "no file": ("nowhere.jsonl", "there is no data set of anchors"),
    "no format": ("set.csv", "unknown format"),
    "no JSON": ("{", "cannot be read"),
    "no inputs": ('{"problem_type": "code_o", "program": "def f(a): return a"}', "row 1 is no problem"),
    "an input that is a number": (
        '{"problem_type": "code_o", "program": "", "inputs": [1]}',
        "row 1 is no problem",
    ),
    "no type that is played": (json.dumps(row(1, "countdown")), "no problem of a type that is played"),
    "too few inputs": (
        json.dumps(row(1, "code_f")),
        "no problem with as many inputs as the dialect asks for",
    ),
}


@pytest.mark.parametrize(("given", "told"), BROKEN.values(), ids=BROKEN)
def test_a_data_set_that_cannot_be_used_is_refused_before_any_work(
    given: str | None, told: str, tmp_path: Path
) -> None:
    file = tmp_path / (given if given and given.endswith(("jsonl", "csv")) else "set.jsonl")
    if given != "nowhere.jsonl":
        file.write_text(given or "")
    anchors = {"share": 0.2, "parameters": {"path": str(file)} if given else {}}
    with pytest.raises(ConfigError, match=told) as raised:
        preflight(small_config(anchors=anchors), "the test's configuration")
    assert raised.value.expected or raised.value.got
    assert raised.value.fix


@pytest.mark.parametrize(
    ("source", "parameters", "told"),
    [
        ("datasets", {}, "anchors.source names 'datasets', which is not registered"),
        ("nowhere:anchors", {}, "is no source of anchors"),
        (f"{__name__}:several", {"factors": 2}, "has no parameter 'factors'"),
    ],
)
def test_a_source_that_is_not_known_is_refused_before_any_work(
    source: str, parameters: dict, told: str
) -> None:
    anchors = {"share": 0.2, "source": source, "parameters": parameters}
    with pytest.raises(ConfigError, match=told) as raised:
        preflight(small_config(anchors=anchors), "the test's configuration")
    assert raised.value.fix


def test_a_data_set_decides_by_its_content_and_only_where_it_is_used(tmp_path: Path) -> None:
    def decides(config: Config) -> dict:
        return decisive(config, ("verify", "anchors"))

    def using(file: Path) -> Config:
        return small_config(anchors={"share": 0.2, "parameters": {"path": str(file)}})

    assert "anchors" not in decides(small_config(anchors={"source": "anything"}))
    first, moved, other = (tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.jsonl"))
    write_lines(first, [row(1)]), write_lines(moved, [row(1)]), write_lines(other, [row(2)])
    assert decides(using(first)) == decides(using(moved)) != decides(using(other))


@pytest.mark.sandbox
def test_a_draft_is_held_to_what_a_teachers_proposal_is(sandbox: Sandbox) -> None:
    found = {
        ("def f(a):\n return a+1\n", "(3,)"): ProposalVerdict.VALID,
        ("def f(a):\n return a+", "(3,)"): ProposalVerdict.SYNTAX_ERROR,
        ("def g(a):\n return a", "(3,)"): ProposalVerdict.FORMAT_ERROR,
        ("def f(a):\n return a+1", "3"): ProposalVerdict.FORMAT_ERROR,
        ("def f(a):\n return a+1", "(3, 4)"): ProposalVerdict.FORMAT_ERROR,
        ("def f(a):\n return a+'<eos>'", "('b',)"): ProposalVerdict.FORMAT_ERROR,
        ("def f(a):\n return 7", "(3,)"): ProposalVerdict.TRIVIAL,
        ("def f(a):\n return a//0", "(3,)"): ProposalVerdict.RUNTIME_ERROR,
    }
    drafts = [Draft("code_o", program, (arguments,), "") for program, arguments in found]
    checks = check_proposals(dialect("compact"), sandbox.run, drafts)
    assert [check.verdict for check in checks] == list(found.values())
    assert checks[0].draft == Draft("code_o", "def f(a):\n return a+1", ("(3,)",), "")
    assert checks[0].outputs == ("4",)


@pytest.mark.sandbox
@pytest.mark.parametrize("source", [grammars.tiny, grammars.frontier])
@pytest.mark.parametrize("problem_type", ["code_o", "code_i", "code_f"])
def test_the_bundled_bases_grammars_give_valid_problems(source, problem_type: str, sandbox: Sandbox) -> None:
    drafts = list(source(np.random.default_rng(0), 4, problem_type))
    checks = check_proposals(dialect("compact"), sandbox.run, drafts)
    assert [check.verdict for check in checks] == [ProposalVerdict.VALID] * 4


def test_a_student_is_left_what_others_solved_and_it_did_not() -> None:
    past = asked_before(0.5, 0.0, 1.0, 0.25)
    asked_of = {"p0": 0, "p1": 0, "p2": 1, "p3": 2}
    left = {slot: [each.problem.problem_id for each in left_by(slot, past, asked_of)] for slot in range(3)}
    assert left == {0: ["p2", "p3"], 1: ["p0", "p3"], 2: ["p0", "p2"]}


def test_what_a_student_failed_is_left_until_it_solves_it() -> None:
    (first, *_) = asked_before(1.0)
    later = [
        Graded(
            Draft("code_o", first.problem.program, ("(1,)",), "").problem(name, ("1",)), first.cell, 2, rate
        )
        for name, rate in (("failed", 0.0), ("solved", 0.5))
    ]
    asked_of = {"p0": 0, "failed": 1, "solved": 1}
    assert [each.problem.problem_id for each in left_by(1, [first, later[0]], asked_of)] == ["p0"]
    assert left_by(1, [first, *later], asked_of) == []


PEERS = """
    WITH asked AS (
        SELECT p.generation, p.problem_id, p.problem_type, p.program, p.teacher_id = 'anchor' AS again,
               any_value(m.slot) AS slot, bool_or(a.verdict = 'correct') AS solved
        FROM problems p JOIN attempts a USING (problem_id) JOIN members m ON m.member_id = a.student_id GROUP BY ALL
    )
    SELECT problem_id,
           EXISTS (FROM asked o WHERE o.generation < asked.generation AND o.problem_type = asked.problem_type
                   AND o.program = asked.program AND o.slot <> asked.slot AND o.solved) AS solved_by_another,
           EXISTS (FROM asked o WHERE o.generation < asked.generation AND o.problem_type = asked.problem_type
                   AND o.program = asked.program AND o.slot = asked.slot AND o.solved) AS solved_by_itself
    FROM asked WHERE again
"""


@pytest.mark.thorough
@pytest.mark.loop
@pytest.mark.sandbox
def test_peers_are_asked_what_another_solved(tmp_path: Path) -> None:
    config = small_config(
        run={"generations": 2},
        population={"teachers": 2, "students": 2},
        propose={"per_type": 8},
        anchors={"share": 0.3, "source": "peers"},
    )
    run = start(tmp_path / "run", config)
    with Session(run) as session:
        train(session, 2)
        (again, *_) = rerun(session, 2, "verify")
    assert again.reused, "what is drawn follows from the run's own rows"
    rows = ask(run.directory, PEERS)
    assert rows
    assert all(row["solved_by_another"] and not row["solved_by_itself"] for row in rows)


def test_a_single_student_has_no_peers() -> None:
    with pytest.raises(ConfigError, match="2 or more"):
        small_config(population={"teachers": 2, "students": 1}, anchors={"share": 0.2, "source": "peers"})


def test_no_run_begins_with_a_student_alone_on_its_island_and_peers_to_ask(tmp_path: Path) -> None:
    """One that began so goes on: it is merely never asked anything again."""
    population = {"teachers": 2, "students": 2, "islands": 2}
    config = small_config(population=population, anchors={"share": 0.2, "source": "peers"})
    with pytest.raises(ConfigError, match="4 or more on 2 islands"):
        preflight(config, "run.toml")
    run = start(tmp_path / "run", config)
    with Session(Run.open(run.directory)):
        pass


def test_a_part_of_a_data_set_is_chosen_before_the_run_begins(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "own.jsonl", [row(1), row(2)])
    remember([str(file)])
    config = small_config(
        anchors={"share": 0.2, "source": "dataset", "parameters": {"path": str(file), "first": 1}}
    )
    with pytest.raises(ConfigError, match="no file of CRUXEval's"):
        preflight(config, "run.toml")
