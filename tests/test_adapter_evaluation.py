"""`populora evaluate ADAPTER`: a PEFT folder is scored beside its base, without a run, as a run scores its member."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from conftest import ran, small_config
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from test_cli import populora
from transformers import AutoModelForCausalLM, T5Config

from populora_core.lifecycle.adapter_evaluation import WEIGHTS, adapter_session, base_of, suite_of
from populora_core.lifecycle.export import export_member
from populora_core.lifecycle.progress import evaluation_of, suite_for
from populora_core.lifecycle.run_evaluation import SOLVERS, chosen_members
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.evaluation import ITEMS
from populora_core.store.artifacts import read_table
from populora_core.support import leftovers
from populora_core.support.errors import EXIT_ERROR, AdapterError, BaseModelError, ConfigError, ProblemError
from populora_core.support.shipped import REPOSITORY, shipped

pytestmark = [pytest.mark.loop, pytest.mark.sandbox]


@pytest.fixture(scope="module")
def exported(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str, Path]:
    """A copy of a finished run, a student of it, and that student's adapter."""
    run = Run.open(shutil.copytree(finished, tmp_path_factory.mktemp("exported") / "run"))
    member = min(name for name in chosen_members(run, 3, SOLVERS))
    return run, member, export_member(run, member, run.directory.parent / "taken").folder


@pytest.mark.thorough
def test_an_exported_adapter_answers_as_the_member_did(exported: tuple[Run, str, Path]) -> None:
    run, member, folder = exported
    assert base_of(folder, None) == run.config.base.path == "bundled:tiny"

    def answers(session: Session, who: str) -> list[tuple[str, str, str]]:
        suite = suite_for(run, suite_of("bundled:tiny"), sample=4)
        found = evaluation_of(session, suite, who).run()
        rows = read_table(found.folder, ITEMS).to_pylist()
        return [(row["item_id"], row["completion"], str(row["verdict"])) for row in rows]

    with Session(run) as session:
        expected = answers(session, member)
    with adapter_session(folder, "tiny") as session:
        place = session.run.directory
        assert answers(session, SOLVERS) == expected
    assert not place.exists()


@pytest.mark.thorough
def test_an_adapter_of_some_layers_is_scored(exported: tuple[Run, str, Path], tmp_path: Path) -> None:
    _, _, folder = exported
    part = shutil.copytree(folder, tmp_path / "part")
    tensors = load_file(part / WEIGHTS)
    few = {name: value for name, value in tensors.items() if "q_proj" in name or "v_proj" in name}
    assert 0 < len(few) < len(tensors)
    save_file(few, part / WEIGHTS)
    done = populora("evaluate", part, "--sample", "2")
    assert done.returncode == 0, done.stderr
    assert "part" in done.stdout and "base" in done.stdout and "programs were judged in" in done.stdout


def test_an_adapter_of_another_base_is_refused_by_the_name_of_its_own_folder(
    exported: tuple[Run, str, Path], tmp_path: Path
) -> None:
    other = shutil.copytree(exported[2], tmp_path / "other")
    tensors = load_file(other / WEIGHTS)
    unknown = {"base_model.model.nothing.lora_A.weight": tensors[min(tensors)]}
    wider = {name: torch.zeros(value.shape[0] + 1, value.shape[1]) for name, value in tensors.items()}
    for wrong in (unknown, wider):
        save_file(wrong, other / WEIGHTS)
        named = re.escape(f"{other / WEIGHTS} does not fit the base")
        with pytest.raises(AdapterError, match=named), adapter_session(other, "tiny"):
            raise AssertionError("an adapter of another base was taken")


def test_a_base_that_is_no_causal_language_model_is_refused(
    exported: tuple[Run, str, Path], tmp_path: Path
) -> None:
    base = shutil.copytree(shipped("base_model", "tiny"), tmp_path / "t5")
    T5Config(num_layers=1, d_model=8, d_kv=4, d_ff=8, num_heads=2).save_pretrained(base)
    refused = pytest.raises(BaseModelError, match=re.escape(f"{base} cannot be loaded"))
    with refused as found, adapter_session(exported[2], str(base)):
        raise AssertionError("an encoder and decoder was taken")
    assert found.value.expected == "a causal language model" and "T5Config" in found.value.got


KILLED = """
import os, signal, sys
from pathlib import Path
from populora_core.lifecycle import adapter_evaluation
adapter_evaluation.run_generation = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
adapter_evaluation.adapter_session(Path(sys.argv[1]), "tiny").__enter__()
"""


@pytest.mark.thorough
def test_a_killed_evaluation_leaves_a_folder_that_is_swept(
    exported: tuple[Run, str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = ran([sys.executable, "-c", KILLED, exported[2]], cwd=REPOSITORY, env=environment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (left,) = tmp_path.glob("populora-*")
    assert f"removed {left}" in leftovers.sweep()


def test_the_command_scores_what_peft_saved_beside_its_base(tmp_path: Path) -> None:
    torch.manual_seed(3)
    lora = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear", init_lora_weights=False)
    base = AutoModelForCausalLM.from_pretrained(REPOSITORY / "base_model" / "tiny")
    get_peft_model(base, lora).save_pretrained(str(tmp_path / "theirs"))
    suite = shipped("configs", "suites", "tiny.toml")
    done = populora("evaluate", tmp_path / "theirs", "--base", "tiny", "--suite", suite, "--sample", "2")
    assert done.returncode == 0, done.stderr
    assert "│ theirs │" in done.stdout and "│ base   │" in done.stdout, done.stdout
    assert "bundled:tiny, float32, cpu, dialect compact" in done.stdout
    assert "test half" in done.stdout and "after generation" not in done.stdout, "it is of no run"


def test_an_adapter_is_scored_in_the_dialect_that_is_named(exported: tuple[Run, str, Path]) -> None:
    with adapter_session(exported[2], "tiny", "assert") as session:
        assert session.run.config.base.dialect == "assert"
    with pytest.raises(ProblemError, match="klingon"), adapter_session(exported[2], "tiny", "klingon"):
        raise AssertionError("a dialect that no one speaks was taken")


def test_base_and_suite_are_named_where_they_do_not_follow(
    exported: tuple[Run, str, Path], tmp_path: Path
) -> None:
    other = shutil.copytree(exported[2], tmp_path / "other")
    config = json.loads((other / "adapter_config.json").read_text())
    (other / "adapter_config.json").write_text(
        json.dumps(config | {"base_model_name_or_path": "someone/else"})
    )
    done = populora("evaluate", other)
    assert done.returncode == EXIT_ERROR and "--base NAME_OR_FOLDER" in done.stderr
    with pytest.raises(ConfigError, match="no suite comes with the base"):
        suite_of("someone/else")
    assert small_config().base.path == base_of(exported[2], None)
