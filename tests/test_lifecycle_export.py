"""A member leaves its run: what comes out is the policy that was in it, with the story of how it came to be."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import small_config, start
from peft import PeftModel
from run_members import members_of, oldest
from safetensors.torch import load_file
from test_cli import ERROR, populora
from transformers import AutoModelForCausalLM, AutoTokenizer

from populora_core.config.load import apply_overrides
from populora_core.lifecycle.export import CARD, export_member, known_as, take
from populora_core.lifecycle.loop import fork, train
from populora_core.lifecycle.naming import BEST
from populora_core.lifecycle.progress import evaluation_of, suite_for
from populora_core.lifecycle.standing import named
from populora_core.model.adapter_files import read_layout, read_state
from populora_core.model.base import base_digest, load_base
from populora_core.model.stacked import StackedAdapters
from populora_core.population.member import Role
from populora_core.report.text import short_id
from populora_core.runs.any_base import how_to_get_base
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.following import newest_generation
from populora_core.store.catalogue import Catalogue
from populora_core.support import trust
from populora_core.support.errors import (
    AdapterError,
    ArtifactError,
    BaseModelError,
    ConfigError,
    PopuloraError,
    RunDirectoryError,
)

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]

IDS = torch.tensor(
    [[2, 40, 51, 62, 73, 84, 95, 106, 17, 28, 39], [5, 60, 71, 82, 93, 14, 25, 36, 47, 58, 69]]
)
TOLERANCE = 1e-5


@pytest.fixture
def run(finished: Path) -> Run:
    return Run.open(finished)


@pytest.fixture(autouse=True)
def nothing_left_behind(tmp_path: Path) -> Iterator[None]:
    """Whether an export succeeds or fails, no temporary folder remains."""
    yield
    assert list(tmp_path.rglob(".tmp-*")) == []


@pytest.mark.parametrize("role", list(Role)[:2])
def test_best_is_the_fittest_of_a_role_by_play(run: Run, role: Role) -> None:
    with Catalogue(run.directory) as catalogue:
        ranked = catalogue.rows(
            "SELECT member_id FROM figures_member WHERE generation = ? AND role = ? "
            "ORDER BY eligible DESC, fitness DESC",
            [newest_generation(run), role],
        )
    alive = members_of(run, "died_generation IS NULL")
    best = next(row["member_id"] for row in ranked if row["member_id"] in alive)
    assert named(run, BEST, alive, role=role) == best
    if role is Role.STUDENT:
        assert take(run, BEST).member_id == best


def expected_logits(run: Run, member_id: str, generation: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [2, T, V] of the member as the learner computes them from the run's own folder, and the base's."""
    folder = run.adapter_folder(member_id, generation)
    base = load_base(run.config.base.folder())
    with torch.no_grad():
        plain = base.model(input_ids=IDS, use_cache=False).logits
        stacked = StackedAdapters(base.model, read_layout(folder))
        stacked.load({member_id: read_state(folder).weights})
        with stacked.routed([0] * len(IDS)):
            return stacked.model(input_ids=IDS, use_cache=False).logits, plain


def logits_of(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=IDS, use_cache=False).logits


def check(run: Run, model: torch.nn.Module, member_id: str, generation: int) -> None:
    expected, plain = expected_logits(run, member_id, generation)
    assert (expected - plain).abs().max() > 100 * TOLERANCE  # else the test could not see the adapter
    torch.testing.assert_close(logits_of(model), expected, rtol=TOLERANCE, atol=TOLERANCE)


def base_of(run: Run) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(run.config.base.folder(), dtype="float32")


def test_an_adapter_alone_leads_transformers_to_its_base(run: Run, tmp_path: Path) -> None:
    member = oldest(run)
    export_member(run, member, tmp_path / "out", base_name=str(run.config.base.folder()))
    check(run, AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="float32"), member, 3)


def test_an_adapter_has_what_vllm_reads(run: Run, tmp_path: Path) -> None:
    """vLLM wants plain LoRA, the rank, and target modules by their last name."""
    export_member(run, oldest(run), tmp_path / "out")
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    plain = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none", "use_dora": False}
    assert {name: config[name] for name in plain} == plain
    modules = {f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")}
    assert modules == set(config["target_modules"])


def test_a_merged_checkpoint_needs_transformers_alone(run: Run, tmp_path: Path) -> None:
    member = oldest(run)
    export_member(run, member, tmp_path / "out", merge=True)
    check(run, AutoModelForCausalLM.from_pretrained(tmp_path / "out"), member, 3)
    text = "<so>def f(a):\n return a+1\n#2\n:"
    own, original = (AutoTokenizer.from_pretrained(f) for f in (tmp_path / "out", run.config.base.folder()))
    assert own(text)["input_ids"] == original(text)["input_ids"]
    assert own.decode(own(text)["input_ids"]) == text
    assert not any(path.name.startswith("adapter") for path in (tmp_path / "out").iterdir())


def test_a_merged_checkpoint_samples_as_its_base_is_said_to(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.config.base.folder(), base := tmp_path / "base")
    # without do_sample, transformers would not write it
    said = {"eos_token_id": 1, "temperature": 0.6, "top_p": 0.9}
    (base / "generation_config.json").write_text(json.dumps(said))
    settings = run.config.base.model_copy(update={"path": str(base)})
    other = replace(
        run,
        config=run.config.model_copy(update={"base": settings}),
        record={**run.record, "base_digest": base_digest(base)},
    )
    member = oldest(run)
    trust.remember([str(base)])
    export_member(other, member, tmp_path / "out", merge=True)
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text()) == said
    check(run, AutoModelForCausalLM.from_pretrained(tmp_path / "out"), member, 3)


@pytest.mark.thorough
def test_a_merged_checkpoint_has_the_precision_of_its_run(run: Run, tmp_path: Path) -> None:
    folder = export_member(run, oldest(run), tmp_path / "adapter").folder
    config = small_config(base={"dtype": "bfloat16"}, adapters={"start_from": {"students": [str(folder)]}})
    with Session(start(tmp_path / "run", config)) as session:
        train(session, 0)
    export_member(session.run, "student-00-g0000", tmp_path / "bf16", merge=True)
    export_member(run, oldest(run), tmp_path / "fp32", merge=True)
    rounded, exact = (load_file(tmp_path / name / "model.safetensors") for name in ("bf16", "fp32"))
    assert all(torch.equal(rounded[name], exact[name].to(torch.bfloat16)) for name in exact)
    assert "Merging rounded each weight" in (tmp_path / "bf16" / CARD).read_text()


def test_a_member_that_learnt_over_a_rounded_base_says_so_and_is_not_merged(run: Run, tmp_path: Path) -> None:
    rounded = replace(run, config=apply_overrides(run.config, ["base.bits=4"]))
    with pytest.raises(ConfigError, match="learnt over a base in 4 bits"):
        export_member(rounded, oldest(run), tmp_path / "merged", merge=True)
    assert not (tmp_path / "merged").exists()
    folder = export_member(rounded, oldest(run), tmp_path / "adapter").folder
    assert "rounded to 4 bits" in (folder / CARD).read_text()


def test_a_member_leaves_as_it_was_in_an_earlier_generation(run: Run, tmp_path: Path) -> None:
    member = oldest(run)
    done = export_member(run, member, tmp_path / "out", generation=1)
    assert done.generation == 1
    check(run, PeftModel.from_pretrained(base_of(run), tmp_path / "out"), member, 1)
    assert "as it was after generation 1." in (tmp_path / "out" / CARD).read_text()


def test_a_removed_member_leaves_as_it_was_at_the_end(run: Run, tmp_path: Path) -> None:
    gone = members_of(run, "died_generation = 2")[0]
    assert export_member(run, gone, tmp_path / "out").generation == 2


def test_a_slots_name_means_who_was_there_after_the_generation(run: Run) -> None:
    child = members_of(run, "born_generation = 2")[0]
    slot, short = child.rpartition("-")[0], short_id(child).partition("·")[0]
    for generation, meant in ((None, child), (2, child), (1, f"{slot}-g0000")):
        assert take(run, short, generation).member_id == take(run, f"{slot}-g", generation).member_id == meant


@pytest.mark.parametrize("merge", [False, True])
def test_the_snippet_on_the_card_gives_the_policy(run: Run, tmp_path: Path, merge: bool) -> None:
    member = oldest(run)
    export_member(run, member, tmp_path / "out", merge=merge)
    snippet = re.search(r"```python\n(.*?)```", (tmp_path / "out" / CARD).read_text(), re.DOTALL)[1]
    names: dict = {}
    exec(snippet.replace('"out"', json.dumps(str(tmp_path / "out"))), names)
    check(run, names["model"], member, 3)
    assert names["tokenizer"]("<po>")["input_ids"]


def test_the_commands_for_vllm(run: Run, tmp_path: Path) -> None:
    member, folder = oldest(run), tmp_path / "an adapter"
    adapter = export_member(run, member, folder, base_name="someone/tiny")
    merged = export_member(run, member, tmp_path / "merged", merge=True)
    assert adapter.command == (
        f"vllm serve someone/tiny --enable-lora --lora-modules '{member}={folder}' --max-lora-rank 8"
    )  # 4 is no rank that vLLM accepts
    assert merged.command == f"vllm serve {tmp_path / 'merged'}"
    for done in (adapter, merged):
        elsewhere = done.command.replace(str(done.folder), done.folder.name)
        assert f"\n{elsewhere}\n" in (done.folder / CARD).read_text()


def test_a_generation_that_is_not_there_is_called_so(run: Run, tmp_path: Path) -> None:
    refused = pytest.raises(RunDirectoryError, match="no complete generation 9")
    with refused:
        take(run, BEST, 9)
    with refused, Session(Run.open(shutil.copytree(run.directory, tmp_path / "run"))) as session:
        evaluation_of(session, suite_for(run, "validity"), generation=9)


def test_a_fork_takes_a_base_that_moved_and_no_other(run: Run, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(run.config.base.folder(), tmp_path / "moved"))
    assert fork(run, 1, tmp_path / "fork", over(run, str(moved)).config).config.base.folder() == moved
    (moved / "config.json").write_text((moved / "config.json").read_text() + "\n")
    with pytest.raises(BaseModelError, match="is not the one that this run began with"):
        fork(run, 1, tmp_path / "other", over(run, str(moved)).config)
    assert not (tmp_path / "other").exists()


def test_the_exporters_own_folder_is_told_to_nobody(run: Run, tmp_path: Path) -> None:
    source = run.config.base.folder().resolve()
    for told, name in ((None, "a-base"), ("someone/their-base", "someone/their-base"), ("/root/x", "a-base")):
        folder = tmp_path / str(told).replace("/", "-") / "a-base"
        shutil.copytree(source, folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | ({"_name_or_path": told} if told else {})))
        base = run.config.base.model_copy(update={"path": str(folder)})
        named = replace(run, config=run.config.model_copy(update={"base": base}))
        assert known_as(named) == name
    gone = named.config.base.model_copy(update={"path": str(tmp_path / "elsewhere" / "its-name")})
    elsewhere = replace(named, config=named.config.model_copy(update={"base": gone}))
    assert known_as(elsewhere) == "its-name", "a run may be copied without its base"
    for url in (f"file:{tmp_path}/store", "s3://bucket/runs?endpoint=http://machine:9000"):
        stored = run.config.store.model_copy(update={"url": url})
        named = replace(named, config=named.config.model_copy(update={"store": stored}))
        export_member(named, oldest(run), tmp_path / url[:2])
        card = (tmp_path / url[:2] / CARD).read_text()
        assert not any(place in card for place in (str(tmp_path), "bucket", "machine"))
    done = export_member(named, oldest(run), tmp_path / "out")
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "a-base"
    card = (tmp_path / "out" / CARD).read_text()
    assert "| base model | `a-base`, files" in card
    assert str(folder) in done.command, "the command on this machine works here"


def over(run: Run, base: str) -> Run:
    settings = run.config.base.model_copy(update={"path": base})
    return replace(run, config=run.config.model_copy(update={"base": settings}))


def test_a_base_of_the_hub_is_loaded_at_the_commit_that_the_run_had(run: Run, tmp_path: Path) -> None:
    commit = "c" * 40
    done = export_member(over(run, f"hub:someone/tiny@{commit}"), oldest(run), tmp_path / "out")
    card = (done.folder / CARD).read_text()
    assert f'AutoTokenizer.from_pretrained("someone/tiny", revision="{commit}")' in card
    assert f'AutoModelForCausalLM.from_pretrained("someone/tiny", revision="{commit}", dtype=' in card
    assert done.command.startswith(f"vllm serve someone/tiny --revision {commit} --enable-lora ")
    assert f"\n{done.command.replace(str(done.folder), 'out')}\n" in card


def test_a_base_that_was_made_of_a_gguf_file_is_told_with_how_to_make_it(run: Run, tmp_path: Path) -> None:
    base = f"gguf:mine@{'5' * 64}"
    done = export_member(over(run, base), oldest(run), tmp_path / "out")
    card = (done.folder / CARD).read_text()
    assert f"| base model | `{base}`, files" in card
    assert how_to_get_base(base) in card and "`bases/mine-5555555555555555`" in card


def test_an_empty_folder_and_new_parents_are_taken(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "new" / "parents" / "out"):
        export_member(run, oldest(run), folder)
        assert {path.name for path in folder.iterdir()} == {
            "adapter_model.safetensors",
            "adapter_config.json",
            CARD,
        }


def refused(
    kind: type[PopuloraError], run: Run, member: str, to: Path, *parts: str, **options: object
) -> None:
    before = sorted(to.parent.rglob("*"))
    with pytest.raises(kind) as caught:
        export_member(run, member, to, **options)
    for part in parts:
        assert part in str(caught.value)
    assert sorted(to.parent.rglob("*")) == before


def test_an_unknown_member_is_refused_and_close_names_are_told(run: Run, tmp_path: Path) -> None:
    told = "no member is called student-09-g0000", "student-00-g0000"
    refused(RunDirectoryError, run, "student-09-g0000", tmp_path / "out", *told)


@pytest.mark.parametrize(("born", "generation"), [(2, 1), (2, 9)])
def test_a_generation_without_the_member_is_refused(
    run: Run, tmp_path: Path, born: int, generation: int
) -> None:
    member = members_of(run, f"born_generation = {born} AND died_generation IS NULL")[0]
    refused(RunDirectoryError, run, member, tmp_path / "out", "it lived: 2 to 3", generation=generation)


def test_an_occupied_place_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("precious")
    (tmp_path / "file").write_text("precious")
    for name in ("folder", "file"):
        refused(ArtifactError, run, oldest(run), tmp_path / name, "is not free", "--to")


def test_a_place_that_cannot_be_written_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(ArtifactError, run, oldest(run), tmp_path / "file" / "out", "could not be written")


@pytest.mark.parametrize("damage", ["other weights", "missing files"])
def test_a_damaged_adapter_is_refused(copy_of: Callable[[], Path], tmp_path: Path, damage: str) -> None:
    run = Run.open(copy_of())
    member = oldest(run)
    weights = run.adapter_folder(member, 3) / "adapter_model.safetensors"
    if damage == "other weights":
        weights.write_bytes((run.adapter_folder(member, 2) / weights.name).read_bytes())
    else:
        weights.unlink()
    (tmp_path / "exports").mkdir()
    refused(AdapterError, run, member, tmp_path / "exports" / "out", damage, "sha256", "populora resume")


def test_another_base_is_not_merged_into(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    directory = copy_of()
    record = json.loads((directory / "run.json").read_text())
    (directory / "run.json").write_text(json.dumps(record | {"base_digest": "0" * 64}))
    (tmp_path / "exports").mkdir()
    run = Run.open(directory)
    refused(BaseModelError, run, oldest(run), tmp_path / "exports" / "out", "not the one", merge=True)


@pytest.mark.thorough
def test_the_command_says_where_it_lies_and_how_to_use_it(finished: Path, tmp_path: Path) -> None:
    done = populora("export", finished, "student-00-g0000", "--to", tmp_path / "out", "--generation", 1)
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path / 'out'} holds student-00-g0000 after generation 1: PEFT adapter" in done.stdout
    assert f"--lora-modules student-00-g0000={tmp_path / 'out'}" in done.stdout
    again = populora("export", finished, "student-00-g0000", "--to", tmp_path / "out", "--merge")
    assert again.returncode == ERROR
    assert "is not free" in again.stderr
    assert "Traceback" not in again.stderr
