"""The words of the stepwise language, which become tokens beside the special ones and single bytes."""

from __future__ import annotations

from transformers import PreTrainedTokenizerFast

from base_model.steps.grammar import BASE, HEAD, OPERATORS, TAIL, VARIABLES
from base_model.tokenizer import build_tokenizer

_LINES = [f"\n {v}=({v}{sign}" for v in VARIABLES for sign in OPERATORS]
_THOUGHTS = [f"\n {v}{sign}" for v in VARIABLES for sign in OPERATORS]
WORDS = (HEAD, TAIL, f")%{BASE}", *_LINES, *_THOUGHTS, "\n#", "\n=", "\n:")


def tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of the frontier base."""
    return build_tokenizer(WORDS)
