"""Published Qwen2.5 models of five sizes, with the sums that their widths come to by hand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Base:
    """A published Qwen2.5, and what its widths come to by hand.

    Attributes:
        widths: hidden, of the feed-forward part, layers, query and key heads, vocabulary, tied.
        parameters: as published. adapter: numbers at rank 32.
        kept, all_kept: bytes of a token for backward, with and without checkpointing.
        cache: bytes of a token's keys and values.
    """

    widths: tuple[int, int, int, int, int, int, bool]
    parameters: int
    adapter: int
    kept: int
    all_kept: int
    cache: int


BASES = {
    # With l = (2 h + 4 q + 4 w) 2 + 8 h of a layer, in bytes of bfloat16 and float32: all_kept = layers l + 3 h 2 and
    # the larger of (w + h) 4 and 20 h; kept = layers 2 h + 3 h 2 + l + (w + h) 4.
    "0.5b": Base((896, 4864, 24, 14, 2, 151_936, True), 494_032_768, 17_596_416, 128_256, 1_392_384, 12_288),
    "1.5b": Base(
        (1536, 8960, 28, 12, 2, 151_936, True), 1_543_714_304, 36_929_536, 239_616, 2_918_400, 28_672
    ),
    "7b": Base(
        (3584, 18944, 28, 28, 4, 152_064, False), 7_615_616_512, 80_740_352, 535_552, 6_362_112, 57_344
    ),
    "14b": Base(
        (5120, 13824, 48, 40, 8, 152_064, False), 14_770_033_664, 137_625_600, 811_008, 10_356_736, 196_608
    ),
    "32b": Base(
        (5120, 27648, 64, 40, 8, 152_064, False), 32_763_876_352, 268_435_456, 1_140_736, 20_871_168, 262_144
    ),
}


def config_of(base: Base) -> dict[str, object]:
    hidden, widest, layers, heads, keys, vocabulary, tied = base.widths
    return {
        "hidden_size": hidden,
        "intermediate_size": widest,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "vocab_size": vocabulary,
        "tie_word_embeddings": tied,
        "max_position_embeddings": 32_768,
    }
