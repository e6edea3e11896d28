"""The compact dialect's tokenizer: special tokens, bytes, and the grammar's frequent words.

Words are added tokens, not merges: for the model type ``qwen2`` transformers replaces the pre-tokenizer of
a saved tokenizer by its own, so a split of our own would be lost, while added tokens are kept and matched
before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

MAX_LENGTH = 1024

SPECIAL_TOKENS = ("<pad>", "<eos>", "<po>", "<pi>", "<pf>", "<so>", "<si>", "<sf>", "<ref>", "<new>")
PAD, EOS = 0, 1

_LAYOUT = ["\n ", "\n  ", "\n   ", "\n    ", "\n#", "\n=", "\n:", "def f(x):", "def f(x,y):"]
_STATEMENTS = [
    "\n return ", "\n if ", "\n  if ", "\n   if ", "\n else:", "\n  else:", "\n for i in ", "\n  for j in ",
    "\n while ", "range(", "range(len(", "u=", "u+=", "v=", "v+=", "x=", "-=", "//=",
]  # fmt: skip
_EXPRESSIONS = [
    " for i in ", "[i for i in ", "''.join(", "i for i in ", " if i", " if ", "not in ", " in ", "len(",
    "len(set(", "sum(", "max(", "min(", "abs(", "str(", "str(i)", "list(range(", "sorted(", "ord(i)-97",
    ".count(", ".find(", ".upper()", ".replace(", "[::-1]", "[1:]", "[:-1]", "[::2]", "x[0]", "x[-1]",
    "[i+1]", "[i]", "[]", "''", "//", "==", "!=", "%2==0", "%2==1", "%3==0", "))", "):",
]  # fmt: skip
WORDS = tuple(_LAYOUT + _STATEMENTS + _EXPRESSIONS)


def build_tokenizer(words: Sequence[str] = WORDS) -> PreTrainedTokenizerFast:
    """The tokenizer, ready to encode, or to be saved beside a checkpoint; `words` become tokens of their own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate((*SPECIAL_TOKENS, *alphabet))}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    )
    backend.add_tokens([AddedToken(word, special=False, normalized=False) for word in words])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=SPECIAL_TOKENS[PAD],
        # Bytes leave nothing unknown; unnamed, the loaded tokenizer adds one of its own beyond the embeddings.
        unk_token=SPECIAL_TOKENS[PAD],
        eos_token=SPECIAL_TOKENS[EOS],
        additional_special_tokens=list(SPECIAL_TOKENS[2:]),
        padding_side="left",
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )
