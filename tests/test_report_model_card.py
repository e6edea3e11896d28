"""A model card: the lineage, ratings, evaluations and settings behind an exported member."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from conftest import small_config, start
from markdown_it import MarkdownIt
from run_members import members_of, oldest
from store_run import STUDENT, TEACHER, commit_stage, evaluation_row, generation_tables, write_run

from populora_core.lifecycle.export import CARD, export_member
from populora_core.report.model_card import Snapshot, model_card
from populora_core.runs.run import Run
from populora_core.store.catalogue import Catalogue

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]


@pytest.fixture
def run(finished: Path) -> Run:
    return Run.open(finished)


def test_the_card_tells_the_newest_evaluation_that_was_made_by_then(
    copy_of: Callable[[], Path], tmp_path: Path
) -> None:
    run = Run.open(copy_of())
    member = oldest(run)
    for generation, score in ((1, 0.125), (2, 0.5), (3, 0.625)):
        row = evaluation_row(generation, member, score)
        commit_stage(run.directory, generation, "evaluate", {"evaluations": [row]})
    export_member(run, member, tmp_path / "out", generation=2)
    card = (tmp_path / "out" / CARD).read_text()
    assert "\n## Evaluations\n" in card
    assert "| 2 | small | validation | counting | pass@1 | 0 | 8 | 0.5 | 0.25 | 0.875 |" in card
    assert "0.125" not in card and "0.625" not in card


@pytest.mark.thorough
def test_ratings_of_a_long_run_stay_a_short_table(tmp_path: Path) -> None:
    run = start(tmp_path / "long", small_config())
    write_run(run.directory, 25)
    with Catalogue(run.directory) as catalogue:
        member = catalogue.rows("SELECT * FROM members WHERE member_id = ?", [TEACHER])[0]
    solo = Snapshot(run, member | {"role": "solo"}, 25, Path("unread"), "0" * 64)
    assert "## Ratings" not in model_card(solo, "base", Path("out"), merged=False), "it meets no one"
    card = model_card(replace(solo, member=member), "base", Path("out"), merged=False)
    ratings = card.partition("## Ratings")[2].partition("## Training")[0]
    shown = [int(number) for number in re.findall(r"^\| (\d+) \|", ratings, re.MULTILINE)]
    assert (len(shown), shown[0], shown[-1]) == (10, 1, 25)
    assert shown == sorted(set(shown))


def test_a_founder_without_a_match_has_no_rating_on_its_card(run: Run, tmp_path: Path) -> None:
    export_member(run, oldest(run), tmp_path / "out", generation=0)
    assert "It has played no match yet." in (tmp_path / "out" / CARD).read_text()


def front_matter(card: str) -> dict:
    return yaml.safe_load(card.split("---\n")[1])


def test_the_card_tells_lineage_ratings_settings_and_revision(run: Run, tmp_path: Path) -> None:
    child = members_of(run, "born_generation = 2 AND died_generation IS NULL")[0]
    export_member(run, child, tmp_path / "out")
    card = (tmp_path / "out" / CARD).read_text()
    with Catalogue(run.directory) as catalogue:
        born = catalogue.rows("SELECT * FROM members WHERE member_id = ?", [child])[0]
        rating = catalogue.rows("SELECT * FROM ratings WHERE member_id = ? AND generation = 3", [child])[0]
    assert f"| {child} | 2 | {born['operator']} | {', '.join(born['parent_ids'])} |" in card
    for parent in born["parent_ids"]:
        assert f"| {parent} | 0 | founder | none |" in card
    assert f"mu {rating['mu']:.2f}, sigma {rating['sigma']:.2f}" in card
    assert "## Evaluations" not in card
    assert json.loads(re.search(r"```json\n(.*?)```", card, re.DOTALL)[1]) == run.config.as_json()
    assert run.record["code_revision"] in card
    assert run.record["base_digest"] in card
    assert "$" not in card


@pytest.mark.parametrize(
    ("dialect", "module", "templated"),
    [
        ("compact", "populora_core.problems.dialects.compact", False),
        ("instruct", "populora_core.problems.dialects.instruct", True),
        ("chat", "populora_plugins.repl.dialects", True),
        ("nobodys", None, False),
    ],
)
def test_the_card_says_where_the_grammar_of_its_prompts_is_and_what_goes_round_them(
    dialect: str, module: str | None, templated: bool, tmp_path: Path
) -> None:
    run = start(tmp_path / "run", small_config(base={"dialect": dialect}))
    write_run(run.directory, 1)
    with Catalogue(run.directory) as catalogue:
        member = catalogue.rows("SELECT * FROM members WHERE member_id = ?", [TEACHER])[0]
    card = model_card(Snapshot(run, member, 1, Path("unread"), "0" * 64), "base", Path("out"), merged=False)
    where = f", whose grammar is in `{module}`." if module else "."
    assert f"the dialect `{dialect}`{where}" in card
    assert ("chat template" in card) == templated


def test_the_front_matter_is_what_model_hubs_read(run: Run, tmp_path: Path) -> None:
    export_member(run, oldest(run), tmp_path / "a", base_name="someone/tiny")
    export_member(run, oldest(run), tmp_path / "m", merge=True)
    adapter, merged = (front_matter((tmp_path / name / CARD).read_text()) for name in "am")
    assert adapter == {
        "library_name": "peft",
        "base_model": "someone/tiny",
        "pipeline_tag": "text-generation",
        "tags": ["populora", "self-play", "student", "lora"],
        "license": "apache-2.0",
    }
    assert merged["library_name"] == "transformers"
    assert "base_model" not in merged, "a hub refuses a base that is none of its models"


HTML = "<img src=x onerror=alert(1)>"


def test_nothing_of_a_received_run_is_live_on_the_card(tmp_path: Path) -> None:
    run = start(tmp_path / "received", small_config())
    write_run(run.directory, 1)
    attempts = generation_tables(1)["solve"]["attempts"]
    prompt = f"a\n````\n{HTML}\n`````\n[x](//x)"
    commit_stage(run.directory, 1, "solve", {"attempts": [row | {"prompt": prompt} for row in attempts]})
    evaluated = evaluation_row(1, STUDENT, 0.5) | {"suite": HTML}
    commit_stage(run.directory, 1, "evaluate", {"evaluations": [evaluated]})
    told = {"base_digest": f"`{HTML}", "forked_from": {"run": f"`\n\n{HTML}|`", "generation": 0}}
    path = run.directory / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | told))
    for manifest in run.directory.glob("generations/*/*/manifest.json"):
        manifest.write_text(manifest.read_text().replace('"abc"', json.dumps(f"`{HTML}")))
    with Catalogue(run.directory) as catalogue:
        student = catalogue.rows("SELECT * FROM members WHERE member_id = ?", [STUDENT])[0]
    received = Snapshot(Run.open(run.directory), student | {"operator": HTML}, 1, Path("unread"), "0" * 64)
    card = model_card(received, f"`\n```\n{HTML}", Path("out"), merged=False)
    parts = MarkdownIt("commonmark").enable("table").parse(card)
    nodes = [node for part in parts for node in (part, *(part.children or ()))]
    assert {node.type for node in nodes}.isdisjoint({"html_block", "html_inline", "link_open", "image"})
    assert [part.content for part in parts if part.content == f"{prompt}\n"], "the prompt is shown as it is"
    assert card.count("onerror") == 10, "every place is shown"
