"""Translation of a client's body into requests for the sampler, and of completions into replies."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from populora_core.model.chat import TemplateBeyondBounds
from populora_core.problems.dialects import stops_of
from populora_core.sampler.requests import Completion, Request
from populora_core.support import ids
from populora_core.support.errors import BaseModelError, PopuloraError, RunDirectoryError
from populora_plugins.serving.batcher import BadQuestion, Batcher
from populora_plugins.serving.bodies import MOST_CHOICES, Asking, ChatBody, CompletionBody, Message
from populora_plugins.serving.fleet import Fleet, Pick
from populora_plugins.serving.reply import MemberReply, Stops, StreamedText, reply_of
from populora_plugins.serving.shapes import Json, Shape, Tokens, usage_of


class UnknownModel(PopuloraError):
    """A model that no one here is called."""


@dataclass(frozen=True, slots=True)
class Question:
    """A client's question, in tokens.

    Attributes:
        requests: choice by choice, of each the members in order.
        members: how many of them each choice has.
        alike: how many choices each prompt has, one after another.
        stops: the client's own, and those of the dialect.
    """

    requests: tuple[Request, ...]
    members: int
    alike: int
    pick: Pick
    stops: Stops
    shape: Shape
    wants_usage: bool

    @property
    def choices(self) -> int:
        return len(self.requests) // self.members

    @property
    def prompt_tokens(self) -> int:
        """Tokens that the members read: a prompt counts once, however many choices it has."""
        read = [
            request for place, request in enumerate(self.requests) if place // self.members % self.alike == 0
        ]
        return sum(len(request.prompt_ids) for request in read)


def question(fleet: Fleet, body: Asking) -> Question:
    """Turn a request body into sampler requests and the members to ask.

    A choice's seed is the body's own for the first and follows from it for the others; several members draw alike.

    Raises:
        UnknownModel: the body names no model that is served.
        BadQuestion: it asks for more, or for longer texts, than is answered.
    """
    try:
        members, pick = fleet.asked(body.model)
    except RunDirectoryError as error:
        raise UnknownModel(str(error)) from error
    prompts = [prompt for prompt in _prompts(fleet, body) for _ in range(body.n)]
    if not prompts or len(prompts) * len(members) > MOST_CHOICES:
        raise _too_many(len(prompts) * len(members))
    seed = secrets.randbits(62) if body.seed is None else body.seed
    stops = Stops(body.stops, _learnt_stops(fleet, body))
    requests = tuple(
        Request(
            member,
            prompt,
            seed if number == 0 else ids.draw_seed(seed, number),
            body.temperature,
            body.top_p,
            _length(fleet, body, prompt),
            stops.all,
        )
        for number, prompt in enumerate(prompts)
        for member in members
    )
    shape = Shape(body.model, isinstance(body, ChatBody), body.wants_logprobs)
    return Question(requests, len(members), body.n, pick, stops, shape, body.wants_usage)


async def answer(fleet: Fleet, batcher: Batcher, asked: Question) -> Json:
    """The whole answer."""
    replies, usage = _answered(fleet, asked, await batcher.complete(asked.requests))
    return asked.shape.whole(replies, usage)


async def chunks(fleet: Fleet, batcher: Batcher, asked: Question) -> AsyncIterator[Json]:
    """The answer as it is written; with several members, once one reply is chosen."""
    streams = [_Stream(fleet, asked, choice) for choice in range(asked.choices)]
    drawn: asyncio.Queue[tuple[int, int, float] | None] = asyncio.Queue()
    told = (lambda *each: drawn.put_nowait(each)) if asked.members == 1 else None
    sampling = asyncio.create_task(batcher.complete(asked.requests, told))
    sampling.add_done_callback(lambda _: drawn.put_nowait(None))
    try:
        while (came := await drawn.get()) is not None:
            place, token, logprob = came
            for chunk in streams[place].take(token, logprob):
                yield chunk
        replies, usage = _answered(fleet, asked, sampling.result())
        for stream, reply in zip(streams, replies, strict=True):
            yield stream.end(reply)
        if asked.wants_usage:
            yield asked.shape.last(usage)
    finally:
        sampling.cancel()


class _Stream:
    """One choice on its way out."""

    def __init__(self, fleet: Fleet, asked: Question, index: int) -> None:
        self._vocabulary, self._asked, self._index = fleet.vocabulary, asked, index
        self._growing = StreamedText(fleet.vocabulary, asked.stops)
        self._pieces: deque[tuple[str, float]] = deque()  # drawn, and not sent
        self._text, self._tokens = 0, 0  # characters and tokens sent
        self._first = True

    def take(self, token: int, logprob: float) -> list[Json]:
        """The chunk that one more token makes, if any."""
        if token in self._vocabulary.stop_ids:  # at its end: what is held back comes with the finish reason
            return []
        if self._asked.shape.logprobs:
            self._pieces.append((self._vocabulary.text([token]), logprob))
        text, count = self._growing.take(token)
        tokens = [self._pieces.popleft() for _ in range(count)] if self._asked.shape.logprobs else []
        self._text, self._tokens = self._text + len(text), self._tokens + len(tokens)
        return [self._chunk(text, tokens)] if text else []

    def end(self, reply: MemberReply) -> Json:
        """The chunk with the rest of the reply and its finish reason."""
        text, tokens = reply.text[self._text :], reply.tokens[self._tokens :]
        return self._chunk(text, tokens, str(reply.finish_reason))

    def _chunk(self, text: str, tokens: Tokens, finish: str | None = None) -> Json:
        first, self._first = self._first, False
        return self._asked.shape.chunk(self._index, text, tokens, finish, first)


def _answered(fleet: Fleet, asked: Question, found: Sequence[Completion]) -> tuple[list[MemberReply], Json]:
    """The reply of each choice, and what all that was sampled for them took."""
    replies = [
        reply_of(fleet.vocabulary, completion, asked.stops, asked.shape.logprobs) for completion in found
    ]
    chosen = []
    for start in range(0, len(replies), asked.members):
        own = replies[start : start + asked.members]
        chosen.append(own[asked.pick(own)])
    return chosen, usage_of(asked.prompt_tokens, sum(reply.drawn for reply in replies))


def _prompts(fleet: Fleet, body: Asking) -> list[tuple[int, ...]]:
    tokenizer = fleet.vocabulary.tokenizer
    if isinstance(body, ChatBody):
        return [_conversation(fleet, body.messages)]
    assert isinstance(body, CompletionBody)
    size = len(tokenizer)
    if len(body.prompts) * body.n > MOST_CHOICES:  # before any of them is encoded
        raise _too_many(len(body.prompts) * body.n)
    encoded = [tokenizer(text)["input_ids"] if isinstance(text, str) else text for text in body.prompts]
    if not all(ids_ and all(0 <= token < size for token in ids_) for ids_ in encoded):
        raise BadQuestion(f"a prompt has at least one token, each of them from 0 to {size - 1}")
    return [tuple(ids_) for ids_ in encoded]


def _too_many(came: int) -> BadQuestion:
    return BadQuestion(
        f"a body asks for 1 to {MOST_CHOICES} completions: prompts, times n, times members asked; came {came}"
    )


def _as_learnt(messages: Sequence[Message]) -> bool:
    """True of one message of a user, which is put as members learnt to be asked."""
    return [message.role for message in messages] == ["user"]


def _learnt_stops(fleet: Fleet, body: Asking) -> tuple[str, ...]:
    """The texts after which members learnt to end their completion."""
    if isinstance(body, ChatBody) and _as_learnt(body.messages):
        return stops_of(fleet.dialect, body.messages[0].text)
    return ()


def _conversation(fleet: Fleet, messages: Sequence[Message]) -> tuple[int, ...]:
    """One message of a user is put as members learnt to be asked; a longer talk by the base's chat template."""
    tokenizer = fleet.vocabulary.tokenizer
    if _as_learnt(messages):
        found = fleet.dialect.encode(tokenizer, messages[0].text)
    elif tokenizer.chat_template:
        turns = [
            # most templates know no developer, and leave its messages out
            {"role": "system" if message.role == "developer" else message.role, "content": message.text}
            for message in messages
        ]
        try:
            text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        except TemplateBeyondBounds:
            raise
        except BaseModelError as error:
            raise BadQuestion(f"the base's chat template refuses this conversation: {error.got}") from error
        found = tokenizer(text, add_special_tokens=False)["input_ids"]
    else:
        raise BadQuestion("this base has no chat template: send one message, of the user")
    if not found:
        raise BadQuestion("the message is empty")
    return tuple(found)


def _length(fleet: Fleet, body: Asking, prompt: Sequence[int]) -> int:
    """Largest number of tokens of the completion."""
    room = fleet.context - len(prompt)
    wanted = body.most_tokens or max(1, min(fleet.usual, room))
    if wanted > room:
        raise BadQuestion(
            f"a prompt with its completion has at most {fleet.context} tokens here; "
            f"came {len(prompt)} and max_tokens {wanted}"
        )
    return wanted
