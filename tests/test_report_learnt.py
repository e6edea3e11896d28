"""Scores of the solvers beside the base while a run goes on, and what it says at its end."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import contents, small_config, start
from hypothesis import given
from hypothesis import strategies as st
from store_run import write_run
from test_cli import populora

from populora_core.benchmarks.benchmark import Item, Response
from populora_core.benchmarks.items import sample_of
from populora_core.benchmarks.proposed import NewestPrompts
from populora_core.benchmarks.scores import NOTHING
from populora_core.commands.console import asked_table, show_learnt
from populora_core.commands.scores import show_evaluation
from populora_core.lifecycle.loop import train
from populora_core.lifecycle.progress import suite_for
from populora_core.report import learnt
from populora_core.report.figures import read_figures
from populora_core.report.index import glance
from populora_core.report.learnt import (
    Won,
    brief,
    held_out_claim,
    level_claim,
    lines,
    score_line,
    score_lines,
    told,
    won,
)
from populora_core.report.notes import headline
from populora_core.report.scored import (
    Scored,
    Yardstick,
    scored,
    telling_nothing,
    validities,
    yardsticks,
)
from populora_core.report.summary import ASKED, run_rows
from populora_core.report.text import percent
from populora_core.report.write import write_report
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.store.catalogue import Catalogue
from populora_core.store.manifest import MANIFEST, read_manifest, stage_dir
from populora_core.support.errors import EXIT_ERROR, RunDirectoryError
from populora_core.support.finish import FinishReason
from populora_core.support.shipped import shipped
from populora_core.terminal.screen import console
from populora_plugins.pages.lead import lead_plots

PROBLEMS = 3  # of each of the three benchmarks
OWN = 5  # of the run's own problems, of each era
NAME = f"tiny-{PROBLEMS}"


def of_a_played_run(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test of a run that was really played."""
    return pytest.mark.thorough(pytest.mark.loop(pytest.mark.sandbox(test)))


@given(st.sets(st.text(max_size=4), max_size=40), st.integers(1, 45), st.integers(1, 4))
def test_a_sample_is_even_over_strata_and_follows_from_the_ids(
    names: set[str], problems: int, strata: int
) -> None:
    items = [Item(name, "b", {}, stratum=str(len(name) % strata)) for name in sorted(names)]
    chosen = sample_of(items, problems)
    assert len(chosen) == min(problems, len(items))
    assert {item.item_id for item in sample_of(items[::-1], problems)} == {item.item_id for item in chosen}
    whole, part = (Counter(item.stratum for item in found) for found in (items, chosen))
    left_out = [stratum for stratum in whole if part[stratum] < whole[stratum]]
    assert all(part[stratum] + 1 >= max(part.values()) for stratum in left_out)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three generations that was scored after 0 and 2; read it, never write to it."""
    asked = {"report_every": 2, "report_problems": PROBLEMS, "yardstick": OWN, "validity": OWN}
    config = small_config(evaluate=asked)
    directory = tmp_path_factory.mktemp("reported") / "run"
    with Session(start(directory, config)) as session:
        train(session, 2)
    return directory


@of_a_played_run
def test_solvers_and_base_are_scored_on_the_same_problems_as_often_as_asked(reported: Path) -> None:
    founded, later = scored(reported)
    assert (founded.generation, later.generation) == (0, 2)
    assert {item.suite for item in (founded, later)} == {NAME}
    assert founded.gain.value == 0.0 == founded.solvers.value - founded.base.value, "founders equal the base"
    assert founded.problems == later.problems == 3 * PROBLEMS
    with Catalogue(reported) as catalogue:
        (asked,) = catalogue.rows(
            f"SELECT count(DISTINCT item_id) AS n FROM evaluation_items WHERE suite = '{NAME}'"
        )
    assert asked["n"] == 3 * PROBLEMS


@of_a_played_run
def test_scores_change_nothing_of_the_run(reported: Path, finished: Path) -> None:
    plain, with_scores = contents(finished), contents(reported)
    stages = {place: content for place, content in with_scores.items() if "/evaluate-" not in place}
    assert stages
    assert stages == {place: plain[place] for place in stages}


@of_a_played_run
def test_a_score_that_a_kill_prevented_is_made_when_the_run_goes_on(reported: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(reported, tmp_path / "run"))
    folder = stage_dir(directory, 2, f"evaluate-{NAME}")
    before = contents(directory)
    shutil.rmtree(folder)
    with Session(Run.open(directory)) as session:
        train(session, 3)
    after = contents(directory)
    assert {place: after[place] for place in before} == before


@of_a_played_run
def test_the_end_says_what_was_measured_and_nothing_else(reported: Path, finished: Path) -> None:
    said = " ".join(lines(reported))
    assert f"On held-out problems ({NAME}) the base solves" in said
    assert "after 0, " in said
    assert lines(finished) == [], "nobody was scored there"
    assert won(finished) is None


@of_a_played_run
def test_a_list_of_runs_has_a_line_of_what_the_report_says_at_length(reported: Path, finished: Path) -> None:
    figures = read_figures(reported, samples=False)
    yardstick, _, held_out = (plot.title for plot in lead_plots(figures)[:3])
    levels = level_claim(scored(reported)[-1])
    assert glance(reported).outcome.headline == f"{levels}. {yardstick}. {held_out}."
    told = headline(figures)
    assert len(told) == 4 and f"are done. {levels}" in told[0] and "On held-out problems" in told[0]
    assert "with the same references" in told[2]
    assert not glance(finished).outcome.headline.startswith("Problems"), (
        "no cause is named where none was measured"
    )
    assert "was not measured" in headline(read_figures(finished, samples=False))[0]


@of_a_played_run
def test_the_yardstick_is_the_runs_own_first_and_newest_problems(reported: Path) -> None:
    (found,) = yardsticks(reported)
    assert found.generation == 2, "there is no problem yet after generation 0"
    with Catalogue(reported) as catalogue:
        rows = catalogue.rows(
            "SELECT i.benchmark, p.generation, i.member_id, i.item_id FROM evaluation_items i "
            "JOIN problems p ON p.problem_id = i.item_id WHERE i.suite = 'yardstick'"
        )
    eras = {(row["benchmark"], row["generation"]) for row in rows}
    assert eras == {("first_problems", 1), ("newest_problems", 2)}
    asked = {
        who: sorted(r["item_id"] for r in rows if r["member_id"] == who)
        for who in {r["member_id"] for r in rows}
    }
    assert len(asked) == 1 + small_config().population.students
    assert all(items == asked["base"] for items in asked.values()), "all answer the same problems"
    assert "the base, which never changes" in " ".join(lines(reported))


@of_a_played_run
def test_teachers_and_base_write_for_the_same_newest_prompts(reported: Path) -> None:
    (found,) = validities(reported)
    assert found.generation == 2, "no teacher was asked in generation 0"
    asked = run_rows(
        reported,
        "SELECT i.member_id, i.item_id, i.prompt = p.prompt AS same, p.generation FROM evaluation_items i "
        "JOIN proposals p ON p.proposal_id = i.item_id WHERE i.suite = 'validity'",
    )
    assert all(row["same"] and row["generation"] == 2 for row in asked)
    prompts = {
        who: {row["item_id"] for row in asked if row["member_id"] == who}
        for who in {row["member_id"] for row in asked}
    }
    assert len(prompts) == 1 + small_config().population.teachers
    assert all(len(own) == OWN and own == prompts["base"] for own in prompts.values())
    assert f"valid proposals: teachers {percent(found.solvers.value)}" in "".join(score_lines(reported, 2))
    assert "with the same references" in " ".join(lines(reported))


@of_a_played_run
def test_a_proposal_counts_as_valid_if_the_verifier_said_so(finished: Path) -> None:
    """But for those that repeat another, or that guesses solve, which other problems and settings decide."""
    rows = run_rows(finished, "SELECT *, verdict FROM proposals WHERE teacher_id <> 'anchor'")
    prompts = NewestPrompts()
    responses = [Response(row["completion"], FinishReason(row["finish_reason"])) for row in rows]
    with open_sandbox("auto", Limits(), workers=1) as sandbox:
        scores = prompts.grade(prompts.load(rows), responses, Run.open(finished).config.base.dialect, sandbox)
    valid = {row["verdict"] for row, score in zip(rows, scores, strict=True) if score.correct}
    assert {"valid"} <= valid <= {"valid", "duplicate", "trivial"}
    assert all(score.correct for row, score in zip(rows, scores, strict=True) if row["verdict"] == "valid")


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_yardstick_is_taken_by_hand_and_its_report_says_so(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run.open(shutil.copytree(finished, tmp_path / "run"))
    assert "was not measured" in (run.directory / "report.html").read_text()
    show_evaluation(run, suite_for(run, "yardstick", sample=OWN), "all", None)
    shown = capsys.readouterr().out
    assert "base, which never changes" in shown and "newest problems" in shown
    assert "was not measured" not in (run.directory / "report.html").read_text()
    with pytest.raises(RunDirectoryError, match="has no yardstick after generation 1"):
        show_evaluation(run, suite_for(run, "yardstick"), "all", 1)


def test_the_two_thoughts_stand_side_by_side_with_their_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.create(tmp_path / "run", small_config(), base_digest="0" * 64)
    write_run(run.directory, generations=1)
    both = Won("f(4,4)?", "y-1:014\n=[2,4]", "student-00-g0020", "=[2,0]", "[2, 4]", "[2, 0]")
    monkeypatch.setattr(learnt, "won", lambda directory: both)
    with console.capture() as shown:
        show_learnt(console, run)
    head, first, second = (line.split() for line in shown.get().splitlines()[-3:])
    assert head == ["✗", "base", "answers", "[2,", "4]", "✓", "student-00-g0020", "answers", "[2,", "0]"]
    assert (first, second) == (["y-1:014", "=[2,0]"], ["=[2,4]"])


@of_a_played_run
def test_the_end_shows_problems_of_the_teachers_at_first_beside_some_at_last(finished: Path) -> None:
    asked = run_rows(finished, ASKED)
    counts = Counter(
        row["generation"] for row in run_rows(finished, "FROM problems WHERE teacher_id <> 'anchor'")
    )
    assert Counter(row["generation"] for row in asked) == {n: min(5, counts[n]) for n in (1, 3)}
    with console.capture() as shown:
        console.print(asked_table(asked))
    said = shown.get()
    assert ["generation", "1", "generation", "3"] in [line.split() for line in said.splitlines()]
    for row in asked:
        assert row["program"].splitlines()[0] in said
    assert said.count("solved ") == len(asked)


@of_a_played_run
def test_scores_by_level_are_in_every_place_that_shows_scores(reported: Path, tmp_path: Path) -> None:
    (item,) = scored(reported)[-1:]
    level = item.first_hard_level()
    assert level is not None and len(item.strata) > 3
    claim = level_claim(item)
    assert lines(reported)[0].startswith(claim), "before the other sentences"
    assert claim in brief(reported) and claim in glance(reported).outcome.headline
    titles = [plot.title for plot in lead_plots(read_figures(reported))]
    assert titles[1].startswith(f"{level.capitalize()}: from ")
    with console.capture() as shown:
        show_learnt(console, Run.open(reported))
    assert "by stratum: problems solved" in shown.get()
    both = [shutil.copytree(reported, tmp_path / name) for name in "ab"]
    write_report(both, tmp_path / "comparison.html")
    page = (tmp_path / "comparison.html").read_text()
    assert "Which problems do they solve?" in page and "level 4" in page


@of_a_played_run
def test_no_headline_is_built_on_a_suite_that_tells_nothing(
    finished: Path, reported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tiny base was never taught what the suite `frontier` asks."""
    strange = shipped("configs", "suites", "frontier.toml")
    for source in (finished, reported):
        run = Run.open(shutil.copytree(source, tmp_path / source.parent.name))
        before = brief(run.directory)
        show_evaluation(run, suite_for(run, str(strange), sample=7), "solvers", None)
        shown = capsys.readouterr().out
        assert f"suite frontier-7: {NOTHING}" in shown and "programs were judged in " in shown
        assert brief(run.directory) == before
        assert telling_nothing(run.directory) == ["frontier-7"]
    assert scored(run.directory)[-1].suite == NAME
    show_evaluation(run, suite_for(run, sample=PROBLEMS), "solvers", None)
    shown = capsys.readouterr().out
    assert f"suite {NAME}, test half" in shown, "the run's own suite, where none is named"
    assert f"{NAME} by stratum: problems solved" in shown
    with Catalogue(run.directory) as catalogue:
        (judged,) = catalogue.rows(
            f"SELECT sandbox FROM stages WHERE stage = 'evaluate-{NAME}' AND generation = 2"
        )
    assert "-python3." in judged["sandbox"]


def test_a_sentence_on_a_long_run_tells_few_of_its_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = [replace(_era(base=0.2, solvers=0.9), generation=number) for number in range(1, 301)]
    for name, found in (("scored", every), ("validities", every), ("yardsticks", [])):
        monkeypatch.setattr(learnt, name, lambda directory, found=found: found)
    assert re.findall(r"after (\d+)", " ".join(lines(tmp_path))) == ["1", "151", "300"] * 2


@of_a_played_run
def test_a_score_of_chosen_members_is_no_score_of_the_population(reported: Path, tmp_path: Path) -> None:
    shutil.copytree(reported, tmp_path / "run")
    newest = scored(reported)[-1]
    folder = stage_dir(tmp_path / "run", newest.generation, f"evaluate-{newest.suite}")
    manifest = read_manifest(folder)
    assert manifest is not None
    by_hand = replace(manifest, extra=manifest.extra | {"members": "best"})
    (folder / MANIFEST).write_text(by_hand.to_json())
    assert [each.generation for each in scored(tmp_path / "run")] == [
        each.generation for each in scored(reported)[:-1]
    ]


@of_a_played_run
def test_a_run_that_was_interrupted_in_its_last_generation_is_not_finished(
    finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    whole = glance(tmp_path / "run")
    shutil.rmtree(stage_dir(tmp_path / "run", whole.target, "evolve"))
    ended = glance(tmp_path / "run")
    assert (whole.state, ended.state, ended.generation) == ("finished", "stopped", whole.target - 1)


def test_a_headline_from_another_suite_names_it() -> None:
    item = Scored(4, "other", [([1.0] * 9, [0.0] * 9)], 0)
    assert held_out_claim(item).startswith("On held-out problems solvers are better")
    assert held_out_claim(replace(item, own=False)).startswith(
        "On held-out problems of another suite, other, "
    )


@pytest.mark.parametrize(
    "option", [("--members", "student-00-g0000"), ("--seed", "1")], ids=lambda option: option[0]
)
def test_an_option_that_does_not_apply_to_the_yardstick_is_refused(
    finished: Path, option: tuple[str, str]
) -> None:
    done = populora("evaluate", finished, "--suite", "yardstick", *option)
    assert done.returncode == EXIT_ERROR
    assert f"leave {option[0]} out" in done.stderr
    assert not list(finished.glob("generations/*/evaluate-yardstick"))


@pytest.mark.parametrize(
    ("first", "newest", "says"),
    [
        (0.9, 0.2, "Problems got harder"),
        (0.2, 0.9, "Problems got easier"),
        (0.5, 0.5, "cannot be told yet"),
    ],
)
def test_the_base_on_first_and_newest_problems_says_whether_they_got_harder(
    first: float, newest: float, says: str
) -> None:
    eras = [_era(base=share, solvers=share) for share in (first, newest)]
    harder, better = told(Yardstick(4, *eras))
    assert says in harder
    assert "no better than the base beyond chance" in better


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_change_of_the_base_has_an_interval_round_it(first: float, newest: float) -> None:
    change = Yardstick(4, _era(base=first, solvers=0.5), _era(base=newest, solvers=0.5)).harder()
    assert change.low <= change.value <= change.high
    swapped = Yardstick(4, _era(base=newest, solvers=0.5), _era(base=first, solvers=0.5)).harder()
    assert swapped.low == pytest.approx(-change.high)


def _era(base: float, solvers: float) -> Scored:
    """Sixty problems, these shares of them solved."""
    answers = [[1.0] * round(60 * share) + [0.0] * round(60 * (1 - share)) for share in (solvers, base)]
    return Scored(4, "yardstick", [(answers[0], answers[1])], 0)


@pytest.mark.parametrize(
    ("solvers", "base", "says"),
    [(0.6, 0.0, "better than"), (0.0, 0.4, "worse than"), (0.4, 0.4, "no better for sure than")],
)
def test_a_gain_counts_where_its_interval_is_on_one_side_of_zero(
    solvers: float, base: float, says: str
) -> None:
    answers = [[1.0] * round(20 * share) + [0.0] * round(20 * (1 - share)) for share in (solvers, base)]
    item = Scored(4, "suite-20", [(answers[0], answers[1][::-1])], 0)
    assert f"solvers are {says} the base" in held_out_claim(item)
    assert f"solvers {round(100 * solvers)}" in score_line(item)
