from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_base import VOCABULARY, tiny_model
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from populora_core.model import base as loading
from populora_core.model.base import base_digest, hidden_states, load_base, longest_sequence, turn_end
from populora_core.model.probe_pack import PACKED, require_packs
from populora_core.support.errors import BaseModelError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    letters = ["<pad>", "<eos>", *(chr(ord("a") + index) for index in range(VOCABULARY - 2))]
    tokenizer = Tokenizer(BPE({letter: index for index, letter in enumerate(letters)}, []))
    tiny_model().save_pretrained(tmp_path)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>").save_pretrained(
        tmp_path
    )
    return tmp_path


def save_random(folder: Path, architecture: str, **settings: object) -> None:
    widths = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = AutoConfig.for_model(architecture, vocab_size=VOCABULARY, **widths, **settings)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def test_a_checkpoint_folder_loads_frozen_and_in_evaluation_mode(folder: Path):
    base = load_base(folder)
    ids = torch.tensor([[2, 3, 4]])
    assert torch.equal(base.model(input_ids=ids).logits, tiny_model()(input_ids=ids).logits)
    assert not base.model.training
    assert not any(parameter.requires_grad for parameter in base.model.parameters())
    assert base.stop_ids == {1}
    assert base.digest == base_digest(folder)


@pytest.mark.parametrize(("dtype", "mapped"), [("float32", True), ("bfloat16", False)])
def test_a_checkpoint_of_the_bases_precision_is_mapped_so_that_processes_share_it(
    folder: Path, dtype: str, mapped: bool
) -> None:
    base = load_base(folder, dtype)
    maps = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    ranges = [
        tuple(int(end, 16) for end in each[0].split("-")) for each in maps if each[-1].startswith(str(folder))
    ]
    places = [parameter.data_ptr() for parameter in base.model.parameters()]
    assert {any(start <= place < end for start, end in ranges) for place in places} == {mapped}


@pytest.mark.parametrize("padding", [None, 0])
def test_a_base_that_scales_its_logits_is_refused(folder: Path, padding: int | None):
    """Also one whose padding token, the first, has a row of zeros."""
    save_random(folder, "granite", logits_scaling=8.0, pad_token_id=padding)
    with pytest.raises(BaseModelError, match="GraniteForCausalLM changes its logits after the output layer"):
        load_base(folder)


@pytest.mark.parametrize(
    ("architecture", "settings", "got"),
    [
        ("opt", {"ffn_dim": 48}, "[8, 32] for a text of 8 tokens"),
        ("qwen2_moe", {"num_experts": 4, "num_key_value_heads": 4}, "[8, 32] for a text of 8 tokens"),
        ("lfm2", {"layer_types": ["conv", "full_attention"]}, "conv"),
    ],
)
def test_a_base_that_can_be_neither_adapted_nor_sampled_is_refused_at_once(
    folder: Path, architecture: str, settings: dict, got: str
):
    save_random(folder, architecture, **settings)
    with pytest.raises(BaseModelError) as error:
        load_base(folder)
    assert error.value.got == got and "dense base" in error.value.fix


@pytest.mark.parametrize(
    ("architecture", "settings", "got"),
    [
        ("mpt", {}, "hidden states that differ"),
        ("bloom", {}, "ValueError"),
        ("falcon", {"alibi": True}, "ValueError"),
        ("falcon", {"bias": True}, "RuntimeError"),
    ],
    ids=["mpt", "bloom", "falcon-alibi", "falcon-in-place"],
)
def test_a_base_that_cannot_learn_from_packs_is_refused_at_once(
    folder: Path, architecture: str, settings: dict, got: str
):
    save_random(folder, architecture, **settings)
    with pytest.raises(BaseModelError, match="cannot learn from several texts in one sequence") as error:
        load_base(folder)
    assert error.value.got.startswith(got) and "Llama" in error.value.fix


@pytest.mark.parametrize("architecture", ["gpt2", "gpt_neox", "phi"])
def test_a_base_that_reads_a_pack_as_its_texts_is_left_as_it_was(folder: Path, architecture: str):
    save_random(folder, architecture)
    source = AutoModelForCausalLM.from_pretrained(folder)
    before = torch.get_rng_state()
    model = load_base(folder).model
    assert torch.equal(torch.get_rng_state(), before)
    assert [*model.state_dict()] == [*source.state_dict()], "no adapter lies over it"
    ids = torch.tensor([[2, 3, 4]])
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, source.eval()(input_ids=ids).logits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("architecture", sorted(PACKED))
def test_what_no_load_tries_in_packs_can_be_packed(architecture: str, dtype: torch.dtype):
    require_packs(tiny_model(dtype, architecture=architecture))


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        ({"max_position_embeddings": 512}, 512),
        ({"n_positions": 512, "rope_scaling": None}, 512),
        ({"text_config": {"max_position_embeddings": 512}}, 512),
        ({"alibi": True}, sys.maxsize),
    ],
)
def test_the_longest_sequence_is_the_one_that_the_configuration_names(config: dict, longest: int):
    assert longest_sequence(config) == longest


@pytest.mark.parametrize("written", [dict, lambda config: AutoConfig.for_model("phi3", **config).to_dict()])
def test_under_longrope_it_is_what_the_short_factors_are_for(written: Callable[[dict], dict]):
    """Else one long row turns the keys of all rows by other factors than those in the cache."""
    rope = {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    config = {"hidden_size": 32, "num_attention_heads": 4, "rope_scaling": rope}
    lengths = {"max_position_embeddings": 512, "original_max_position_embeddings": 64}
    assert longest_sequence(written(config | lengths)) == 64


@pytest.mark.parametrize(("times", "refused"), [(1.004, False), (2.0, True)], ids=["rounded", "scaled"])
def test_hidden_states_of_two_passes_may_differ_by_rounding_and_no_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch, times: float, refused: bool
):
    """A GPU does not promise that two passes are equal to the last bit."""
    monkeypatch.setattr(
        loading, "hidden_states", lambda *model, **inputs: times * hidden_states(*model, **inputs)
    )
    if refused:
        with pytest.raises(BaseModelError, match="changes its logits"):
            load_base(folder)
    else:
        load_base(folder)


def test_loading_prints_nothing(folder: Path, capfd: pytest.CaptureFixture[str]):
    load_base(folder)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_the_digest_follows_contents_and_ignores_what_is_not_read(folder: Path):
    before = base_digest(folder)
    (folder / "README.md").write_text("a card")
    assert base_digest(folder) == before
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-5}))
    assert base_digest(folder) != before


@pytest.mark.parametrize(
    ("pattern", "named"),
    [("config.json", "config.json"), ("*.safetensors", "weights"), ("tokenizer.json", "tokenizer")],
)
def test_a_missing_file_is_named(folder: Path, pattern: str, named: str):
    for file in folder.glob(pattern):
        file.unlink()
    with pytest.raises(BaseModelError) as error:
        load_base(folder)
    assert named in error.value.got
    assert error.value.fix


def test_a_missing_folder_is_refused(tmp_path: Path):
    with pytest.raises(BaseModelError, match="not a usable base model"):
        load_base(tmp_path / "nowhere")


def test_weights_that_do_not_fill_the_model_are_refused(folder: Path):
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(BaseModelError, match="do not fill"):
        load_base(folder)


def test_corrupt_weights_are_refused(folder: Path):
    (folder / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(BaseModelError, match="cannot be loaded"):
        load_base(folder)


def test_a_base_without_an_end_token_is_refused(folder: Path):
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        settings = json.loads((folder / name).read_text())
        settings.pop("eos_token_id", None)
        settings.pop("eos_token", None)
        (folder / name).write_text(json.dumps(settings))
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    with pytest.raises(BaseModelError, match="no end token"):
        load_base(folder)


def test_the_token_that_ends_a_turn_of_the_chat_template_ends_a_completion():
    """A base that was never tuned names its end of text alone, while its template ends turns by another token."""
    tokens = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2, "a": 3, "\n": 4}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE(vocab=tokens, merges=[])))
    tokenizer.add_special_tokens(
        {"eos_token": "<|endoftext|>", "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}
    )
    assert turn_end(tokenizer) is None, "without a template no one can say"
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    )
    assert turn_end(tokenizer) == 2
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    assert turn_end(tokenizer) is None
    tokenizer.chat_template = "{{ raise_exception('no assistant here') }}"
    assert turn_end(tokenizer) is None
