"""An adapter from anywhere beside its base: founded as the single agent of a run that is gone once it is scored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from populora_core.config.load import build_config
from populora_core.config.sections import BUNDLED, BaseSection
from populora_core.problems.dialects import dialect
from populora_core.runs.any_base import base_settings
from populora_core.runs.run import begin
from populora_core.runs.session import Session
from populora_core.runs.warm_start import require_files
from populora_core.stages.engine import run_generation
from populora_core.store.adapters import ADAPTER_FILES
from populora_core.support import leftovers
from populora_core.support.errors import AdapterError, BaseModelError, ConfigError, first_line
from populora_core.support.received import read_json
from populora_core.support.shipped import shipped
from populora_core.support.trust import take

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WEIGHTS, CONFIG = ADAPTER_FILES


def is_adapter(folder: Path) -> bool:
    """True if a folder is an adapter's, and not a run's."""
    return (folder / CONFIG).is_file()


def base_of(folder: Path, named: str | None) -> str:
    """The base to score an adapter on: the one that a person names, or the bundled one that the adapter does.

    Raises:
        ConfigError: neither does.
    """
    told = str(_settings(folder).get("base_model_name_or_path", ""))
    if named is None and not told.startswith(BUNDLED):
        raise ConfigError(
            f"the base of the adapter in {folder} is not named",
            expected="--base NAME_OR_FOLDER",
            got=f"an adapter that names {told!r}",
            fix="name the base that it was trained on, on the hub, among the bundled ones, or by its folder",
        )
    return named or told


def suite_of(base: str) -> str:
    """The suite file of a bundled base.

    Raises:
        ConfigError: there is none for this base.
    """
    file = shipped("configs", "suites", f"{base.removeprefix(BUNDLED)}.toml")
    if not file.is_file():
        raise ConfigError(
            f"no suite comes with the base {base}",
            expected="--suite FILE",
            fix="name one; configs/suites/ has some",
        )
    return str(file)


@contextmanager
def adapter_session(folder: Path, base: str, spoken: str | None = None) -> Iterator[Session]:
    """A session whose one member has the policy of the adapter; its run goes when the session ends.

    Args:
        spoken: the dialect that the adapter learnt in; None for what fits the base.

    Raises:
        AdapterError: the folder holds no plain LoRA of this base.
        BaseModelError: the base cannot be had.
        ProblemError: there is no such dialect.
    """
    from populora_core.model.adopt import plain_config

    require_files(folder)
    named = {"dialect": spoken} if spoken else {}
    if spoken:
        take([spoken])
        dialect(spoken)  # before anything is downloaded
    settings, plain = base_settings(base) | named, plain_config(folder)
    adapters: dict[str, Any] = {"rank": plain["r"], "alpha": plain["lora_alpha"]}
    place = leftovers.make_folder("adapter", 0)
    try:
        whole = place / "adapter"
        whole.mkdir()
        _fill(folder, BaseSection(path=settings["path"]).folder(), adapters, whole)
        data = {
            "base": settings,
            "compute": {"shards": 1},
            "population": {"teachers": 0, "students": 0, "solo": 1},
            "adapters": adapters | {"start_from": {"solo": [str(whole)]}},
        }
        take([str(whole)])
        config = build_config(data, f"the adapter in {folder}")
        with Session(begin(place / "run", config)) as session:
            run_generation(session, 0)
            yield session
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _fill(folder: Path, base: Path, adapters: dict[str, Any], whole: Path) -> None:
    """The adapter with a pair of zeros for each linear layer that it leaves alone, which is the same policy.

    Raises:
        AdapterError: it is not of this base.
        BaseModelError: the base is no causal language model.
    """
    import torch
    from safetensors.torch import save_file

    from populora_core.model.adapter_files import read_tensors
    from populora_core.model.layout import AdapterLayout

    layout = AdapterLayout.of(_without_weights(base), adapters["rank"], adapters["alpha"])
    empty = {name: value.clone() for name, value in layout.to_peft(torch.zeros(layout.dimension)).items()}
    tensors = empty | read_tensors(folder / WEIGHTS)
    try:
        layout.from_peft(tensors)
    except AdapterError as error:  # by the name of the person's folder, before a run names its own
        raise AdapterError(
            f"{folder / WEIGHTS} does not fit the base: {error.problem}",
            expected=error.expected,
            got=error.got,
            fix="name the base that it was trained on: --base NAME_OR_FOLDER",
        ) from error
    save_file(tensors, whole / WEIGHTS, {"format": "pt"})
    shutil.copyfile(folder / CONFIG, whole / CONFIG)


def _without_weights(base: Path) -> PreTrainedModel:
    """The modules of a base; raises BaseModelError where they are no causal language model's."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from populora_core.model.base import ANOTHER

    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(base))
    except Exception as error:  # of whatever kind its parts raise
        raise BaseModelError(
            f"the base model in {base} cannot be loaded",
            expected="a causal language model",
            got=first_line(error),
            fix=ANOTHER,
        ) from error


def _settings(folder: Path) -> dict[str, Any]:
    try:
        found = read_json(folder / CONFIG)
    except (OSError, ValueError) as error:
        raise AdapterError(f"{folder / CONFIG} cannot be read", got=str(error)) from error
    if not isinstance(found, dict):
        raise AdapterError(f"{folder / CONFIG} is no adapter's configuration", got=json.dumps(found)[:80])
    return found
