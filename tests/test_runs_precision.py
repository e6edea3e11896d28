"""`base.dtype = "auto"`, and what is said where a CPU lacks the precision that a run was begun in."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import pytest
from conftest import small_config, start

from populora_core.config.sections import BaseSection
from populora_core.runs.precision import SlowPrecision, choose_dtype, number_bytes, tell_of_precision
from populora_core.runs.run import Run, begin, is_begun_with
from populora_core.runs.session import Session
from populora_core.stages.decisive import decisive
from populora_core.stages.plan import deciding, key_of
from populora_core.stages.table import STAGES
from populora_core.support.shipped import shipped

HAS = "populora_core.runs.precision.cpu_has_bfloat16"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A base of which `auto` does not know that it comes with the project."""
    return Path(shutil.copytree(shipped("base_model", "tiny"), tmp_path / "base"))


@pytest.mark.parametrize("has", [True, False])
def test_auto_takes_bfloat16_where_the_cpu_has_it_and_the_base_is_large(
    folder: Path, monkeypatch: pytest.MonkeyPatch, has: bool
) -> None:
    monkeypatch.setattr(HAS, lambda: has)
    assert choose_dtype("auto", str(folder), "cpu") == "float32", "too small to gain"
    monkeypatch.setattr("populora_core.runs.precision.SMALL", 1.0)
    assert choose_dtype("auto", str(folder), "cpu") == ("bfloat16" if has else "float32")
    assert choose_dtype("auto", "bundled:tiny", "cpu") == "float32", "its results must not move"
    assert choose_dtype("float32", str(folder), "cpu") == "float32"
    assert choose_dtype("bfloat16", "bundled:tiny", "cpu") == "bfloat16"
    assert number_bytes(BaseSection(path=str(folder), dtype="auto")) == (2 if has else 4)


@pytest.mark.parametrize(("vocabulary", "chosen"), [(1000, "float32"), (10**9, "bfloat16")])
def test_a_plan_reckons_weights_that_are_not_here_by_the_configuration(
    folder: Path, monkeypatch: pytest.MonkeyPatch, vocabulary: int, chosen: str
) -> None:
    monkeypatch.setattr(HAS, lambda: True)
    for file in folder.glob("*.safetensors"):
        file.unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": vocabulary}))
    assert choose_dtype("auto", str(folder), "cpu") == chosen


def test_a_run_records_what_auto_chose_and_a_resume_elsewhere_says_so_before_it_starts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HAS, lambda: True)
    monkeypatch.setattr("populora_core.runs.precision.SMALL", 1.0)
    begin(tmp_path / "run", small_config(base={"path": str(folder), "dtype": "auto"}))
    run = Run.open(tmp_path / "run")
    assert run.config.base.dtype == "bfloat16"
    with warnings.catch_warnings():
        warnings.simplefilter("error", SlowPrecision)
        with Session(run):
            pass
    monkeypatch.setattr(HAS, lambda: False)
    with pytest.warns(SlowPrecision, match="does not multiply in it"), Session(run):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error", SlowPrecision)
        tell_of_precision(BaseSection())


def test_a_begun_run_differs_from_its_configuration_in_what_the_machine_chose_alone(tmp_path: Path) -> None:
    config = small_config(base={"dtype": "auto"})
    begun = begin(tmp_path / "run", config).config
    assert begun != config
    assert is_begun_with(begun, config)
    assert not is_begun_with(begun, small_config(base={"dtype": "auto"}, propose={"per_type": 5}))


def test_a_run_is_not_begun_with_another_precision_that_is_named(tmp_path: Path) -> None:
    config = small_config(base={"dtype": "float32"})
    begun = begin(tmp_path / "run", config).config
    assert is_begun_with(begun, config)
    assert not is_begun_with(begun, small_config(base={"dtype": "bfloat16"}))


def test_precision_and_the_version_of_its_arithmetic_are_in_the_key_of_half_precision_alone() -> None:
    half, whole = (
        decisive(small_config(base={"dtype": dtype}), ["base"])["base"] for dtype in ("bfloat16", "float32")
    )
    assert half["dtype"] == "bfloat16" and "half_on_cpu" in half
    assert "half_on_cpu" not in whole


@pytest.mark.parametrize(
    ("dtype", "moved"),
    [("float32", set()), ("bfloat16", {"found", "propose", "solve", "update", "evaluate"})],
)
def test_a_raised_version_of_the_arithmetic_moves_the_keys_of_half_precision_alone(
    dtype: str, moved: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HAS, lambda: True)
    with Session(start(tmp_path / "run", small_config(base={"dtype": dtype}))) as session:

        def keys() -> dict[str, str]:
            return {name: key_of(deciding(session, stage, 0, {})) for name, stage in STAGES.items()}

        before = keys()
        monkeypatch.setattr("populora_core.stages.decisive.HALF_ON_CPU", 99)
        after = keys()
    assert {name for name in before if before[name] != after[name]} == moved


def test_keys_of_whole_precision_name_nothing_of_the_base(tmp_path: Path) -> None:
    with Session(start(tmp_path / "run", small_config())) as session:
        settings = {name: deciding(session, stage, 0, {})["config"] for name, stage in STAGES.items()}
    assert all(found.keys() <= {*STAGES[name].config} for name, found in settings.items())
