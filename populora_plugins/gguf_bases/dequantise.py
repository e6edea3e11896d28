"""A GGUF file as a base: its weights are dequantised once, to a checkpoint folder in the user's cache."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from populora_core.model.base import GENERATION_CONFIG, quiet_transformers, require_all_weights
from populora_core.support.digest import file_sha256
from populora_core.support.durable import fsync_tree, sweep, temporary_folder
from populora_core.support.errors import ArtifactError, BaseModelError, first_line
from populora_core.support.user_cache import FOLDER_VARIABLE, GGUF, dequantised_folder, user_cache
from populora_plugins.gguf_bases.carried import begin_as_told, read_header, require_carried

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAGIC = b"GGUF"
SOURCE = "gguf.json"
"""The file beside the weights that names the sha256 of the GGUF file."""
ROUNDING = 0.25
"""Share of their size by which two quantisations of one matrix differ at most; two matrices differ by more than 1."""
OF_MACHINE = ("transformers_version", "_name_or_path")  # what would make equal checkpoints differ


def is_gguf(path: Path) -> bool:
    """True if a file begins as GGUF files do."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def dequantised(file: Path) -> str:
    """`gguf:NAME@SHA256` of a GGUF file, once its checkpoint is in the user's cache: bfloat16 weights, tokenizer.

    Raises:
        BaseModelError: transformers cannot read it or carry it over whole, or it lacks weights.
        ArtifactError: the cache cannot be written to.
    """
    sha256 = file_sha256(file)
    path = f"{GGUF}{file.stem}@{sha256}"
    folder = dequantised_folder(path)
    if not folder.is_dir():
        with writing_to_cache():
            folder.parent.mkdir(parents=True, exist_ok=True)
            sweep(folder.parent)
            with temporary_folder(folder.parent, folder.name) as workshop:
                _convert(file, workshop)
                (workshop / SOURCE).write_text(json.dumps({"sha256": sha256}) + "\n")
                fsync_tree(workshop)
                if not folder.is_dir():  # another process may have made the same meanwhile
                    os.rename(workshop, folder)
    return path


@contextmanager
def writing_to_cache() -> Iterator[None]:
    """Turn a failure to write into an ArtifactError that says where else the user's cache may lie."""
    try:
        yield
    except (OSError, SafetensorError) as error:  # the latter is how safetensors tells of a disk that refuses
        raise ArtifactError(
            f"{user_cache()} could not be written to; nothing half made was left there",
            expected="a writable disk with free space",
            got=str(error),
            fix=f"free space on the disk, or set {FOLDER_VARIABLE} to a folder on another disk",
        ) from error


def _convert(file: Path, to: Path) -> None:
    """Write the checkpoint of a GGUF file."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig

    place = {"gguf_file": file.name, "local_files_only": True}
    with quiet_transformers(), _without_bar():
        try:
            header = read_header(file)
            require_carried(file, header, AutoConfig.from_pretrained(file.parent, **place))
            model, report = AutoModelForCausalLM.from_pretrained(
                file.parent,
                dtype=torch.bfloat16,
                quantization_config=GgufConfig(dequantize=True),
                output_loading_info=True,
                **place,
            )
            require_all_weights(
                report, file, "give the whole model in one file; parts of a split file are none"
            )
            tokenizer = AutoTokenizer.from_pretrained(file.parent, **place)
            begin_as_told(tokenizer, header)
            _tie_again(model)
            vars(model.config).pop("quantization_config", None)
            with writing_to_cache():
                model.save_pretrained(to)
                tokenizer.save_pretrained(to)
        except (ArtifactError, BaseModelError):
            raise
        except Exception as error:  # transformers raises whatever its parts raise
            raise BaseModelError(
                f"{file} cannot be read as a base model",
                expected="a GGUF file of an architecture that transformers reads",
                got=f"{type(error).__name__}: {first_line(error)}",
                fix="give a checkpoint folder of transformers, or another GGUF file",
            ) from error
    _leave_out_machine(to)


@contextmanager
def _without_bar() -> Iterator[None]:
    """Hide the bar of tensors that transformers draws whatever its own settings say."""
    from transformers import modeling_gguf_pytorch_utils as reading

    drawn = reading.tqdm
    reading.tqdm = partial(drawn, disable=True)
    try:
        yield
    finally:
        reading.tqdm = drawn


def _leave_out_machine(to: Path) -> None:
    """Take out of a checkpoint's settings what tells of the machine that wrote it."""
    for name in ("config.json", GENERATION_CONFIG):
        if (to / name).is_file():
            written = json.loads((to / name).read_text())
            kept = {key: value for key, value in written.items() if key not in OF_MACHINE}
            (to / name).write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")


def _tie_again(model: PreTrainedModel) -> None:
    """Make output layer and embedding one matrix again, where the file holds one matrix in two roundings.

    The output layer's values are kept: its rounding is the finer one.
    """
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if embedding.weight.shape != head.weight.shape:
        return
    apart = (embedding.weight.float() - head.weight.float()).norm()
    if apart <= ROUNDING * head.weight.float().norm():
        embedding.weight = head.weight
        model.config.tie_word_embeddings = True
