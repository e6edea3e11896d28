"""Bodies of requests, in OpenAI's words.

A field that would change the answer and is not known here is refused, never ignored.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

IGNORED = frozenset({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"})
"""Fields that no answer depends on."""

NOTHING: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "response_format": ({"type": "text"},),
    "tool_choice": ("none", "auto"),  # tools themselves are refused
    "parallel_tool_calls": (True,),
    "repetition_penalty": (1,),
    "top_k": (-1,),
    "skip_special_tokens": (True,),
}
"""Values that ask for nothing and that clients send as their defaults; null, 0, false and empty values count as that
in every field."""

Stop = str | list[str] | None
MOST_CHOICES = 128
LONGEST_STOP = 1000
"""Characters: each token looks for it in the text."""


class Asking(BaseModel):
    """The fields that both kinds of completion have."""

    model_config = ConfigDict(extra="allow")

    model: str
    max_tokens: int | None = Field(None, ge=1)
    temperature: float = Field(1.0, ge=0.0, le=2.0, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    n: int = Field(1, ge=1, le=MOST_CHOICES)
    seed: int | None = Field(None, ge=0, lt=1 << 63)
    stop: Stop = None
    stream: bool = False
    stream_options: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _null_is_the_default(cls, body: Any) -> Any:
        return {k: v for k, v in body.items() if v is not None} if isinstance(body, dict) else body

    @model_validator(mode="after")
    def _refuse_what_is_not_done(self) -> Self:
        extra = {name: value for name, value in (self.model_extra or {}).items() if name not in IGNORED}
        asked = [name for name, value in extra.items() if value and not _asks_nothing(name, value)]
        if asked:
            raise ValueError(f"not supported here: {', '.join(sorted(asked))}")
        if len(self.stops) > 4 or not all(self.stops):
            raise ValueError("stop takes up to 4 strings, none of them empty")
        if any(len(stop) > LONGEST_STOP for stop in self.stops):
            raise ValueError(f"a stop string has up to {LONGEST_STOP} characters")
        if 0.0 < self.temperature < 0.01:  # vLLM samples at no other
            raise ValueError("temperature is 0, or 0.01 and more")
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def most_tokens(self) -> int | None:
        return self.max_tokens

    @property
    def wants_logprobs(self) -> bool:
        raise NotImplementedError

    @property
    def wants_usage(self) -> bool:
        """True if a stream ends with its token counts."""
        return bool((self.stream_options or {}).get("include_usage"))


def _asks_nothing(name: str, value: Any) -> bool:
    # 1 and 1.0 are one value in JSON; true and 1 are two
    return any(
        value == nothing and isinstance(value, bool) == isinstance(nothing, bool)
        for nothing in NOTHING.get(name, ())
    )


class CompletionBody(Asking):
    """The body of /v1/completions."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: Literal[0, 1] | None = None

    @property
    def prompts(self) -> list[Any]:
        """Each in text or in tokens."""
        one = isinstance(self.prompt, str) or (self.prompt and isinstance(self.prompt[0], int))
        return [self.prompt] if one else list(self.prompt)

    @property
    def wants_logprobs(self) -> bool:
        return self.logprobs is not None


class TextPart(BaseModel):
    """A part of a message."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] | None = None
    tool_calls: list[Any] | None = Field(None, max_length=0)

    @model_validator(mode="after")
    def _only_an_assistant_says_nothing(self) -> Self:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"a message of the {self.role} has content")
        return self

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content or ())


class ChatBody(Asking):
    """The body of /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None

    @property
    def most_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def wants_logprobs(self) -> bool:
        return bool(self.logprobs)
