"""The words of the stepwise language, which become tokens beside the special ones and single bytes."""

from __future__ import annotations

from transformers import PreTrainedTokenizerFast

from base_model.steps.grammar import BASE, HEAD, TAIL, VARIABLES
from base_model.tokenizer import build_tokenizer

_LINES = [f"\n {v}=({v}{sign}" for v in VARIABLES for sign in "+-"] + [f"\n {v}=" for v in VARIABLES]
_THOUGHTS = [f"\n {v}{sign}" for v in VARIABLES for sign in "+-"]
WORDS = (HEAD, TAIL, f")%{BASE}", *_LINES, *_THOUGHTS, "\n#", "\n=", "\n:", "\n ", "\n return ", "if ", "for i in range(")


def tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of the frontier base."""
    return build_tokenizer(WORDS)
