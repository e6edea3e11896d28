"""Stop texts against tokenizers that join what they like: byte-level pairs, and pieces with bytes to fall back on."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from populora_core.sampler.stops import first_stop, stop_texts

TEXT = """<think>
so f(1) is [1, 2]\n\n</think>
<answer>
```output
[1, 2]
```
</answer>\n\n<answer>[7]</answer>\nänd 'ö' é → 🙂🙂 </answer> for x in y:\n\n    return [x]\n\n
"""
STOPS = (
    "</answer>",
    "\n\n",
    "]",
    "]\n",
    "answer>\n",
    "1, 2]\n```",
    "🙂",
    "→ 🙂",
    "ö'",
    " ",
    "    return [x]",
)


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [TEXT] * 3, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    )
    return tokenizer


def with_fallback() -> Tokenizer:
    """As Llama 2's: blanks are marks in front of words, the first of which is dropped; unknown signs are bytes."""
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces += sorted({*"▁<>/abcdefghijklmnopqrstuvwxyz[]1234567890,:'`"})
    merges = [("<", "/"), ("▁", "<"), ("▁<", "/"), ("a", "n"), ("▁", "1"), ("1", ","), ("]", "▁")]
    pieces += ["".join(pair) for pair in merges]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<0x00>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


@pytest.mark.parametrize("make", [byte_level, with_fallback])
def test_a_completion_ends_with_the_token_after_which_its_text_has_a_stop_text(make: object) -> None:
    """Held against the whole text, decoded after every token, for the tokenizer's own tokens and for others."""
    tokenizer = make()  # type: ignore[operator]

    def decode(ids: Sequence[int]) -> str:
        return tokenizer.decode(list(ids), skip_special_tokens=False)

    made, rng, ended, went_on = stop_texts(decode), random.Random(5), 0, 0
    for trial in range(400):
        begin = rng.randrange(len(TEXT) - 20)
        ids = tokenizer.encode(TEXT[begin : begin + rng.randrange(20, 90)]).ids
        if trial % 4 == 0:  # as a model may write it: sign by sign
            ids = [token for sign in decode(ids) for token in tokenizer.encode(sign).ids]
        stops = tuple(rng.sample(STOPS, rng.randrange(1, 4)))
        seeker = made(stops)
        assert seeker is not None
        texts = [decode(ids[: count + 1]) for count in range(len(ids))]
        expected = next((i for i, text in enumerate(texts) if any(stop in text for stop in stops)), None)
        found = next((i for i in range(len(ids)) if seeker.ended(ids[: i + 1])), None)
        assert found == expected, (stops, texts[-1])
        ended, went_on = ended + (expected is not None), went_on + (expected is None)
    assert ended > 100 and went_on > 20


def test_few_tokens_may_end_a_stop_text() -> None:
    tokenizer = byte_level()
    size = tokenizer.get_vocab_size()
    seeker = stop_texts(lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False))(("</answer>",))
    assert seeker is not None
    may = [tokenizer.decode([token]) for token in range(size) if seeker.may_end(token)]
    assert ">" in may
    assert len(may) < size / 20


@pytest.mark.parametrize(
    ("text", "stops", "found"),
    [
        ("ab</a>cd", ("</a>",), (2, 6)),
        ("abcd", ("bcd", "c"), (2, 3)),
        ("abcd", ("c", "bc"), (1, 3)),
        ("abab", ("b",), (1, 2)),
        ("abcd", ("x",), None),
        ("abcd", (), None),
    ],
)
def test_the_stop_text_that_is_complete_first_counts(
    text: str, stops: tuple[str, ...], found: tuple[int, int] | None
) -> None:
    """Which one that is must not depend on how the text was cut into tokens."""
    assert first_stop(text, stops) == found
