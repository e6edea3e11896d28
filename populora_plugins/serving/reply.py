"""Replies to clients: a completion's text without end token and stop text, and the tokens of that text."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from populora_core.model.base import Vocabulary
from populora_core.sampler.requests import Completion
from populora_core.sampler.stops import BROKEN, first_stop
from populora_core.support.finish import FinishReason

MOST_BYTES = 4
"""Bytes of a character in UTF-8, at most: what more tokens than that leave broken stays so."""


@dataclass(frozen=True, slots=True)
class Stops:
    """Texts that end a reply.

    Attributes:
        own: the client's, which a reply leaves out.
        learnt: the dialect's, which a reply keeps: an answer is read with them.
    """

    own: tuple[str, ...] = ()
    learnt: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.own, *self.learnt)))

    def end(self, text: str) -> int | None:
        """The number of characters that a reply has of a text; None where no stop text is complete in it."""
        found = first_stop(text, self.all)
        if found is None:
            return None
        start, end = found
        return start if text[start:end] in self.own else end


@dataclass(frozen=True, slots=True)
class MemberReply:
    """One choice of an answer.

    Attributes:
        sureness: mean log-probability of the tokens that were drawn for it.
        tokens: text and log-probability of each token of the text, if requested.
        drawn: tokens that were sampled for it, the end token and what a stop text cut off included.
    """

    text: str
    tokens: tuple[tuple[str, float], ...]
    finish_reason: FinishReason
    drawn: int
    sureness: float = 0.0


def reply_of(
    vocabulary: Vocabulary, completion: Completion, stops: Stops, tokens: bool = False
) -> MemberReply:
    """The completion up to its end token or the stop text that is complete first, whichever comes first.

    Args:
        tokens: whether they are wanted one by one.
    """
    ids, drawn = list(completion.token_ids), len(completion.token_ids)
    if ids and ids[-1] in vocabulary.stop_ids:
        ids.pop()
    text, reason = vocabulary.text(ids), completion.finish_reason
    end = stops.end(text)
    if end is not None:
        text, reason = text[:end], FinishReason.STOP
        while ids and len(vocabulary.text(ids[:-1])) >= len(text):
            ids.pop()
    told = zip(map(vocabulary.text, ([token] for token in ids)), completion.logprobs, strict=False)
    return MemberReply(text, tuple(told) if tokens else (), reason, drawn, fmean(completion.logprobs))


class StreamedText:
    """The text of a completion as it grows, token by token; what may change or be cut yet is held back."""

    def __init__(self, vocabulary: Vocabulary, stops: Stops) -> None:
        self._vocabulary, self._stops = vocabulary, stops
        self._ids: list[int] = []  # the tail: tokens read, of which the first `_read` are in `_text`
        self._read = 0
        self._held, self._length = "", 0  # read, and not given out; characters read
        self._ends: deque[int] = deque()  # of each token that was not given out, where its text ends
        self._stopped = False

    def take(self, token: int) -> tuple[str, int]:
        """Take a token; return the text that can be sent now, and the number of tokens that go with it."""
        self._ids.append(token)
        before, text = self._vocabulary.text(self._ids[: self._read]), self._vocabulary.text(self._ids)
        whole = not text.endswith(BROKEN) or len(self._ids) - self._read > MOST_BYTES
        if len(text) > len(before) and whole:
            self._held += text[len(before) :]
            self._length += len(text) - len(before)
            self._ids, self._read = self._ids[self._read :], len(self._ids) - self._read
        self._ends.append(self._length)
        end = None if self._stopped else self._stops.end(self._held)
        if end is not None:
            count, self._stopped = end, True
        else:
            count = 0 if self._stopped else settled(self._held, self._stops.all)
        text, self._held = self._held[:count], self._held[count:]
        given, tokens = self._length - len(self._held), 0
        while text and self._ends and self._ends[0] <= given:
            self._ends.popleft()
            tokens += 1
        return text, tokens


def settled(text: str, stop: Sequence[str]) -> int:
    """Number of characters of an unfinished text that will stay: without an end that may begin a stop text."""
    longest = max(map(len, stop), default=1) - 1
    for start in range(max(0, len(text) - longest), len(text)):
        if any(string.startswith(text[start:]) for string in stop):
            return start
    return len(text)
