"""What is committed of the studies: verdicts, reports, tables and pictures follow from the summaries."""

from __future__ import annotations

import html
import json
import math
import runpy
from collections import Counter
from dataclasses import replace
from statistics import fmean, stdev

import pytest

from populora_core.report.text import signed
from populora_core.support.errors import StudyError
from populora_core.support.shipped import REPOSITORY
from populora_plugins.study.budget import Basis, windows
from populora_plugins.study.conduct import plan
from populora_plugins.study.frontier import SOLVED
from populora_plugins.study.judgement import Claim, ClaimResult, Verdict
from populora_plugins.study.outcomes import outcomes_table
from populora_plugins.study.statistics import Test, two_samples
from populora_plugins.study.summary import (
    ALL,
    AVERAGE,
    MOST_BYTES,
    Summary,
    read_summary,
    recorded_by,
    stage_versions,
)
from populora_plugins.study.tables import claims_table
from populora_plugins.study.verdicts import VERDICTS, Results, as_json, read_results

COMMITTED = REPOSITORY / "bench/results/study-1"
SECOND, THIRD = (COMMITTED.with_name(name) for name in ("study-2", "study-3"))
IMAGES = REPOSITORY / "docs" / "images"
COUNTED = ("None", "One", "Two", "Three", "Four", "Five", "Six")


@pytest.mark.parametrize("study", ["study-1", "study-2", "study-3", "study-real"])
def test_every_committed_verdict_follows_from_the_committed_summaries(study: str) -> None:
    results = COMMITTED.with_name(study)
    kept = json.loads((results / VERDICTS).read_text())
    made = json.loads(json.dumps(as_json(read_results(results))))
    assert [claim["verdict"] for claim in made["claims"]] == [claim["verdict"] for claim in kept["claims"]]
    assert _rounded(made) == _rounded(kept)


def test_the_first_study_is_a_record_of_thirty_runs_by_one_committed_code() -> None:
    runs = read_results(COMMITTED).runs
    assert len(runs) == 30
    assert {run.origin.code_revisions for run in runs} == {(recorded_by(COMMITTED),)}
    assert max(path.stat().st_size for path in COMMITTED.glob("*.parquet")) <= MOST_BYTES


def test_what_decides_the_second_study_is_a_record_of_eight_runs_an_arm_by_one_committed_code() -> None:
    results = read_results(SECOND)
    runs = [run for arm in results.compared.values() for run in results.of(arm)]
    assert len(runs) == 32
    assert {run.origin.code_revisions for run in runs} == {(recorded_by(SECOND),)}


def test_the_study_on_a_real_model_is_a_record_of_five_runs_an_arm_that_decides_and_two_that_describe() -> (
    None
):
    results = read_results(COMMITTED.with_name("study-real"))
    arms = Counter(run.origin.arm for run in results.runs)
    deciding = dict.fromkeys(("self-play", "format-only", "pool"), 5)
    assert arms == deciding | dict.fromkeys(("frozen-teacher", "shuffled", "own-answers"), 2)
    (revision,) = {
        name.removesuffix("+changes") for run in results.runs for name in run.origin.code_revisions
    }
    assert revision == recorded_by(COMMITTED.with_name("study-real"))


@pytest.mark.parametrize(
    ("study", "revision"),
    [("study-tiny", "91daa85973e0"), ("study-frontier", "995e0a1d3597"), ("study-real", "5ddaf74a21b2")],
)
def test_a_record_is_neither_voided_nor_made_again(
    monkeypatch: pytest.MonkeyPatch, study: str, revision: str
) -> None:
    monkeypatch.chdir(REPOSITORY)
    raised = dict.fromkeys(stage_versions(), 99)
    monkeypatch.setattr("populora_plugins.study.summary.stage_versions", lambda: raised)
    with pytest.raises(
        StudyError, match=rf"are a record, made by revision {revision}\n(.*\n)*.*study report"
    ):
        plan(f"configs/{study}.toml")


def paper_rows() -> list[str]:
    """The first table of docs/study.md, as it follows from the summaries."""

    def shown(value: float) -> str:
        return f"{value:.2g}".replace("-", "−") if math.isfinite(value) else "none"

    def effect(answer: ClaimResult) -> str:
        test = answer.test
        assert test is not None
        ends = f" ({shown(test.low)} to {shown(test.high)})" if math.isfinite(test.low) else ""
        return shown(test.value) + ends

    return [
        f"| {claim.title} ({claim.unit}) | {verdict} | {' | '.join(map(effect, own))} |"
        for claim, verdict, own in read_results(COMMITTED).answers()
    ]


ABOVE = "levels 2 to 5, above pop-4+4"
SCORES = ("edge", "weakest member", "taken home", "vote", "pass@8")
PROBLEMS = ("level of problems", "chance", "chance above a fifth")


def frontier_rows() -> list[str]:
    """The tables of docs/study.md on the second study: claims of both families, and where the runs end."""
    results = read_results(SECOND)
    told = ("claim", "verdict", "why", "effect (95 % interval)", "margin", "p, Holm")
    claims = [row for family in results.families for row in claims_table(results.answers(family)).rows]
    outcomes = outcomes_table(results).rows
    rows = [[row[name] for name in told] for row in claims]
    rows += [
        [row["arm"], row["levels 2 to 5"], row[ABOVE], *(mean_of(row[name]) for name in SCORES)]
        for row in outcomes
    ]
    rows += [[row["arm"], *(mean_of(row[name]) for name in PROBLEMS)] for row in outcomes[1:]]
    return [f"| {' | '.join(row)} |" for row in rows]


def mean_of(cell: str) -> str:
    return cell.partition(" ")[0]


@pytest.mark.parametrize("study", ["study-1", "study-2"])
def test_the_committed_report_is_that_of_the_committed_summaries(study: str) -> None:
    results = COMMITTED.with_name(study)
    report = html.unescape((results / "report.html").read_text())
    body = report[report.index("<tbody") :]
    for row in claims_table(read_results(results).answers()).rows:
        for cell in row.values():  # in their order, so that a verdict stands in the row of its claim
            assert cell in body
            body = body[body.index(cell) + len(cell) :]


def test_the_page_says_what_the_studies_found() -> None:
    page = (REPOSITORY / "docs" / "study.md").read_text()
    for row in paper_rows() + frontier_rows():
        assert row in page


@pytest.fixture(scope="module")
def third() -> Results:
    return read_results(THIRD)


@pytest.fixture(scope="module")
def judged(third: Results) -> list[tuple[ClaimResult, Test]]:
    """The claims of the third study, each of which names one basis, with their tests."""
    answers = [answer for _, _, (answer,) in third.answers()]
    return [(answer, answer.test) for answer in answers if answer.test is not None]


def test_the_page_says_how_far_the_third_study_is(
    third: Results, judged: list[tuple[ClaimResult, Test]]
) -> None:
    page, evolution = ((REPOSITORY / "docs" / name).read_text() for name in ("study.md", "evolution.md"))
    made, planned = len(third.runs), third.planned
    assert (f"{made} of {planned} runs are made" if planned else f"All {made} runs are made") in page
    supported = sum(answer.verdict is Verdict.SUPPORTED for answer, _ in judged)
    assert f"{COUNTED[supported]} of six claims are supported" in page
    effects = {answer.claim.key: test for answer, test in judged}
    points = {key: f"{100 * abs(test.value):.1f} points" for key, test in effects.items()}
    assert f"scores {points['teachers']} less" in page
    assert f"score {points['merging']} more" in page
    assert f"gains {points['meeting']} by it" in page
    assert f"it cost {bounded(effects['inherits'])}" in evolution


def test_the_log_says_what_each_claim_of_the_third_study_comes_to(
    third: Results, judged: list[tuple[ClaimResult, Test]]
) -> None:
    for answer, test in judged:
        claim = answer.claim
        (row,) = (line.strip("| ").split(" | ") for line in log() if line.startswith(f"| {claim.key}: "))
        assert row[1] == ", ".join(str(len(runs)) for runs in sides(third, claim))
        assert row[2].lstrip("+") == bounded(test)
        assert float(row[3]) == pytest.approx(100 * claim.margin)
        assert row[4].partition(":")[0] == answer.verdict.value


def test_the_log_says_how_far_seeds_of_the_third_study_lie_apart(
    third: Results, judged: list[tuple[ClaimResult, Test]]
) -> None:
    for answer, _ in judged:
        claim = answer.claim
        values = [
            [value for run in side if (value := claim.statistic(run)) is not None]
            for side in windows(sides(third, claim), answer.basis)
        ]
        told = ", ".join(f"{stdev(own):.3f}".removeprefix("0") for own in values)
        assert [
            line for line in log() if line.startswith(f"| {claim.key} | ") and line.endswith(f" | {told} |")
        ]


def test_the_log_says_what_the_third_study_took(third: Results) -> None:
    for arm in third.arms:
        seconds = [run.origin.seconds for run in third.of(arm)]
        hours, minutes = sum(seconds) / 3600, fmean(seconds) / 60
        assert f"| `{arm}` | {len(seconds)} | {hours:.1f} | {minutes:.0f} |" in log()
    assert f"took {sum(run.origin.seconds for run in third.runs) / 3600:.1f} hours" in "\n".join(log())


def test_the_log_tells_what_merging_repeats_from_what_it_adds(third: Results) -> None:
    """Members of `averaged` beside the average of those that never became theirs, which no claim compares."""
    page, never, merged = "\n".join(log()), third.of("pop-4+4"), third.of("averaged")
    averages = [run.series(f"{AVERAGE}.levels_2_5", ALL)[60] for run in never]
    beside = {
        "The one adapter scores": two_samples([members(run, 60) for run in merged], averages),
        "its members score": two_samples(*([members(run, 45) for run in runs] for runs in (merged, never))),
        "The adapter of `averaged` scores": leads(third, Basis.TOTAL)[-1],
    }
    for told, test in beside.items():
        assert f"{told} {bounded(test)}" in page


def test_the_pages_say_what_the_picture_shows_of_what_a_user_takes_home(third: Results) -> None:
    page, readme = ((REPOSITORY / name).read_text() for name in ("docs/study.md", "README.md"))
    *_, average, averaged = leads(third, Basis.TOTAL)
    assert f"beat the pair by\n{bounded(averaged)}" in page
    assert f"lead by {bounded(leads(third, Basis.SECONDS)[-1])}" in page
    assert bounded(average).replace(" points (", ", ") in readme
    assert f"lead by {100 * averaged.value:.1f} " in readme


def leads(results: Results, basis: Basis) -> list[Test]:
    """The leads over the pair that docs/images/study-3.svg draws; the last two are the average's and `averaged`'s."""
    drawn = runpy.run_path(str(IMAGES / "study.py"))["taken_home"](results, basis)
    return [each.above for each in drawn if each.above is not None]


def test_the_log_says_how_the_study_on_a_real_model_stands() -> None:
    real = read_results(COMMITTED.with_name("study-real"))
    rows = {line.split("`")[1]: line for line in log("real") if line.startswith("| `")}
    arms = {run.origin.arm for run in real.runs}
    assert rows.keys() == arms
    for arm in arms:
        own = sorted((run for run in real.runs if run.origin.arm == arm), key=lambda run: run.origin.seed)
        scores = [run.series("held_out.cruxeval_o", "student-00") for run in own]
        for generation in (12, 24):
            assert f"| {', '.join(three(score[generation]) for score in scores)} |" in rows[arm]
        assert rows[arm].endswith(f"| {three(fmean(score[24] for score in scores))} |")
    page = "\n".join(log("real"))
    told = {
        "over_pool": (Verdict.REFUTED, "by {} points at equal updates ({} to {})"),
        "over_format": (Verdict.NO_DIFFERENCE, "{} points above them ({} to {})"),
    }
    for claim, _, (answer,) in real.answers():
        verdict, sentence = told[claim.key]
        assert answer.verdict is verdict and answer.test is not None
        test = answer.test
        ends = (signed(-100 * end, 1).lstrip("+") for end in (test.value, test.high, test.low))
        assert sentence.format(*ends) in page


def test_a_run_of_the_real_study_made_again_has_the_same_figures() -> None:
    first, again = (
        read_summary(COMMITTED.with_name(folder) / "frozen-teacher-seed-0000.parquet")
        for folder in ("study-real", "real-again")
    )
    took = first.origin.seconds, first.origin.evaluation_seconds
    assert first.origin != again.origin, "two runs, not one file twice"
    assert first.origin == replace(again.origin, seconds=took[0], evaluation_seconds=took[1])
    assert first.values and first.values == again.values


def three(score: float) -> str:
    return f"{score:.3f}".lstrip("0")


def log(study: str = "third") -> list[str]:
    """The lines of the newest page of the lab log on a study."""
    newest = sorted((REPOSITORY / "docs" / "lab-log").glob(f"*-{study}-study*.md"))[-1]
    return newest.read_text().splitlines()


def sides(results: Results, claim: Claim) -> list[list[Summary]]:
    """The runs that a claim compares."""
    return [results.of(results.compared[arm]) for arm in (claim.first, claim.against) if arm is not None]


def bounded(test: Test) -> str:
    """An effect in points, with its interval."""
    value, low, high = (signed(100 * end, 1).lstrip("+") for end in (test.value, test.low, test.high))
    return f"{value} points ({low} to {high})"


def members(run: Summary, generation: int) -> float:
    """The mean score of a run's students on levels 2 to 5."""
    return fmean(run.series(SOLVED, student)[generation] for student in run.solvers(SOLVED))


@pytest.mark.parametrize("study", ["study-1", "study-2", "study-3"])
def test_the_pictures_are_drawn_from_the_summaries(study: str) -> None:
    results = read_results(COMMITTED.with_name(study))
    pictures = runpy.run_path(str(IMAGES / "study.py"))["PICTURES"]
    drawn = {name: draw(results) for name, (source, draw) in pictures.items() if source == study}
    assert drawn
    for name, picture in drawn.items():
        assert (IMAGES / f"{name}.svg").read_text() == f"{picture}\n"


def _rounded(value: object) -> object:
    """Numbers to six digits: sums of floats may end differently on another machine."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
