"""A cache that is bounded by bytes."""

from __future__ import annotations

import sys

from populora_core.problems import normal
from populora_core.support.caching import cached_within, texts_size

ONE = sys.getsizeof("a") + 100


def test_what_was_asked_for_last_is_kept_within_the_bytes() -> None:
    made: list[str] = []

    @cached_within(2 * ONE, lambda value: 100)
    def double(text: str) -> str:
        made.append(text)
        return 2 * text

    assert [double(text) for text in "abacab"] == ["aa", "bb", "aa", "cc", "aa", "bb"]
    assert made == ["a", "b", "c", "b"]


def test_a_result_larger_than_the_cache_is_given_and_not_kept() -> None:
    made: list[str] = []

    @cached_within(ONE, lambda value: 100 * len(value))
    def same(text: str) -> str:
        made.append(text)
        return text

    assert [same(text) for text in ("a", "long", "long", "a")] == ["a", "long", "long", "a"]
    assert made == ["a", "long", "long"]


def test_normal_forms_are_counted_with_all_that_they_hold() -> None:
    tokens = normal.normal_tokens("def f(x):\n return [" + ",".join(f"x{i}" for i in range(1000)) + "]")
    assert texts_size(tokens) > 50 * len(tokens)
    assert texts_size(tokens) * 100 < normal.CACHE_BYTES
