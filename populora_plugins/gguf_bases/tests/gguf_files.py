"""GGUF files of a model of one layer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from gguf import GGUFWriter, LlamaFileType, TokenType

WIDTH, INNER, HEADS = 32, 64, 4
WORDS = ["<s>", "</s>", "<pad>", *map(chr, range(33, 127)), "Ġ", "Ċ", "ab"]


def llama(
    file: Path,
    head_noise: float | None = None,
    lacks: str = "",
    also: Callable[[GGUFWriter], object] = lambda writer: None,
) -> torch.Tensor:
    """Write a llama of one layer.

    Args:
        head_noise: of the head, which is the embedding with noise, another matrix (inf), or not there (None).
        lacks: the tensor that is left out.
        also: writes further settings and tensors.

    Returns:
        The embedding.
    """
    draw = torch.Generator().manual_seed(0)
    vocabulary = len(WORDS)

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw) / WIDTH**0.5

    writer = GGUFWriter(str(file), "llama")
    writer.add_file_type(LlamaFileType.ALL_F32)
    writer.add_name("small")
    writer.add_context_length(2048)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(WORDS)
    writer.add_token_types([TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (vocabulary - 3))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    embedding = matrix(vocabulary, WIDTH)
    tensors = {"token_embd.weight": embedding, "output_norm.weight": torch.ones(WIDTH)}
    for name, shape in {
        "attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH), "attn_v": (WIDTH, WIDTH), "attn_output": (WIDTH, WIDTH),
        "ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER),
    }.items():  # fmt: skip
        tensors[f"blk.0.{name}.weight"] = matrix(*shape)
    tensors |= {f"blk.0.{name}.weight": torch.ones(WIDTH) for name in ("attn_norm", "ffn_norm")}
    if head_noise is not None:
        other = matrix(vocabulary, WIDTH)
        tensors["output.weight"] = other if head_noise == float("inf") else embedding + head_noise * other
    tensors.pop(lacks, None)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor.numpy())
    also(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return embedding
