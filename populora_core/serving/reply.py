"""What a completion says to who asked: its text without end token and stop string, and the tokens of that text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from populora_core.model.base import Vocabulary
from populora_core.sampler.requests import Completion
from populora_core.support.finish import FinishReason


@dataclass(frozen=True, slots=True)
class MemberReply:
    """One choice of an answer.

    Attributes:
        sureness: mean log-probability of the tokens that were drawn for it.
        tokens: text and log-probability of each token of the text, where they are asked for.
        drawn: tokens that were sampled for it, the end token and what a stop string cut off included.
    """

    text: str
    tokens: tuple[tuple[str, float], ...]
    finish_reason: FinishReason
    drawn: int
    sureness: float = 0.0


def reply_of(
    vocabulary: Vocabulary, completion: Completion, stop: Sequence[str], tokens: bool = False
) -> MemberReply:
    """The completion up to its end token or the first stop string, whichever comes first.

    Args:
        tokens: whether they are wanted one by one, which takes as long as the rest of an answer together.
    """
    ids, drawn = list(completion.token_ids), len(completion.token_ids)
    if ids and ids[-1] in vocabulary.stop_ids:
        ids.pop()

    def said(count: int) -> str:
        return vocabulary.tokenizer.decode(ids[:count], skip_special_tokens=False)

    text, reason = said(len(ids)), completion.finish_reason
    ends = [place for place in map(text.find, stop) if place >= 0]
    if ends:
        text, reason = text[: min(ends)], FinishReason.STOP
        kept = next(count for count in range(len(ids) + 1) if len(said(count)) >= len(text))
        ids = ids[:kept]
    pieces = (
        vocabulary.tokenizer.decode([token], skip_special_tokens=False) for token in (ids if tokens else ())
    )
    told = tuple(zip(pieces, completion.logprobs, strict=False))
    return MemberReply(text, told, reason, drawn, fmean(completion.logprobs))


def settled(text: str, stop: Sequence[str]) -> int:
    """How many characters of an unfinished text will stay: not half a character, nor what may begin a stop string."""
    whole = text.rstrip("\ufffd")
    open_ends = (
        len(whole) - size
        for string in stop
        for size in range(1, len(string))
        if whole.endswith(string[:size])
    )
    return min(open_ends, default=len(whole))
