"""What is committed of the studies: verdicts, reports, tables and pictures follow from the summaries."""

from __future__ import annotations

import html
import json
import math
import runpy
from pathlib import Path
from statistics import fmean

import pytest

from populora_core.support.errors import StudyError
from populora_core.support.shipped import REPOSITORY
from populora_plugins.study.budget import Basis, windows
from populora_plugins.study.conduct import plan
from populora_plugins.study.frontier import SOLVED
from populora_plugins.study.judgement import ClaimResult, Verdict
from populora_plugins.study.outcomes import outcomes_table
from populora_plugins.study.population import average
from populora_plugins.study.statistics import two_samples
from populora_plugins.study.summary import ALL, AVERAGE, MOST_BYTES, Summary, recorded_by, stage_versions
from populora_plugins.study.tables import claims_table
from populora_plugins.study.verdicts import VERDICTS, as_json, read_results

COMMITTED = REPOSITORY / "bench/results/study-1"
SECOND = COMMITTED.with_name("study-2")


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


@pytest.mark.parametrize(
    ("study", "revision"), [("study-tiny", "91daa85973e0"), ("study-frontier", "995e0a1d3597")]
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


def test_the_page_says_how_far_the_third_study_is() -> None:
    page = (REPOSITORY / "docs" / "study.md").read_text()
    results = read_results(COMMITTED.with_name("study-3"))
    assert f"{len(results.runs)} of 50 runs are made" in page
    told = {claim.key: (verdict, own) for claim, verdict, own in results.answers()}
    effects = {
        key: 100 * answer.test.value for key, (_, (answer,)) in told.items() if answer.test is not None
    }
    assert f"scores {-effects['teachers']:.1f} points less" in page
    assert f"score {effects['merging']:.1f} points more" in page
    assert f"gains {effects['meeting']:.1f} points by it" in page
    supported = dict.fromkeys(("inherits", "average", "meeting", "merging"), Verdict.SUPPORTED)
    others = {"teachers": Verdict.REFUTED, "pays": Verdict.CANNOT_TELL}
    assert {key: verdict for key, (verdict, _) in told.items()} == supported | others


def test_the_log_tells_what_merging_repeats_from_what_it_adds() -> None:
    """Members of `averaged` beside the average of those that never became theirs, which no claim compares."""
    page = (REPOSITORY / "docs" / "lab-log" / "2026-11-28-third-study-so-far.md").read_text()
    results = read_results(COMMITTED.with_name("study-3"))
    never, merged = results.of("pop-4+4"), results.of("averaged")
    averages = [run.series(f"{AVERAGE}.levels_2_5", ALL)[60] for run in never]
    beside = {
        "The one adapter scores": two_samples([members(run, 60) for run in merged], averages),
        "its members score": two_samples(*([members(run, 45) for run in runs] for runs in (merged, never))),
        "The adapter of `averaged` scores": two_samples(
            *(
                [average(each) for each in arm]
                for arm in windows([merged, results.of("pop-1+1")], Basis.TOTAL)
            )
        ),
    }
    for told, test in beside.items():
        effect, low, high = (
            f"{100 * value:.1f}".replace("-", "−") for value in (test.value, test.low, test.high)
        )
        assert f"{told} {effect} points ({low} to {high})" in page
    assert (
        f"beat the pair by\n{effect} points ({low} to {high})"
        in (REPOSITORY / "docs" / "study.md").read_text()
    )


def members(run: Summary, generation: int) -> float:
    """The mean score of a run's students on levels 2 to 5."""
    return fmean(run.series(SOLVED, student)[generation] for student in run.solvers(SOLVED))


@pytest.mark.parametrize("study", ["study-1", "study-2"])
def test_the_pictures_are_drawn_from_the_summaries(tmp_path: Path, study: str) -> None:
    images = REPOSITORY / "docs" / "images"
    picture = f"{study}.svg"
    runpy.run_path(str(images / "study.py"))["write"](study, tmp_path / picture)
    assert (tmp_path / picture).read_text() == (images / picture).read_text()


def _rounded(value: object) -> object:
    """Numbers to six digits: sums of floats may end differently on another machine."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
