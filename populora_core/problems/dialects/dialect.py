"""The protocol of a dialect: the prompts a model gets, and the grammar its completions are read by."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from populora_core.model.chat import SpecialTokens, special_tokens
from populora_core.problems.model import Draft, Problem
from populora_core.problems.types import TypeRules

_LITERAL = (
    r"""(?:(?<!\w)(?P<prefix>[bf]?r|r[bf]|[bfu]))?(?P<quote>(?P<long>\'{3}|"{3})|['"])"""
    r"""(?:\\[\s\S]|(?!(?P=quote))(?(long)[\s\S]|[^\\\n]))*+(?P=quote)"""
)
_STRING = re.compile(_LITERAL, re.IGNORECASE)
_SHOWN = re.compile(rf"#[^\n]*|{_LITERAL}", re.IGNORECASE)
"""A literal, or a comment, in which none goes on to the next line. An apostrophe in prose may open one on its line."""
_FIELD = re.compile(r"(\{[^{}]*\})")

NO_MORE = "<|endoftext|>"
"""The end of a text that is no turn of a chat, for many bases; a GGUF file does not count it among the end tokens."""


class Tokenizer(SpecialTokens, Protocol):
    """The part of a transformers tokenizer that dialects use."""

    chat_template: Any

    def __call__(self, text: str, *, add_special_tokens: bool) -> Any: ...

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, add_generation_prompt: bool, tokenize: bool
    ) -> Any: ...


class Dialect(Protocol):
    """One way of speaking with a base model. A dialect has one grammar, at every stage of a run.

    One that can put several inputs into a prompt (`propose.inputs`) also has a method `asking(inputs)`, which gives the
    dialect that does. One whose answers may have a thought before them has a method `thought(completion)`, see
    `thought_of`. One that brings problems to show at the start has a method `seeds(problem_type)`, see `seeds_of`. One
    whose completions end differently by what they are has a method `stops(prompt)`, see `stops_of`. One whose prompts
    are tokenized with a program's special tokens has these in `reserved`, see `reserved_by`. One whose prompts go into
    the base's chat template has `templated = True`, see `is_templated`.
    """

    @property
    def name(self) -> str:
        """The name in the configuration, and of the folder of its templates."""

    @property
    def rules(self) -> TypeRules:
        """The rules that it sets for the problem types."""

    @property
    def stop(self) -> tuple[str, ...]:
        """Texts that end a completion, besides the base's own end tokens."""

    @property
    def digest(self) -> str:
        """sha256 over everything that shapes prompts and parsing; part of the stage keys."""

    def propose_prompt(self, problem_type: str, references: Sequence[Problem]) -> str:
        """Ask a teacher for one problem, showing it the references."""

    def solve_prompt(self, problem: Problem) -> str:
        """Ask a student for an answer."""

    def parse_proposal(self, problem_type: str, completion: str) -> Draft:
        """Read a teacher's completion.

        Raises:
            FormatError: it does not follow the grammar.
            ProgramSyntaxError: its program does not parse.
        """

    def parse_answer(self, problem: Problem, completion: str) -> str:
        """Read a student's completion: an output or an argument tuple as written, or a program.

        Raises:
            FormatError: it does not follow the grammar.
            ProgramSyntaxError: its program does not parse.
        """

    def encode(self, tokenizer: Tokenizer, prompt: str) -> list[int]:
        """The token ids of a prompt."""


def unspelt(tokenizer: Tokenizer, prompt: str, own: Collection[str] = ()) -> str:
    """The prompt without any special token that a program, value or message spells (see `respelt`).

    So no teacher can end the student's turn.

    Args:
        own: tokens that stay, since the dialect's instructions spell them, and what it shows of problems does not.
    """
    return respelt(prompt, (token for token in special_tokens(tokenizer).values() if token not in own))


def respelt(text: str, tokens: Iterable[str]) -> str:
    r"""The text with none of these tokens in it.

    A string literal keeps its value, as `'<eos\x3e'` does for `'<eos>'`; elsewhere a space splits the token.
    """
    spelt = [token for token in tokens if token in text]
    if spelt:
        text = _SHOWN.sub(partial(_literal, spelt), text)
    for token in spelt:
        text = text.replace(token, f"{token[:1]} {token[1:]}")
    return text


def _literal(tokens: Sequence[str], found: re.Match[str]) -> str:
    """A string literal of the same value without the tokens: a raw one, which knows no escapes, becomes two."""
    text, prefix, quote = found[0], (found["prefix"] or "").lower(), found["quote"]
    if quote is None:  # a comment
        return _STRING.sub(partial(_literal, tokens), text)
    for token in tokens:
        if "r" in prefix:
            text = text.replace(token, f"{token[:1]}{quote} {found['prefix']}{quote}{token[1:]}")
        elif "f" in prefix:  # its fields are code, in which a space splits the token
            parts = _FIELD.split(text)
            text = "".join(part if field % 2 else _escaped(part, token) for field, part in enumerate(parts))
        else:
            text = _escaped(text, token)
    return text


def _escaped(text: str, token: str) -> str:
    last = ord(token[-1])
    return text.replace(token, token[:-1] + (rf"\x{last:02x}" if last < 256 else rf"\U{last:08x}"))


def seeds_of(spoken: Dialect, problem_type: str) -> Sequence[Problem]:
    """The problems that a dialect shows teachers before the run has its own; none where it brings none."""
    seeds: Callable[[str], Sequence[Problem]] | None = getattr(spoken, "seeds", None)
    return seeds(problem_type) if seeds else ()


def stops_of(spoken: Dialect, prompt: str) -> tuple[str, ...]:
    """Texts that end a completion of this prompt; the dialect's `stop` where they are the same for all."""
    stops: Callable[[str], tuple[str, ...]] | None = getattr(spoken, "stops", None)
    return tuple(stops(prompt) if stops else spoken.stop)


def reserved_by(spoken: Dialect) -> tuple[str, ...]:
    """Texts that no program may hold: in a prompt that shows it they would be special tokens."""
    reserved: tuple[str, ...] = getattr(spoken, "reserved", ())
    return reserved


def is_templated(spoken: Dialect) -> bool:
    """True if the base's chat template, where it has one, goes round the dialect's prompts."""
    return bool(getattr(spoken, "templated", False))


def thought_of(spoken: Dialect, completion: str) -> str:
    """The thought before the result of an answer that could be read; empty if the dialect has no such part."""
    thought: Callable[[str], str] | None = getattr(spoken, "thought", None)
    return thought(completion) if thought else ""
