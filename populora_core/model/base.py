"""The frozen base model: an ordinary transformers checkpoint folder, loaded once and never trained."""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from populora_core.model.chat import BoundedTemplate, TemplateBeyondBounds, special_tokens
from populora_core.support.devices import CUDA
from populora_core.support.digest import file_sha256
from populora_core.support.errors import BaseModelError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

READ_SUFFIXES = frozenset({".json", ".safetensors", ".model", ".txt", ".jinja"})
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
GENERATION_CONFIG = "generation_config.json"
LOCAL: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
ATTENTION = {"full_attention", "sliding_attention"}  # types of layers that the sampler's cache keeps
SAME = 0.1  # share of their size by which hidden states of two passes differ at most
ANOTHER = "choose a dense base with attention in every layer, for instance a Qwen2.5 or Llama"
REMEDY = "give a complete checkpoint folder; `hf download NAME --local-dir FOLDER` makes one"


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A frozen causal language model with its tokenizer.

    Attributes:
        digest: sha256 over the checkpoint's files (see `base_digest`).
        stop_ids: token ids that end a completion.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    digest: str
    stop_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokenizer of a base, and the token ids that end a completion."""

    tokenizer: PreTrainedTokenizerBase
    stop_ids: frozenset[int]

    def text(self, ids: Sequence[int]) -> str:
        """Decode the tokens, special ones included, to the last blank."""
        return str(
            self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        )


def base_digest(path: str | Path) -> str:
    """sha256 over names and contents of the files that transformers reads from the folder."""
    total = hashlib.sha256()
    for file in sorted(Path(path).iterdir()):
        if file.is_file() and file.suffix in READ_SUFFIXES:
            total.update(f"{file.name} {file_sha256(file)}\n".encode())
    return total.hexdigest()


def load_base(
    path: str | Path, dtype: str = "float32", device: str = "cpu", bits: Literal[16, 8, 4] = 16
) -> BaseModel:
    """Load a checkpoint folder: every parameter frozen, evaluation mode, no remote code.

    Args:
        dtype: name of the torch dtype that the base computes in.
        bits: that its linear layers are kept in.

    Raises:
        BaseModelError: the folder lacks config, weights, tokenizer or end token, cannot be read, or its
            architecture changes the logits after the output layer or can be neither adapted, sampled nor packed.
    """
    import torch
    from transformers import AutoModelForCausalLM

    from populora_core.model.attention import group_queries
    from populora_core.model.probe_pack import PACKED, require_packs
    from populora_core.model.quantised import quantise

    folder = Path(path)
    require_files(folder)
    vocabulary = load_vocabulary(folder)
    with _loading(folder):
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), use_safetensors=True, output_loading_info=True, **LOCAL
        )
    require_all_weights(report, folder, REMEDY)
    model.requires_grad_(False).eval()
    if bits != 16:
        quantise(model, bits, device)
    if device == CUDA:
        keep_numbers_sound()
    model.to(device)
    if device == CUDA or dtype != "float32":  # in float32 on a CPU results keep their last bits
        group_queries(model)
    _require_supported(model)
    if model.config.model_type not in PACKED:
        require_packs(model)
    return BaseModel(model, vocabulary.tokenizer, base_digest(folder), vocabulary.stop_ids)


def keep_numbers_sound() -> None:
    """Switch off, in this process, kernels of a GPU whose numbers cannot be relied on."""
    import torch

    # Under a mask its backward pass gives NaN on H100 at some lengths (pytorch issue 196678).
    torch.backends.cuda.enable_cudnn_sdp(False)
    # Images of NVIDIA switch TF32 on by their environment: a float32 proof needs more than its 10 bits.
    torch.backends.cuda.matmul.allow_tf32 = False


def require_all_weights(report: Mapping[str, Any], source: Path, fix: str) -> None:
    """Refuse weights that leave a parameter unset, which transformers would fill at random and merely warn.

    Args:
        report: the loading info of `from_pretrained`.

    Raises:
        BaseModelError: a parameter is missing, or has another shape.
    """
    unset = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
    if unset:
        raise BaseModelError(
            f"the weights in {source} do not fill the model that they describe",
            expected="every parameter of the model, in its shape",
            got=f"{len(unset)} missing, first {unset[0]}",
            fix=fix,
        )


def load_vocabulary(path: str | Path) -> Vocabulary:
    """The tokenizer and end tokens of a checkpoint folder, whose weights need not be there.

    Raises:
        BaseModelError: the folder lacks config, tokenizer or end token, or cannot be read; or its chat template takes
            too much.
    """
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    folder = Path(path)
    require_files(folder, weights=False)
    with _loading(folder):
        tokenizer = AutoTokenizer.from_pretrained(folder, **LOCAL)
        tokenizer.apply_chat_template = BoundedTemplate(tokenizer, folder)
        config = AutoConfig.from_pretrained(folder, **LOCAL)
        if (folder / GENERATION_CONFIG).is_file():
            generation = GenerationConfig.from_pretrained(folder, local_files_only=True)
        else:
            generation = GenerationConfig.from_model_config(config)
    listed = generation.eos_token_id
    named = [*(listed if isinstance(listed, list) else [listed]), tokenizer.eos_token_id, turn_end(tokenizer)]
    size = config.get_text_config().vocab_size
    stop_ids = frozenset(token for token in named if isinstance(token, int) and 0 <= token < size)
    if not stop_ids:
        raise BaseModelError(
            f"the base model in {folder} has no end token",
            expected="eos_token_id in generation_config.json, or eos_token in tokenizer_config.json",
            fix="add it: without an end token no completion ever ends",
        )
    return Vocabulary(tokenizer, stop_ids)


def turn_end(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The special token by which the chat template ends an answer; None without a template, or without such a token.

    A base that was never tuned may not name it among its end tokens, and would write on after its turn.
    """
    if not tokenizer.chat_template:
        return None
    said = "answer"
    turns = [{"role": "user", "content": "question"}, {"role": "assistant", "content": said}]
    try:
        text = str(tokenizer.apply_chat_template(turns, tokenize=False))
    except TemplateBeyondBounds:
        raise
    except Exception:  # templates are programs of their own, which raise what they like
        return None
    after = tokenizer(text.rpartition(said)[2].lstrip(), add_special_tokens=False)["input_ids"]
    return after[0] if after and after[0] in special_tokens(tokenizer) else None


def require_same(folder: str | Path, digest: str, recorded: str) -> None:
    """Raise BaseModelError unless the base in `folder` has the digest that the run began with."""
    if digest != recorded:
        raise BaseModelError(
            f"the base model in {folder} is not the one that this run began with",
            expected=f"files with digest {recorded[:12]}",
            got=digest[:12],
            fix="restore the old files; for the new ones start a new run",
        )


def longest_sequence(config: Mapping[str, Any], by_transformers: bool = True) -> int:
    """The longest sequence that a base serves, in tokens.

    Under "longrope" transformers turns keys by other factors than those in its cache once one row is longer.

    Args:
        config: what its config.json holds.
    """
    text = config.get("text_config") or config
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    bounds = [text.get("max_position_embeddings", text.get("n_positions"))]
    if by_transformers and rope.get("rope_type", rope.get("type")) == "longrope":
        bounds += [each.get("original_max_position_embeddings") for each in (rope, text)]
    return min((bound for bound in bounds if bound is not None), default=sys.maxsize)


def hidden_states(model: PreTrainedModel, **inputs: Any) -> Tensor:
    """Hidden states [N, T, d] of the decoder after its final norm, that is without the output layer."""
    return model.base_model(**inputs).last_hidden_state


def require_files(folder: Path, weights: bool = True) -> None:
    """Raise BaseModelError unless the folder has all parts of a checkpoint; reads none of them.

    Args:
        weights: that they are needed too.
    """
    names = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    needed = {
        "config.json": "config.json" in names,
        "weights (*.safetensors)": not weights or any(name.endswith(".safetensors") for name in names),
        "a tokenizer (tokenizer.json)": any(name in names for name in TOKENIZER_FILES),
    }
    missing = [what for what, present in needed.items() if not present]
    if "adapter_config.json" in names:
        raise BaseModelError(
            f"{folder} holds an adapter beside the base model",
            expected="a folder without adapter_config.json, which would be laid over the base, from wherever it says",
            fix="move the adapter elsewhere; populora evaluate ADAPTER --base BASE scores it",
        )
    if missing:
        raise BaseModelError(
            f"{folder} is not a usable base model",
            expected="a folder with config.json, *.safetensors and tokenizer files",
            got="no such folder" if not folder.is_dir() else "without " + " and ".join(missing),
            fix=REMEDY,
        )


def _require_supported(model: PreTrainedModel) -> None:
    """Refuse what adapters cannot lie over, what the sampler's cache cannot hold, and logits that are changed.

    Learner and sampler apply the output layer themselves, to the few positions that need it. The result of one pass is
    compared with itself: two passes on a GPU need not be equal to the last bit.
    """
    import torch
    from torch import nn

    name, config = type(model).__name__, model.config.get_text_config()
    if odd := {*(getattr(config, "layer_types", None) or ())} - ATTENTION:
        raise BaseModelError(
            f"{name} has layers that the sampler's cache cannot serve",
            expected=" or ".join(sorted(ATTENTION)),
            got=", ".join(sorted(odd)),
            fix=ANOTHER,
        )
    # Several tokens, since the one that pads may have nothing but zeros.
    probe = torch.arange(min(8, config.vocab_size), device=model.device)[None]
    given: list[Tensor] = []
    flat: list[str] = []

    def look(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if layer is not head and inputs[0].shape[:-1] != probe.shape:
            flat.append(f"{list(inputs[0].shape)} for a text of {probe.shape[1]} tokens")

    head = model.get_output_embeddings()
    seeing = [each.register_forward_pre_hook(look) for each in model.modules() if isinstance(each, nn.Linear)]
    seeing.append(
        head.register_forward_hook(lambda layer, inputs, output: given.extend((inputs[0], output.clone())))
    )
    with torch.no_grad():
        logits = model(input_ids=probe, use_cache=False).logits
        for each in seeing:
            each.remove()
        states = hidden_states(model, input_ids=probe, use_cache=False)
    if flat:
        raise BaseModelError(
            f"{name} has linear layers that no longer see which row a token is of",
            expected="inputs [rows, tokens, width], so that each row takes its member's adapter",
            got=flat[0],
            fix=ANOTHER,
        )
    plain = len(given) == 2 and bool(given[1].any()) and torch.equal(logits.to(given[1]), given[1])
    if not plain or (given[0] - states).float().norm() > SAME * states.float().norm():
        raise BaseModelError(
            f"{name} changes its logits after the output layer",
            expected="logits that are the output layer of the last hidden state",
            fix="choose a base without logit soft-capping or scaling, for instance a Qwen2.5 or Llama",
        )


@contextmanager
def _loading(folder: Path) -> Iterator[None]:
    """transformers raises whatever its parts raise: OSError, ValueError, ..."""
    with quiet_transformers():
        try:
            yield
        except Exception as error:
            raise BaseModelError(
                f"the base model in {folder} cannot be loaded",
                got=str(error).strip().split("\n")[0],
                fix=REMEDY,
            ) from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Loading reports on stderr look like failures to a newcomer; what matters is raised instead."""
    from transformers.utils import logging

    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
