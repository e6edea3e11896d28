"""Notes and headline say what changed beyond the noise, and what to do about it."""

from __future__ import annotations

import math
import re
import shlex
import shutil
import statistics
from pathlib import Path

import pytest
from conftest import GENERATIONS, small_config
from store_run import write_run

from populora_core.config.load import apply_overrides
from populora_core.report import metrics
from populora_core.report.advice import STAYS
from populora_core.report.figures import Figures, read_figures
from populora_core.report.index import glance
from populora_core.report.notes import headline, notes
from populora_core.report.series import SampleMean, changed, sample_mean
from populora_core.runs.run import Run
from populora_core.store.catalogue import publish
from populora_core.store.manifest import stage_dir
from populora_plugins.pages.lead import lead_plots
from populora_plugins.pages.report import render


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A run directory with rows of two generations that no stage has made."""
    Run.create(tmp_path / "run", small_config(), "digest")
    return write_run(tmp_path / "run")


def with_problems(figures: Figures, rates: dict[int, list[float]]) -> Figures:
    """The figures with code_o problems of these solve rates, by generation."""
    like = figures["figures_generation"][0]
    rows = [
        {**like, "generation": g, "problem_type": "code_o", "problems": len(of), "problems_judged": len(of)}
        | {"solve_rate": sum(of) / len(of), "solve_rate_spread": statistics.pstdev(of)}
        | {"learnable": sum(0 < rate < 1 for rate in of) / len(of)}
        | {"never_solved": of.count(0.0) / len(of), "always_solved": of.count(1.0) / len(of)}
        for g, of in rates.items()
    ]
    views = {"figures_generation": rows, "figures_type": rows}
    return Figures(figures.run, max(rates), {**figures.rows, **views})


def test_a_generation_counts_once_its_last_stage_is_made(written: Path) -> None:
    """A run that was killed after `update` said that all of its generations were done."""
    assert headline(read_figures(written))[0].startswith(f"2 of {GENERATIONS} generations are done.")
    write_run(written, GENERATIONS)
    assert headline(read_figures(written))[0].startswith(f"All {GENERATIONS} generations are done.")
    shutil.rmtree(stage_dir(written, GENERATIONS, "evolve"))
    publish(written)
    killed = read_figures(written)
    assert killed.last == GENERATIONS, "its members have learnt"
    assert headline(killed)[0].startswith(f"{GENERATIONS - 1} of {GENERATIONS} generations are done.")
    assert f"{GENERATIONS - 1} / {GENERATIONS}" in render([killed])
    assert glance(written).generation == GENERATIONS - 1, "the list of runs says the same"


def test_the_solve_rate_is_told_as_the_mean_over_teachers_problems(written: Path) -> None:
    figures = with_problems(read_figures(written), {g: [0.5] * 10 for g in range(1, 7)})
    (plot,) = (plot for plot in lead_plots(figures) if "correct" in plot.title)
    assert "of attempts at teachers' problems are correct" in plot.title
    assert "the mean over teachers' problems, anchors left out" in plot.says
    assert plot.table is not None and plot.table.header[1] == "of attempts at teachers' problems"


def test_a_type_that_nobody_solves_is_pointed_out(written: Path) -> None:
    stalled = with_problems(read_figures(written), {g: [0.0] * 8 + [0.5] * 2 for g in range(1, 7)})
    (note,) = (note for note in notes(stalled) if "predict output is stalled" in note.text)
    assert note.kind == "watch" and note.command.startswith("populora fork "), "what to do is said too"
    solved = with_problems(read_figures(written), {g: [0.5] * 10 for g in range(1, 7)})
    assert not any("stalled" in note.text for note in notes(solved))


def with_rows(figures: Figures, **of: list[dict]) -> Figures:
    return Figures(figures.run, figures.last, {**figures.rows, **of})


def test_the_headline_says_which_end_of_a_run_had_no_problem(written: Path) -> None:
    figures = with_problems(read_figures(written), {g: [0.5] * 10 for g in range(1, 7)})

    def told(*empty: int) -> str:
        nothing = {"solve_rate": None, "problems_judged": 0}
        rows = [row | nothing if row["generation"] in empty else row for row in figures["figures_generation"]]
        return headline(with_rows(figures, figures_generation=rows))[-1]

    assert "50\u00a0% of what their teachers ask, with none judged at first." in told(1, 2)
    assert told(5, 6).startswith("No problem of the last 2 generations was solved or failed")


def test_nothing_is_said_of_a_type_that_is_no_longer_asked_nor_of_an_entropy_that_is_not_known(
    written: Path,
) -> None:
    figures = with_problems(read_figures(written), {g: [0.5] * 10 for g in range(1, 7)})
    asked = [row for row in figures["figures_type"] if row["generation"] < 4]
    like = figures["figures_member"][0]
    learnt = [like | {"generation": g, "entropy": 1.0 if g < 4 else None} for g in range(1, 7)]
    said = [note.text for note in notes(with_rows(figures, figures_type=asked, figures_member=learnt))]
    assert not [text for text in said if "predict output" in text or "entropy" in text]


def test_a_fall_in_distinct_programs_is_a_warning(written: Path) -> None:
    figures = with_problems(read_figures(written), {g: [0.5] * 10 for g in range(1, 7)})

    def told(programs: list[int]) -> bool:
        rows = [
            {**row, "distinct_programs": count}
            for row, count in zip(figures["figures_generation"], programs, strict=True)
        ]
        said = notes(with_rows(figures, figures_generation=rows))
        return any(note.kind == "watch" and "Distinct programs fall" in note.text for note in said)

    assert told([20, 20, 15, 10, 8, 8])
    assert not told([20, 20, 19, 19, 18, 18])


@pytest.mark.parametrize(
    ("inherited", "says", "commands"),
    [
        (
            {},
            ":",
            {
                "propose.temperature=1.44",
                "update.teacher_learning_rate=0.001",
                "update.learning_rate=0.002",
                'grade.teacher_reward="one_minus_p"',
            },
        ),
        (
            {
                "learning_rate": (0.001, 0.01),
                "temperature": (0.5, 1.0),
                "teacher_reward": ("one_minus_p", "learnability"),
            },
            f"{STAYS}:",
            {
                "pbt.temperature=[0.6, 1.2]",
                "pbt.learning_rate=[0.0005, 0.005]",
                'pbt.teacher_reward=["one_minus_p"]',
            },
        ),
    ],
)
def test_advice_names_the_setting_that_members_have_their_hyperparameter_from(
    tmp_path: Path, inherited: dict, says: str, commands: set[str]
) -> None:
    config = small_config(
        propose={"temperature": 1.2},
        update={"learning_rate": 0.004, "teacher_learning_rate": 0.0 if inherited else 0.002},
        grade={"teacher_reward": "learnability"},
        pbt=inherited,
    )
    Run.create(tmp_path / "run", config, "digest")
    figures = with_problems(read_figures(write_run(tmp_path / "run")), {g: [1.0] * 10 for g in range(1, 7)})
    programs = [
        {**row, "distinct_programs": 20 - 3 * row["generation"]} for row in figures["figures_generation"]
    ]
    like = {row["role"]: row for row in figures["figures_member"]}
    learnt = [
        row | {"generation": g, "entropy": 1.0 if g < 4 else 0.1}
        for row in like.values()
        for g in range(1, 7)
    ]
    said = notes(with_rows(figures, figures_generation=programs, figures_member=learnt))
    changed = [note for note in said if "--set" in note.command]
    settings = [shlex.split(note.command)[-1] for note in changed]
    assert {*settings} == commands
    assert all(note.text.endswith(says) for note in changed)
    for setting in settings:
        assert apply_overrides(config, [setting]) != config, "populora takes it as it stands"


def test_where_an_error_is_not_known_nothing_is_said_to_have_changed() -> None:
    assert changed(SampleMean(0.1, None), SampleMean(0.9, 0.01)) == 0
    assert sample_mean([(0.1, 1, 0.01), (0.2, 1, None)]) == SampleMean(pytest.approx(0.15), None)
    assert sample_mean([]) is None


def test_generations_weigh_by_what_they_count() -> None:
    assert sample_mean([(0.2, 30, 0.04), (0.6, 10, 0.03)]) == SampleMean(
        pytest.approx(0.3), pytest.approx(math.hypot(30 * 0.04, 10 * 0.03) / 40)
    )


def test_headline_and_lead_say_the_same_of_the_problems_that_teach(finished: Path) -> None:
    figures = read_figures(finished, samples=False)
    (share,) = re.findall(r"(\S+\s%) of the newest problems teach", headline(figures)[-1])
    (plot,) = (plot for plot in lead_plots(figures) if plot.title.startswith(f"{share} of the newest"))
    assert "The title compares the first generation with the last." in plot.says, "which its points do not"


def test_a_change_within_the_noise_is_no_change() -> None:
    assert changed(SampleMean(0.50, 0.02), SampleMean(0.54, 0.02)) == 0
    assert changed(SampleMean(0.50, 0.02), SampleMean(0.60, 0.02)) == 1
    assert changed(SampleMean(0.50, 0.02), SampleMean(0.40, 0.02)) == -1


def test_a_standard_error_is_that_of_the_problems_beside_two_at_either_end(written: Path) -> None:
    rates = {1: [0.0, 0.5, 1.0, 0.5], 2: [0.5, 0.5, 0.5, 0.5]}
    figures = with_problems(read_figures(written), rates)
    unseen = [0.0, 0.0, 1.0, 1.0]
    assert metrics.SOLVE_RATE.errors(figures, None) == {
        generation: pytest.approx(statistics.pstdev([*own, *unseen]) / 2) for generation, own in rates.items()
    }
    assert metrics.LEARNABLE.errors(figures, None)[1] == pytest.approx(math.sqrt(0.5 * 0.5 / 4))


@pytest.mark.parametrize(
    ("problems", "late", "claimed"), [(2, 0.25, False), (40, 0.25, True), (8, 1.0, True)]
)
def test_few_problems_that_score_alike_claim_no_change(
    written: Path, problems: int, late: float, claimed: bool
) -> None:
    rates = {1: [0.0] * problems, 2: [0.0] * problems, 3: [late] * problems}
    figures = with_problems(read_figures(written), rates)
    good = [note.text for note in notes(figures) if note.kind == "good"]
    assert any("solve rate up from 0" in text for text in good) == claimed
    assert ("within the noise" in headline(figures)[-1]) != claimed


def test_a_single_problem_tells_no_error_and_so_no_change(written: Path) -> None:
    figures = with_problems(read_figures(written), {1: [0.0], 2: [1.0]})
    assert metrics.SOLVE_RATE.errors(figures, None) == {}
    before, now = (metrics.SOLVE_RATE.mean(figures, None, range(g, g + 1)) for g in (1, 2))
    assert before is not None and now is not None and changed(before, now) == 0


def test_a_child_that_goes_at_a_later_evolution_outlived_the_next(written: Path) -> None:
    figures = read_figures(written, samples=False)
    (like,) = figures["evolutions"]
    went = [(2, 0, 0), (4, 1, 0), (6, 0, 2), (8, 0, 6)]  # generation; slot and birth of who was replaced
    rows = [
        like
        | {"generation": g, "removed_id": f"student-{slot:02d}-g{born:04d}"}
        | {"child_id": f"student-{slot:02d}-g{g:04d}"}
        for g, slot, born in went
    ]
    said = notes(with_rows(figures, evolutions=rows))
    told = [note.text for note in said if note.section == "evolution"]
    assert told == ["2 of 3 student children outlived the next evolution."]


def test_a_command_that_a_note_offers_takes_names_of_the_run_as_words(written: Path) -> None:
    """Whoever sends a run may write any text where a problem type or a member's id stands."""
    evil = "x'$(touch /tmp/y)"
    figures = read_figures(written, samples=False)
    rows = [
        row | {"problem_type": evil, "problems_judged": 0, "solve_rate": None}
        for row in figures["figures_type"]
    ]
    ratings = [row | {"member_id": evil, "eligible": False} for row in figures["ratings"]]
    said = notes(with_rows(figures, figures_type=rows, ratings=ratings))
    offered = [shlex.split(note.command) for note in said if "touch" in note.command]
    assert {words[1] for words in offered} == {"query", "inspect"}
    assert all(sum("$(touch" in word for word in words) == 1 for words in offered)
