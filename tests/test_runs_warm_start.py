"""A population starts from existing adapters: the same policies, and a refusal wherever they would not be."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import commits, small_config, start
from peft import LoraConfig, get_peft_model
from test_cli import ERROR, populora
from tiny_base import layout_of, tiny_model

from populora_core.config.load import Config
from populora_core.lifecycle.export import export_member
from populora_core.lifecycle.loop import fork, train
from populora_core.model.adapter_files import (
    CONFIG,
    WEIGHTS,
    read_layout,
    read_state,
    read_tensors,
    write_peft,
)
from populora_core.model.adopt import adopt
from populora_core.model.base import load_base
from populora_core.model.layout import AdapterLayout
from populora_core.model.stacked import StackedAdapters
from populora_core.report.summary import generation_lines
from populora_core.runs.preflight import load_runnable, preflight
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.engine import is_done
from populora_core.store.catalogue import Catalogue
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.support.errors import AdapterError, ConfigError

RANK, ALPHA = 4, 8.0  # of the small configuration
FIRST_TEACHER, FIRST_STUDENT = "teacher-00-g0000", "student-00-g0000"


@pytest.fixture(scope="module")
def layout() -> AdapterLayout:
    """Of the bundled base."""
    return AdapterLayout.of(load_base(Config().base.folder()).model, RANK, ALPHA)


def an_adapter(folder: Path, layout: AdapterLayout, seed: int = 1) -> torch.Tensor:
    """Write a PEFT folder that changes what the base says; returns its row."""
    rng = np.random.default_rng(seed)
    row = layout.init_row(rng)
    for _, b in layout.views(row).values():
        b.copy_(torch.from_numpy(rng.normal(0.0, 0.1, size=tuple(b.shape))))
    write_peft(folder, layout, row, "somebody's base")
    return row


def reconfigure(folder: Path, **settings: object) -> Path:
    path = folder / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return folder


def warm(folders: dict[str, list[Path]], **adapters: object) -> Config:
    given = {role: [str(folder) for folder in names] for role, names in folders.items()}
    return small_config(adapters={"start_from": given, **adapters})


def founded(directory: Path, config: Config) -> Run:
    with Session(start(directory, config)) as session:
        train(session, 0)
    return session.run


def rows_of(run: Run) -> dict[str, torch.Tensor]:
    states = {path.parent.name: read_state(path) for path in run.directory.glob("members/*/g0000")}
    assert all(state.steps == 0 and not state.exp_avg.any() for state in states.values())  # fresh optimisers
    return {member: state.weights for member, state in states.items()}


def found_key(run: Run) -> str:
    manifest = read_manifest(stage_dir(run.directory, 0, "found"))
    assert manifest is not None
    return manifest.key


@pytest.mark.loop
@pytest.mark.sandbox
def test_an_exported_member_goes_on_in_a_new_run_as_it_was(finished: Path, tmp_path: Path) -> None:
    old = Run.open(finished)
    folder = export_member(old, FIRST_TEACHER, tmp_path / "t0", generation=1).folder
    run = founded(tmp_path / "run", warm({"teachers": [folder]}))
    before = read_state(old.adapter_folder(FIRST_TEACHER, 1))
    assert torch.equal(rows_of(run)[FIRST_TEACHER], before.weights)
    with Catalogue(run.directory) as catalogue, Catalogue(old.directory) as origin:
        sql = "SELECT sha256 FROM adapters WHERE member_id = ? AND generation = ?"
        assert catalogue.rows(sql, [FIRST_TEACHER, 0]) == origin.rows(sql, [FIRST_TEACHER, 1])


def test_founders_without_an_adapter_are_born_as_ever(tmp_path: Path, layout: AdapterLayout) -> None:
    row = an_adapter(tmp_path / "a", layout)
    run = founded(tmp_path / "warm", warm({"students": [tmp_path / "a"]}))
    plain = founded(tmp_path / "cold", small_config())
    for each, told in (
        (run, "1 of 5 members starts from an adapter of yours, the others from the base model"),
        (plain, "every adapter starts as the base model"),
    ):
        assert generation_lines(each.directory, 0, 3)[0] == f"the population is founded: {told}"
    rows, cold = rows_of(run), rows_of(plain)
    assert torch.equal(rows.pop(FIRST_STUDENT), row)
    del cold[FIRST_STUDENT]
    assert rows.keys() == cold.keys()
    assert all(torch.equal(rows[member], cold[member]) for member in cold)
    export_member(run, FIRST_STUDENT, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"{FIRST_STUDENT} started from the adapter in `a`, files with digest `" in card
    assert str(tmp_path / "a") not in card
    with Catalogue(run.directory) as catalogue:
        told = catalogue.rows("SELECT member_id, operator, parent_ids FROM members ORDER BY 1")
    assert [(row["operator"], row["parent_ids"]) for row in told] == [
        ("warm_start", []),
        *4 * [("founder", [])],
    ]


@pytest.mark.parametrize(
    ("alpha", "rslora", "scale"), [(8, False, 2.0), (16, False, 4.0), (6, False, 1.5), (8, True, 4.0)]
)
def test_another_scale_is_folded_into_b(alpha: float, rslora: bool, scale: float, tmp_path: Path) -> None:
    """Against PEFT itself, which reads lora_alpha and use_rslora."""
    settings = {"r": RANK, "lora_alpha": alpha, "use_rslora": rslora, "target_modules": "all-linear"}
    torch.manual_seed(3)
    model = get_peft_model(
        tiny_model(), LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **settings)
    )
    model.save_pretrained(tmp_path / "a")
    layout = layout_of(tiny_model(), rank=RANK)
    row = adopt(tmp_path / "a", layout)
    stacked = StackedAdapters(tiny_model(), layout)
    stacked.load({"m": row})
    ids = torch.arange(2, 14).view(2, 6)
    with torch.no_grad(), stacked.routed([0, 0]):
        found = stacked.model(input_ids=ids, use_cache=False).logits
        expected = model.eval()(input_ids=ids, use_cache=False).logits
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    stored = layout.views(layout.from_peft(read_tensors(tmp_path / "a" / WEIGHTS)))
    for name, (a, b) in layout.views(row).items():
        assert torch.equal(a, stored[name][0])
        assert torch.equal(b, stored[name][1] * (scale / layout.scale))


def test_an_adapter_of_another_rank_is_refused_with_the_file_and_both_ranks(
    tmp_path: Path, layout: AdapterLayout
) -> None:
    an_adapter(tmp_path / "a", layout)
    with pytest.raises(AdapterError) as caught:
        founded(tmp_path / "run", warm({"teachers": [tmp_path / "a"]}, rank=8))
    for part in (str(tmp_path / "a" / CONFIG), "rank 8", "rank 4", "adapters.rank"):
        assert part in str(caught.value)
    assert not stage_dir(tmp_path / "run", 0, "found").exists()


def test_an_adapter_of_some_layers_is_refused(tmp_path: Path) -> None:
    config = LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=8, target_modules=["q_proj", "v_proj"])
    get_peft_model(tiny_model(), config).save_pretrained(tmp_path / "a")
    with pytest.raises(AdapterError, match="does not cover the linear layers") as caught:
        adopt(tmp_path / "a", layout_of(tiny_model(), rank=RANK))
    assert str(tmp_path / "a" / WEIGHTS) in str(caught.value)


def test_an_adapter_of_another_base_is_refused(tmp_path: Path, layout: AdapterLayout) -> None:
    an_adapter(tmp_path / "a", layout)
    with pytest.raises(AdapterError, match="cannot be started from"):
        adopt(tmp_path / "a", layout_of(tiny_model(), rank=RANK))


@pytest.mark.parametrize(
    "settings",
    [
        {"use_dora": True},
        {"bias": "all"},
        {"rank_pattern": {"q_proj": 2}},
        {"modules_to_save": ["lm_head"]},
        {"init_lora_weights": "pissa"},
        {"peft_type": "LOHA"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_what_is_more_than_plain_lora_is_refused_by_name(
    tmp_path: Path, layout: AdapterLayout, settings: dict[str, object]
) -> None:
    an_adapter(tmp_path / "a", layout)
    with pytest.raises(AdapterError, match="no plain LoRA") as caught:
        adopt(reconfigure(tmp_path / "a", **settings), layout)
    assert next(iter(settings)) in str(caught.value)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_a_damaged_adapter_is_refused(tmp_path: Path, layout: AdapterLayout, name: str) -> None:
    an_adapter(tmp_path / "a", layout)
    (tmp_path / "a" / name).write_text("not what it should be")
    with pytest.raises(AdapterError, match=name):
        adopt(tmp_path / "a", layout)


@pytest.mark.parametrize(
    "settings",
    [{"r": float("inf")}, {"r": -1}, {"r": [8]}, {"lora_alpha": 10**400}, {"lora_alpha": float("nan")}],
    ids=str,
)
def test_an_adapter_of_impossible_numbers_is_refused(
    tmp_path: Path, layout: AdapterLayout, settings: dict[str, object]
) -> None:
    an_adapter(tmp_path / "a", layout)
    with pytest.raises(AdapterError, match=CONFIG):
        adopt(reconfigure(tmp_path / "a", **settings), layout)
    with pytest.raises(ConfigError, match=r"adapters\.start_from gives"):  # before the run begins
        preflight(warm({"teachers": [tmp_path / "a"]}), "the test's configuration")


def written(tmp_path: Path, start_from: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(f"[population]\nteachers = 2\n[adapters.start_from]\n{start_from}\n")
    return path


@pytest.mark.parametrize("missing", ["folder", CONFIG, WEIGHTS])
def test_a_missing_adapter_is_refused_when_the_config_is_read(
    tmp_path: Path, layout: AdapterLayout, missing: str
) -> None:
    an_adapter(tmp_path / "a", layout)
    shutil.rmtree(tmp_path / "a") if missing == "folder" else (tmp_path / "a" / missing).unlink()
    with pytest.raises(ConfigError) as caught:
        load_runnable(written(tmp_path, f"teachers = ['{tmp_path}/a']"))
    for part in ("adapters.start_from", FIRST_TEACHER, "no such folder" if missing == "folder" else missing):
        assert part in str(caught.value)


def test_a_dry_run_refuses_a_missing_adapter(tmp_path: Path) -> None:
    config = written(tmp_path, "teachers = ['nowhere']")
    done = populora("run", "--config", config, "--run-dir", tmp_path / "run", "--dry-run")
    assert done.returncode == ERROR
    assert "nowhere holds no PEFT adapter" in done.stderr


def test_relative_places_count_from_where_the_command_runs(
    tmp_path: Path, layout: AdapterLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As base.path does."""
    an_adapter(tmp_path / "a", layout)
    monkeypatch.chdir(tmp_path)
    assert load_runnable(written(tmp_path, "teachers = ['a']")).adapters.start_from.teachers == ("a",)


def test_a_source_that_changed_before_the_founding_is_noticed(tmp_path: Path, layout: AdapterLayout) -> None:
    an_adapter(tmp_path / "a", layout)
    run = start(tmp_path / "run", warm({"teachers": [tmp_path / "a"]}))
    reconfigure(tmp_path / "a", lora_alpha=9)
    with Session(run) as session, pytest.raises(AdapterError, match="not the one that this run began with"):
        train(session, 0)


def test_once_founded_a_run_needs_its_sources_no_more(tmp_path: Path, layout: AdapterLayout) -> None:
    an_adapter(tmp_path / "a", layout)
    run = founded(tmp_path / "run", warm({"teachers": [tmp_path / "a"]}))
    shutil.rmtree(tmp_path / "a")
    with Session(Run.open(run.directory)) as session:
        train(session, 0)
    assert commits(run.directory) == {"0000/found": 1}
    forked = fork(run, 0, tmp_path / "fork", run.config)
    with Session(forked) as session:
        assert is_done(session, 0)
    assert found_key(forked) == found_key(run)


def test_sources_count_by_content_and_not_by_place(tmp_path: Path, layout: AdapterLayout) -> None:
    an_adapter(tmp_path / "a", layout)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    an_adapter(tmp_path / "c", layout, seed=2)
    keys = {
        name: found_key(founded(tmp_path / f"run-{name}", warm({"teachers": [tmp_path / name]})))
        for name in "abc"
    }
    assert keys["a"] == keys["b"] != keys["c"]


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_run_begun_before_there_was_a_warm_start_goes_on(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    record = json.loads((directory / "run.json").read_text())
    del record["start_from"], record["config"]["adapters"]["start_from"]
    (directory / "run.json").write_text(json.dumps(record))
    with Session(Run.open(directory)) as session:
        assert all(is_done(session, generation) for generation in range(4))


def test_keys_of_a_cold_start_hold_nothing_new(tmp_path: Path) -> None:
    """So that runs of before this setting are not made again."""
    run = founded(tmp_path / "run", small_config())
    manifest = read_manifest(stage_dir(run.directory, 0, "found"))
    assert manifest is not None
    assert (manifest.stage_version, manifest.inputs) == (2, {})
    assert manifest.config["adapters"] == {"rank": RANK, "alpha": ALPHA}


def test_a_founded_layout_is_the_runs_own_whatever_the_source_was(
    tmp_path: Path, layout: AdapterLayout
) -> None:
    an_adapter(tmp_path / "a", layout)
    run = founded(tmp_path / "run", warm({"teachers": [reconfigure(tmp_path / "a", lora_alpha=16)]}))
    stored = json.loads((run.adapter_folder(FIRST_TEACHER, 0) / CONFIG).read_text())
    assert stored["lora_alpha"] == ALPHA
    assert read_layout(run.adapter_folder(FIRST_TEACHER, 0)) == layout
