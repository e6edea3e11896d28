"""Answers in OpenAI's shapes, whole and in chunks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from populora_plugins.serving.reply import MemberReply

Json = dict[str, Any]
Tokens = Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of the answers to one question.

    Attributes:
        chat: whether it is of /v1/chat/completions.
        logprobs: whether tokens have their log-probabilities.
    """

    model: str
    chat: bool
    logprobs: bool
    name: str = field(default_factory=lambda: uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, replies: Sequence[MemberReply], usage: Json) -> Json:
        choices = [self._whole_choice(index, reply) for index, reply in enumerate(replies)]
        return self._around("chat.completion", choices) | {"usage": usage}

    def chunk(self, index: int, text: str, tokens: Tokens, finish: str | None, first: bool) -> Json:
        """A chunk of a choice: its next text, or its finish reason at the end; the first alone says whose it is."""
        told: Json = {"index": index, "finish_reason": finish, "logprobs": self._logprobs(tokens)}
        delta = {"role": "assistant"} if first else {}
        told |= {"delta": delta | {"content": text}} if self.chat else {"text": text}
        return self._around("chat.completion.chunk", [told])

    def last(self, usage: Json) -> Json:
        """The chunk that tells what a stream took."""
        return self._around("chat.completion.chunk", []) | {"usage": usage}

    def _whole_choice(self, index: int, reply: MemberReply) -> Json:
        told: Json = {"index": index, "finish_reason": str(reply.finish_reason)}
        told["logprobs"] = self._logprobs(reply.tokens)
        if self.chat:
            return told | {"message": {"role": "assistant", "content": reply.text, "refusal": None}}
        return told | {"text": reply.text}

    def _around(self, kind: str, choices: list[Json]) -> Json:
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.name}",
            "object": kind if self.chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def _logprobs(self, tokens: Tokens) -> Json | None:
        if not self.logprobs:
            return None
        if self.chat:
            content = [
                {"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []}
                for text, value in tokens
            ]
            return {"content": content, "refusal": None}
        return {
            "tokens": [text for text, _ in tokens],
            "token_logprobs": [value for _, value in tokens],
            "top_logprobs": None,
            "text_offset": None,
        }


def usage_of(prompt_tokens: int, drawn: int) -> Json:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": drawn,
        "total_tokens": prompt_tokens + drawn,
    }


def error_body(message: str, kind: str, code: str | None = None) -> Json:
    return {"error": {"message": message, "type": kind, "code": code, "param": None}}
