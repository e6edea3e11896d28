"""One model from many: what is chosen on one half is reported on the other, and what is written loads."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command import populora
from conftest import GENERATIONS, commits, contents, ran
from hub_server import serving
from peft import PeftModel
from transformers import AutoModelForCausalLM

from populora_core.benchmarks.benchmark import Item, ItemScore, Response
from populora_core.benchmarks.bundled import BundledBenchmark
from populora_core.benchmarks.scores import BASE
from populora_core.benchmarks.suite import Suite, load_suite
from populora_core.commands import inspection
from populora_core.lifecycle.loop import rerun
from populora_core.lifecycle.run_evaluation import supersede_outdated
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.report.stage_summary import stage_summary
from populora_core.report.text import markdown_text
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.store.adapters import WEIGHTS
from populora_core.store.manifest import MANIFEST, read_manifest, stage_dir
from populora_core.support.errors import (
    AdapterError,
    ArtifactError,
    BenchmarkError,
    DamagedText,
    HubError,
)
from populora_core.support.hub import push
from populora_core.support.shipped import REPOSITORY, shipped
from populora_core.support.typed import shown
from populora_plugins.harvest.assemble import (
    ANY,
    BY_TYPE,
    HOWS,
    MEAN,
    SOUP,
    SURENESS,
    Assembly,
    compared,
    together,
)
from populora_plugins.harvest.assembled import write_assembly
from populora_plugins.harvest.stage import CHOICE, FOLDER, assemble, read_assembly

AGAIN = """
import asyncio, json, sys
from flows.server import own_server
from flows.train import rerun
from prefect.client.orchestration import get_client

async def shown():
    async with get_client() as client:
        return [[found.key, str(found.data)] for found in await client.read_latest_artifacts()]

with own_server():
    rerun(sys.argv[1], "own", int(sys.argv[2]), sys.argv[3], None, False)
    print(json.dumps(asyncio.run(shown())))
"""

pytestmark = [pytest.mark.loop, pytest.mark.sandbox, pytest.mark.thorough]


@pytest.fixture(scope="module")
def suite() -> Suite:
    return load_suite(shipped("configs", "suites/tiny.toml")).sampled(4)


@pytest.fixture(scope="module")
def found(finished: Path, suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    directory = tmp_path_factory.mktemp("assemble") / "run"
    shutil.copytree(finished, directory)
    with Session(Run.open(directory)) as session:
        return assemble(session, suite)


@pytest.fixture
def own(found: Assembly, tmp_path: Path) -> Path:
    return Path(shutil.copytree(found.run.directory, tmp_path / "own"))


def folder_of(directory: Path, suite: Suite) -> Path:
    return stage_dir(directory, GENERATIONS, FOLDER + suite.suite)


def answers(found: Assembly) -> Iterator[tuple[dict, list[dict]]]:
    """Of each problem, who answered what; and the members' rows in the order of validation scores."""
    asked: dict[tuple, dict] = defaultdict(dict)
    for row in found.items:
        asked[row["benchmark"], row["item_id"]][row["member_id"]] = row
    for rows in asked.values():
        yield rows, [rows[member] for member in found.adapters]


def test_every_way_answers_every_problem_beside_the_base_and_each_member(found: Assembly) -> None:
    assert found.generation == GENERATIONS and len(found.adapters) == 2
    players = {BASE, *found.adapters, *HOWS, ANY}
    rows = list(answers(found))
    assert len(rows) == 12 and all(set(who) == players for who, _ in rows)
    assert {row["part"] for row in found.items} == {"test"}


def test_members_stand_in_the_order_of_validation_and_the_winner_is_the_best_way(found: Assembly) -> None:
    scores = [found.validation[member] for member in found.adapters]
    assert scores == sorted(scores, reverse=True)
    assert found.validation[found.winner] == max(found.validation[how] for how in HOWS)
    assert found.validation["best"] == scores[0] <= found.validation[SOUP], "a greedy soup never falls"
    assert found.soup[0] == next(iter(found.adapters))


def test_a_vote_is_the_most_frequent_answer_and_of_equals_the_better_members(found: Assembly) -> None:
    for who, members in answers(found):
        told = [row["answer"] for row in members if row["answer"] is not None]
        most = max(Counter(told).values(), default=0)
        first = next((answer for answer in told if told.count(answer) == most), None)
        assert who["vote"]["answer"] == first


def test_a_route_gives_one_members_answer_and_any_member_is_right_where_one_is(found: Assembly) -> None:
    for who, members in answers(found):
        by = found.by_type[who["route"]["benchmark"]]
        surest = max(members, key=lambda row: row[SURENESS])
        expected = who[by] if found.router == BY_TYPE else surest
        assert who["route"]["completion"] == expected["completion"]
        assert who[ANY]["correct"] == any(row["correct"] for row in members)


def test_an_assembly_of_which_nothing_was_judged_is_refused(
    finished: Path, tmp_path: Path, suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(benchmark: object, items: Sequence[Item], *rest: object) -> list[ItemScore]:
        return [ItemScore(AttemptVerdict.INFRASTRUCTURE, None) for _ in items]

    directory = Path(shutil.copytree(finished, tmp_path / "run"))
    monkeypatch.setattr(BundledBenchmark, "grade", lost)
    with Session(Run.open(directory)) as session, pytest.raises(BenchmarkError, match="has no score on"):
        assemble(session, suite)


def test_what_infrastructure_lost_may_have_been_right(
    finished: Path, tmp_path: Path, suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = BundledBenchmark.grade

    def losing(known: BundledBenchmark, items: Sequence[Item], given: Sequence[Response], *rest: Any) -> Any:
        return [
            score if place % 3 else ItemScore(AttemptVerdict.INFRASTRUCTURE, None)
            for place, score in enumerate(judged(known, items, given, *rest))
        ]

    directory = Path(shutil.copytree(finished, tmp_path / "run"))
    monkeypatch.setattr(BundledBenchmark, "grade", losing)
    with Session(Run.open(directory)) as session:
        found = assemble(session, suite)
    told = [(who[ANY]["correct"], {row["correct"] for row in members}) for who, members in answers(found)]
    assert all(any_ is (True if True in own else None if None in own else False) for any_, own in told)
    assert {any_ for any_, _ in told} >= {True, None}


def test_the_table_has_intervals_and_the_mean_over_runs_is_the_mean_of_their_scores(found: Assembly) -> None:
    rows = {row.player: row for row in compared(found.items, found.suite, found.groups)}
    assert set(rows) == {*HOWS, ANY, MEAN, BASE, *found.adapters}
    assert all(row.score.low <= row.score.value <= row.score.high for row in rows.values())
    members = [rows[member].score.value for member in found.adapters]
    assert rows[MEAN].score.value == pytest.approx(sum(members) / len(members))
    assert rows["best"].over_base.value == pytest.approx(rows["best"].score.value - rows[BASE].score.value)
    items, groups = together([found, found])
    twice = {row.player: row for row in compared(items, found.suite, groups)}
    assert all(twice[name].score.value == pytest.approx(rows[name].score.value) for name in twice)


def test_an_assembly_that_is_made_is_read_and_nothing_is_done_again(
    found: Assembly, own: Path, suite: Suite
) -> None:
    before, steps = commits(own), list[str]()
    with Session(Run.open(own)) as session:
        again = assemble(session, suite, say=steps.append)
    assert (commits(own), steps) == (before, [])
    assert replace(again, run=found.run, soup_folder=found.soup_folder) == found


def test_an_assembly_that_is_made_again_by_name_comes_out_as_it_was(own: Path, suite: Suite) -> None:
    before = contents(own)
    with Session(Run.open(own)) as session:
        (result,) = rerun(session, GENERATIONS, f"assemble:{suite.suite}")
        assert result.reused
        (folder_of(own, suite) / CHOICE).write_text("{}")
        (result,) = rerun(session, GENERATIONS, f"assemble:{suite.suite}")
    assert contents(own) == before
    assert result.manifest.extra["again"] == [f"{CHOICE} is missing or damaged"]


def test_the_command_makes_an_assembly_again(own: Path, suite: Suite) -> None:
    done = populora("rerun", own, "--generation", GENERATIONS, "--stage", f"assemble:{suite.suite}")
    assert done.returncode == 0, done.stderr
    assert f"assemble:{suite.suite} came out as it was" in done.stdout


def test_another_seed_assembles_again_and_says_so(own: Path, suite: Suite) -> None:
    with Session(Run.open(own)) as session:
        (result,) = rerun(session, GENERATIONS, f"assemble:{suite.suite}", seed=77)
    assert (result.manifest.seed, result.reused) == (77, False)
    assert result.manifest.extra["again"][0].startswith("seed ")
    assert list((own / "superseded").glob(f"*/generations/*/{FOLDER}{suite.suite}"))


def test_a_generation_shows_its_assembly_beside_its_stages(
    found: Assembly, suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    inspection.show_generation(found.run, GENERATIONS)
    assert f"{FOLDER}{suite.suite}" in capsys.readouterr().out
    inspection.show_stage(found.run, GENERATIONS, f"assemble:{suite.suite}")
    assert json.loads(capsys.readouterr().out)["stage"] == FOLDER + suite.suite
    assert stage_summary(found.run.directory, GENERATIONS, FOLDER + suite.suite).headline == found.told


def test_an_assembly_of_members_that_are_gone_is_set_aside(own: Path, suite: Suite) -> None:
    folder = folder_of(own, suite)
    manifest = read_manifest(folder)
    assert manifest is not None
    (folder / MANIFEST).write_text(replace(manifest, inputs={"population": "1" * 64}).to_json())
    (aside,) = supersede_outdated(Run.open(own), GENERATIONS)
    assert aside.name == folder.name and not folder.exists()


@pytest.mark.parametrize(
    "sent", [{"soup": ["../../elsewhere"]}, {"soup": []}, {"router": "a stranger's"}, {"validation": {}}]
)
def test_a_choice_that_somebody_sent_names_members_and_ways_alone(
    own: Path, suite: Suite, sent: dict[str, Any]
) -> None:
    file = folder_of(own, suite) / CHOICE
    file.write_text(json.dumps(json.loads(file.read_text()) | sent))
    with pytest.raises(DamagedText, match="|".join([*sent, "no score"])):
        read_assembly(Run.open(own), GENERATIONS, suite)


def test_a_soup_of_one_member_leaves_only_as_that_member_was_committed(
    found: Assembly, own: Path, tmp_path: Path
) -> None:
    first = next(iter(found.adapters))
    folder = Run.open(own).adapter_folder(first, GENERATIONS)
    alone = replace(found, run=Run.open(own), soup=(first,), soup_folder=folder)
    weights = folder / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(AdapterError):
        write_assembly(alone, "soup", tmp_path / "soup")
    assert not (tmp_path / "soup").exists()


@pytest.mark.foreign
def test_prefect_makes_an_assembly_again_and_shows_what_came_of_it(
    found: Assembly, own: Path, suite: Suite, tmp_path: Path
) -> None:
    home = {"PREFECT_HOME": str(tmp_path / "prefect"), "PREFECT_LOGGING_LEVEL": "CRITICAL"}
    done = ran(
        [sys.executable, "-c", AGAIN, own, str(GENERATIONS), f"assemble:{suite.suite}"],
        cwd=REPOSITORY,
        env=os.environ | home,
    )
    assert done.returncode == 0, done.stderr
    shown = dict(json.loads(done.stdout.splitlines()[-1]))
    assert markdown_text(found.told) in shown[f"own-{FOLDER}{suite.suite}"]


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.arange(10, 30)[None]).logits


def test_a_soup_loads_as_an_adapter_and_merged_with_a_card(found: Assembly, tmp_path: Path) -> None:
    adapter = write_assembly(found, SOUP, tmp_path / "adapter")
    merged = write_assembly(found, SOUP, tmp_path / "merged", merge=True)
    base = str(found.run.config.base.folder())
    alone = logits(AutoModelForCausalLM.from_pretrained(base, dtype="float32"))
    own = logits(
        PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype="float32"), str(adapter))
    )
    assert not torch.allclose(own, alone, atol=1e-5)
    assert torch.allclose(
        own, logits(AutoModelForCausalLM.from_pretrained(merged, dtype="float32")), atol=1e-4
    )
    card = (adapter / "README.md").read_text()
    assert "library_name: peft" in card and f"`{found.winner}` won" in card and MEAN in card
    assert f"# soup of {len(found.soup)} members" in card
    assert json.loads((adapter / "assembly.json").read_text())["members"] == list(found.soup)


@pytest.mark.parametrize("how", ["best", "vote", "route"])
def test_the_others_are_written_with_their_rule(found: Assembly, how: str, tmp_path: Path) -> None:
    folder = write_assembly(found, how, tmp_path / how)
    rule = json.loads((folder / "assembly.json").read_text())
    assert rule["how"] == how and "## What was tried" in (folder / "README.md").read_text()
    places = [folder] if how == "best" else [folder / "members" / member for member in rule["members"]]
    assert all((place / "adapter_model.safetensors").is_file() for place in places)
    assert rule["members"] == list(found.adapters)[: len(places)]


def test_a_best_member_is_written_whole_or_not_at_all(
    found: Assembly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*asked: object) -> str:
        raise OSError("no space left")

    monkeypatch.setattr("populora_plugins.harvest.assembled.tried", full)
    with pytest.raises(ArtifactError, match="could not be written"):
        write_assembly(found, "best", tmp_path / "best")
    assert list(tmp_path.iterdir()) == []


def test_the_command_tells_the_table_and_pushes_what_it_writes(found: Assembly, tmp_path: Path) -> None:
    to = tmp_path / "soup"
    words = ["assemble", found.run.directory, "--sample", 4, "--how", SOUP]  # the suite is the run's own
    alone = populora(*words, "--push", "mine")
    assert alone.returncode == 2 and "--push needs --to" in alone.stderr
    twice = populora("assemble", found.run.directory, found.run.directory.parent / "r*", "--to", to)
    assert twice.returncode == 2 and "--to needs one run" in twice.stderr
    with serving() as hub:
        done = populora(*words, "--to", to, "--push", "mine", HF_TOKEN="hf_token")
    assert done.returncode == 0, done.stderr
    rows = {row.player: row for row in compared(found.items, found.suite, found.groups)}
    for score in (rows[name].score for name in (*HOWS, ANY, MEAN, BASE)):
        assert f"{score.value:.1%} [{score.low:.1%}, {score.high:.1%}]" in done.stdout
    assert f"on validation {found.winner} won" in done.stdout and "/me/mine/commit/" in done.stdout
    assert hub.made == [("model", "me/mine", True)]
    assert hub.files == {
        f"models/me/mine/{path.relative_to(to)}": path.read_bytes()
        for path in to.rglob("*")
        if path.is_file()
    }
    assert {path.name for path in to.iterdir()} > {"README.md", "adapter_model.safetensors", "assembly.json"}


def test_a_folder_is_pushed_whole_with_its_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"README.md": "---\ntags: [populora]\n---\n# a card\n", "members/one/weights.bin": "w" * 1000}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with serving() as hub:
        with pytest.raises(HubError, match="could not be pushed") as refused:
            push(tmp_path, "mine", "dataset")
        assert f"hf upload mine {shown(tmp_path)} --repo-type dataset --private;" in refused.value.fix
        monkeypatch.setenv("HF_TOKEN", "hf_token")
        assert "/me/mine/commit/" in push(tmp_path, "mine", "dataset")
    assert hub.made == [("dataset", "me/mine", True)]
    assert hub.files == {f"datasets/me/mine/{name}": text.encode() for name, text in files.items()}


def test_a_card_that_the_hub_refuses_is_not_blamed_on_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "README.md").write_text('---\nbase_model: "bundled:tiny"\n---\n')
    monkeypatch.setenv("HF_TOKEN", "hf_token")
    with serving(), pytest.raises(HubError, match='"bundled:tiny" is not valid') as refused:
        push(tmp_path, "mine", "model")
    assert "card" in refused.value.expected and "log in" not in refused.value.fix
