"""GGUF files that say what transformers does not carry over to a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter, RopeScalingType
from gguf_files import HEADS, WIDTH, llama

from populora_core.config.sections import BaseSection
from populora_core.model.base import load_vocabulary
from populora_core.support.errors import BaseModelError
from populora_core.support.user_cache import FOLDER_VARIABLE
from populora_plugins.gguf_bases.dequantise import dequantised


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def frequencies(writer: GGUFWriter) -> None:
    writer.add_tensor("rope_freqs.weight", np.full(WIDTH // HEADS // 2, 8, dtype=np.float32))


def scaled(writer: GGUFWriter) -> None:
    writer.add_rope_scaling_type(RopeScalingType.YARN)
    writer.add_rope_scaling_factor(4.0)


@pytest.mark.parametrize(
    ("also", "lost"),
    [
        (frequencies, "rope_freqs.weight"),
        (scaled, "rope.scaling.type = yarn, rope.scaling.factor = 4.0"),
        (lambda writer: writer.add_sliding_window(512), "attention.sliding_window = 512"),
    ],
)
def test_a_file_whose_positions_would_be_lost_is_refused(
    also: Callable[[GGUFWriter], None], lost: str, cache: Path, tmp_path: Path
) -> None:
    """Llama 3.1 and Phi-3 are such: their checkpoints would be other models, and no one would be told."""
    llama(tmp_path / "small.gguf", also=also)
    with pytest.raises(BaseModelError, match=r"small\.gguf would become another model") as refused:
        dequantised(tmp_path / "small.gguf")
    assert refused.value.got == lost and "original checkpoint by --base" in refused.value.fix
    assert not [*cache.glob("bases/*")]


def unscaled(writer: GGUFWriter) -> None:
    """Settings as Phi-4's, whose window is none and whose context was never stretched."""
    writer.add_rope_scaling_type(RopeScalingType.NONE)
    writer.add_rope_scaling_orig_ctx_len(2048)
    writer.add_sliding_window(0)


@pytest.mark.parametrize("also", [unscaled, lambda writer: writer.add_sliding_window(2048)])
def test_settings_that_change_nothing_are_no_reason_to_refuse(
    also: Callable[[GGUFWriter], None], tmp_path: Path
) -> None:
    llama(tmp_path / "small.gguf", also=also)
    assert BaseSection(path=dequantised(tmp_path / "small.gguf")).folder().is_dir()


@pytest.mark.parametrize("begins", [None, False, True])
def test_a_text_begins_with_the_first_token_where_the_file_says_so(
    begins: bool | None, tmp_path: Path
) -> None:
    said = (lambda writer: None) if begins is None else lambda writer: writer.add_add_bos_token(begins)
    llama(tmp_path / "small.gguf", also=said)
    tokenizer = load_vocabulary(BaseSection(path=dequantised(tmp_path / "small.gguf")).folder()).tokenizer
    tokens = tokenizer("ab")["input_ids"]
    assert tokens[1 if begins else 0 :] == tokenizer("ab", add_special_tokens=False)["input_ids"]
    assert (tokens[0] == tokenizer.bos_token_id) == bool(begins)
