"""The page of a report: well formed, fetching nothing, with every figure, score and comparison of its runs."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
from conftest import small_config
from hypothesis import given
from hypothesis import strategies as st
from store_run import (
    STUDENT,
    commit_stage,
    evaluation_row,
    generation_tables,
    write_run,
)

from populora_core.problems.types import PROBLEM_TYPES
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.report import metrics, text
from populora_core.report.charts import Plot
from populora_core.report.figures import Figures, read_figures
from populora_core.report.notes import headline
from populora_core.report.page import excerpt
from populora_core.report.scalars import by_generation
from populora_core.runs.run import Run
from populora_core.stages.table import STAGES as LOOP
from populora_core.store.catalogue import publish, run_labels
from populora_core.store.record import RECORD
from populora_plugins.pages.colours import INFRASTRUCTURE, STAGES, VERDICTS
from populora_plugins.pages.comparison import comparison_sections
from populora_plugins.pages.lineage import replacements
from populora_plugins.pages.report import render
from populora_plugins.pages.sections import sections

VOID = {"meta", "link", "br", "img", "hr", "input"}
HOSTILE = "</pre></details><script>alert(1)</script><img src=x onerror=alert(2)>\x00\x1b[31m\u202e & &lt;"


class Page(HTMLParser):
    """The tags of a page, checked to be nested rightly, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attributes if name in ("href", "src")]
        assert not any(name.startswith("on") for name, _ in attributes)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A run directory with rows of two generations that no stage has made."""
    Run.create(tmp_path / "run", small_config(), "digest")
    return write_run(tmp_path / "run")


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of such a run."""
    directory = tmp_path_factory.mktemp("page") / "run"
    Run.create(directory, small_config(), "digest")
    return render([read_figures(write_run(directory))])


@pytest.fixture(scope="module")
def figures(finished: Path) -> Figures:
    return read_figures(finished)


def replace_texts(run_dir: Path, hostile: str) -> None:
    """Rewrite generation 2 with hostile text wherever a model writes."""
    tables = generation_tables(2)
    for stage in ("propose", "verify", "solve", "grade"):
        for rows in tables[stage].values():
            for row in rows:
                row.update(
                    {key: hostile for key in ("prompt", "completion", "program", "answer") if row.get(key)}
                )
        commit_stage(run_dir, 2, stage, tables[stage])
    publish(run_dir)


def newest(plot: Plot) -> dict[str, str]:
    """label -> the newest value of the line, without its band, from the table behind the plot."""
    assert plot.table is not None
    columns = zip(*(cells for _, cells in plot.table.rows), strict=True)
    cells = [[cell for cell in column if cell][-1] for column in columns]
    return dict(zip(plot.table.header[1:], (cell.partition(" (")[0] for cell in cells[1:]), strict=True))


def drawings(html: str) -> Iterator[ElementTree.Element]:
    for found in re.findall(r"<svg .*?</svg>", html, re.DOTALL):
        yield ElementTree.fromstring(found)


def test_the_page_is_well_formed_and_fetches_nothing(html: str) -> None:
    page = Page(html)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert not re.search(r"url\(|@import|https?://(?!www.w3.org/2000/svg)", html)
    assert 0 < page.tags.count("svg") == sum(drawing.tag == "svg" for drawing in drawings(html))


def test_the_page_runs_its_own_script_alone_and_that_is_small(html: str) -> None:
    (script,) = re.findall("<script>(.*?)</script>", html, re.DOTALL)
    (allowed,) = re.findall("script-src '([^']+)'", html)
    assert allowed == f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"
    assert len(script) < 8192


def test_every_plot_has_a_name_and_the_numbers_behind_it(figures: Figures) -> None:
    for section in sections(figures):
        for plot in section.plots:
            drawing = ElementTree.fromstring(str(plot.drawing))
            assert drawing.get("role") == "img" and str(drawing.get("aria-label")).startswith(plot.title)
            assert plot.table is not None and plot.table.rows
            assert {len(cells) for _, cells in plot.table.rows} == {len(plot.table.header)}


def test_links_lead_to_sections_that_are_there(html: str) -> None:
    anchors = set(re.findall(r'<section id="([^"]+)"', html))
    assert {link.removeprefix("#") for link in Page(html).links if link.startswith("#")} <= anchors


def test_model_written_text_is_shown_and_never_obeyed(written: Path) -> None:
    replace_texts(written, HOSTILE)
    page = Page(render([read_figures(written)]))
    assert page.tags.count("script") == 1 and "img" not in page.tags
    shown = "".join(page.words)
    assert shown.count("<script>alert(1)</script>") >= 4  # program, prompt, completion, attempts
    assert "\u2400\u241b[31m\u27e8U+202E\u27e9 & &lt;" in shown
    assert not re.search("[\x00\x1b\u202e]", shown)


@given(st.text())
def test_visible_text_holds_nothing_that_a_page_would_swallow(value: str) -> None:
    shown = text.visible(value)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown)
    assert text.visible(shown) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (999.7, "1000"),
        (1234.5, "1234"),
        (9999.7, "10k"),
        (12_345, "12.3k"),
        (999_999, "1M"),
        (-0.0125, "−0.0125"),
    ],
)
def test_numbers_have_three_digits_and_never_an_exponent_for_what_rounds_up(value: float, shown: str) -> None:
    assert text.number(value) == shown


def test_long_text_is_cut_and_says_so() -> None:
    assert excerpt("x" * 11, 10).startswith("x" * 10 + "\n[… 1 more characters")
    assert excerpt("x" * 10, 10) == "x" * 10


def test_a_report_shows_every_part_that_the_run_has_rows_for(figures: Figures) -> None:
    shown = {section.key: section for section in sections(figures)}
    assert set(shown) == {
        *("lead", "learning", "ratings", "complexity", "policies"),
        *("verdicts", "evolution", "cost", "samples"),
    }
    titles = {plot.title for section in shown.values() for plot in section.plots}
    assert {"Solve rate", "Match-ups", "Policy entropy", "Time by stage", "Tokens"} <= titles
    assert {"Teachers' reward", "AST depth", "Cyclomatic complexity", "Lines of code", "Variables"} <= titles
    assert {"Ratings of the teachers", "Lineage of the students", "Coverage of the problem space"} <= titles
    for name in PROBLEM_TYPES:
        assert f"Refused proposals: {text.plain(name)}" in titles


def test_a_sample_shows_the_exact_prompt_and_every_attempt(figures: Figures) -> None:
    assert figures.samples
    for sample in figures.samples:
        assert len(sample.attempts) == figures.run.config.solve.attempts
        rates = [attempt["verdict"] == "correct" for attempt in sample.attempts]
        assert sum(rates) / len(rates) == pytest.approx(sample.problem["solve_rate"])


@pytest.mark.parametrize(
    ("arguments", "written"), [("(4,)", "f(4)"), ("([1, 2], 'a')", "f([1, 2], 'a')"), ("24: 1 2", "f24: 1 2")]
)
def test_a_call_is_shown_as_it_is_written(arguments: str, written: str) -> None:
    assert text.call(arguments) == written


def plot_of(figures: Figures, title: str) -> Plot:
    (plot,) = (plot for section in sections(figures) for plot in section.plots if plot.title == title)
    return plot


def test_solve_rates_are_those_of_the_view(figures: Figures) -> None:
    plot = plot_of(figures, "Solve rate")
    for label, value in newest(plot).items():
        rows = [
            r for r in figures["figures_type"] if text.plain(r["problem_type"]) == label and r["problems"]
        ]
        assert value == text.percent(max(rows, key=lambda row: row["generation"])["solve_rate"])


def test_a_teacher_without_a_judged_problem_is_not_the_hardest_and_a_large_side_shows_the_living(
    written: Path,
) -> None:
    figures = read_figures(written, samples=False)
    (match,) = figures["matches"]
    unjudged, other, *more = (f"teacher-{number:02d}-g0000" for number in range(21))

    def matchups(*others: str) -> Plot:
        rows = [match | {"teacher_id": unjudged, "judged": 0, "correct": 0.0}]
        rows += [match | {"teacher_id": name} for name in others]
        met = Figures(figures.run, figures.last, figures.rows | {"matches": rows})
        return plot_of(met, "Match-ups")

    drawn = str(matchups(other).drawing)
    assert drawn.index(text.short_id(other)) < drawn.index(text.short_id(unjudged)), "from the top"
    assert "living" not in matchups(other).says
    large = matchups(other, *more)
    assert "only the living are shown" in large.says and text.short_id(other) not in str(large.drawing)


def test_the_caption_of_ratings_says_what_is_drawn(written: Path) -> None:
    figures = read_figures(written, samples=False)
    like = next(row for row in figures["ratings"] if row["role"] == "student")

    def ratings(members: int) -> Plot:
        rows = [like | {"slot": slot, "member_id": f"student-{slot:02d}-g0000"} for slot in range(members)]
        return plot_of(
            Figures(figures.run, figures.last, figures.rows | {"ratings": rows}), "Ratings of the students"
        )

    few, many = ratings(8), ratings(9)
    assert "a line per slot" in few.says and "percentile" not in few.says
    assert "best, median and weakest member, the band from the 10th to the 90th percentile" in many.says
    assert "slot" not in many.says and list(newest(many)) == ["best", "median", "weakest"]


def test_evaluations_appear_once_there_are_any(figures: Figures) -> None:
    scores = [
        {"generation": g, "suite": "held-out", "benchmark": "mini", "role": "student", "score": 0.2 * g}
        | {"lowest": 0.1 * g, "highest": 0.3 * g}
        for g in (1, 3)
    ]
    evaluated = Figures(figures.run, figures.last, {**figures.rows, "evaluations": scores})
    shown = next(section for section in sections(evaluated) if section.key == "evaluations")
    assert [plot.title for plot in shown.plots] == ["held-out: mini"]
    assert newest(shown.plots[0]) == {"students": text.percent(0.6)}


@pytest.fixture
def evaluated_warm(written: Path) -> Figures:
    """The figures of a run whose newest generation was asked one benchmark at temperatures 0 and 0.6."""
    warm = evaluation_row(2, STUDENT, score=0.75) | {"temperature": 0.6}
    commit_stage(written, 2, "evaluate-warm", {"evaluations": [warm]})
    return read_figures(written, samples=False)


def test_scores_of_two_temperatures_are_two_series_and_a_greedy_ones_name_says_none(
    evaluated_warm: Figures,
) -> None:
    newest = [row for row in evaluated_warm["evaluations"] if row["generation"] == 2]
    assert {row["benchmark"]: row["score"] for row in newest} == {
        "counting, pass@1, validation": 0.5,
        "counting, pass@1, T 0.6, validation": 0.75,
    }


def test_fitnesses_of_a_suite_are_told_apart_in_the_table_of_replacements(written: Path) -> None:
    figures = read_figures(written, samples=False)
    (like,) = figures["evolutions"]
    gone = [like | {"removed_fitness": fitness} for fitness in (0.26, 0.34, 24.93, None)]
    rows = replacements(Figures(figures.run, figures.last, {**figures.rows, "evolutions": gone}))
    assert [row["its fitness"] for row in rows] == ["0.26", "0.34", "24.9", ""]


def test_the_time_of_all_evaluations_is_one_part_of_a_bar(evaluated_warm: Figures) -> None:
    plot = plot_of(evaluated_warm, "Time by stage")
    assert newest(plot)["evaluate"] == text.seconds(2 * 1.5)
    assert not [key.label for key in plot.keys if "warm" in key.label]


def test_a_record_that_names_no_origin_has_a_report(written: Path) -> None:
    record = json.loads((written / RECORD).read_text())
    del record["forked_from"]
    (written / RECORD).write_text(json.dumps(record))
    assert "forked_from" in render([read_figures(written)])


def test_scores_of_two_temperatures_are_drawn_apart(evaluated_warm: Figures) -> None:
    shown = {section.key: section for section in sections(evaluated_warm)}["evaluations"]
    assert {plot.title: list(newest(plot).values()) for plot in shown.plots} == {
        "small: counting, pass@1, validation": [text.percent(0.5)],
        "small: counting, pass@1, T 0.6, validation": [text.percent(0.75)],
    }


def test_trackers_are_told_scores_of_two_temperatures_apart(evaluated_warm: Figures) -> None:
    told = by_generation(evaluated_warm)[2]
    assert {name: value for name, value in told.items() if name.startswith("score/")} == {
        "score/small, counting, pass@1, validation, student": 0.5,
        "score/small, counting, pass@1, T 0.6, validation, student": 0.75,
    }


def test_a_run_without_a_generation_says_so(tmp_path: Path) -> None:
    Run.create(tmp_path / "run", small_config(), "digest")
    run_dir = write_run(tmp_path / "run", generations=0)
    assert "no generation is done yet" in headline(read_figures(run_dir))[0]
    Page(render([read_figures(run_dir)]))


def test_a_generation_that_is_not_finished_is_left_out(written: Path) -> None:
    tables = generation_tables(3)
    for stage in ("match", "propose", "verify"):
        commit_stage(written, 3, stage, tables[stage])
    figures = read_figures(written)
    assert figures.last == 2
    assert max(row["generation"] for row in figures["figures_type"]) == 2


def test_every_verdict_and_stage_has_a_colour() -> None:
    grouped = [verdict for _, verdicts in VERDICTS.values() for verdict in verdicts]
    assert sorted([*grouped, INFRASTRUCTURE]) == sorted(
        {*map(str, ProposalVerdict), *map(str, AttemptVerdict)}
    )
    assert set(LOOP) <= set(STAGES)


def test_runs_are_compared_with_the_first(finished: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / finished.name
    shutil.copytree(finished, other)
    runs = [read_figures(finished, samples=False), read_figures(other, samples=False)]
    labels = run_labels([figures.run.directory for figures in runs])
    assert len(set(labels)) == 2 and labels[1] == f"elsewhere/{finished.name}"
    shown = {section.key: section for section in comparison_sections(runs)}
    differences = shown["differences"].tables[0]
    assert differences.header == ("figure", *labels, f"{labels[1]}, difference")
    figures_of = {row["figure"]: row for row in differences.rows}
    assert figures_of["Solve rate"][labels[0]] == figures_of["Solve rate"][labels[1]]
    del figures_of["Time of a generation, per 100 proposals"]
    assert all(re.match(r"(≈ )?0", row[f"{labels[1]}, difference"]) for row in figures_of.values())
    assert all(len(newest(plot)) == 2 for plot in shown["overlay"].plots)
    assert "settings" not in shown  # nothing differs
    Page(render(runs))


def test_a_comparison_begins_with_the_settings_that_differ(finished: Path, tmp_path: Path) -> None:
    other = tmp_path / "steps"
    shutil.copytree(finished, other)
    record = json.loads((other / RECORD).read_text())
    record["config"]["update"]["learning_rate"] = 0.5
    (other / RECORD).write_text(json.dumps(record))
    page = render([read_figures(each, samples=False) for each in (finished, other)])
    assert page.count('class="card"') == 2
    assert page.index("update.learning_rate") < page.index('class="card"') < page.index('id="differences"')


def test_what_is_counted_is_compared_per_100_proposals(figures: Figures) -> None:
    row = figures["figures_generation"][-1]
    x, rate = metrics.PROGRAMS.rates(figures, None)[-1]
    assert (x, rate) == (row["generation"], pytest.approx(100 * row["distinct_programs"] / row["proposals"]))
    so_far = sum(own["proposals"] for own in figures["figures_generation"])
    assert metrics.CELLS.rates(figures, None)[-1][1] == pytest.approx(100 * row["cumulative_cells"] / so_far)


def test_novelty_begins_where_something_can_be_repeated(figures: Figures) -> None:
    rows = figures["figures_generation"]
    shown = dict(metrics.NOVELTY.points(figures, None))
    assert rows[0]["novelty"] > rows[-1]["novelty"], "nothing was there before the first"
    assert shown == {row["generation"]: row["novelty"] if row["generation"] > 1 else None for row in rows}


def test_a_solo_member_is_shown_in_both_roles(finished_solo: Path) -> None:
    figures = read_figures(finished_solo)
    plots = {plot.title: plot for section in sections(figures) for plot in section.plots}
    assert list(newest(plots["Policy entropy"])) == ["teachers", "students"]
    assert not {"Match-ups", "Ratings of the solos"} & set(plots), "it meets itself alone"
    assert "attempts, at anchors too" in "".join(Page(render([figures])).words)
