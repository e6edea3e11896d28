"""A cache of a pure function that is bounded by what it holds, where single results may be large."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from typing import TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


def cached_within(
    most_bytes: int, size: Callable[[_Value], int]
) -> Callable[[Callable[[_Key], _Value]], Callable[[_Key], _Value]]:
    """Keep the results that were asked for last, as long as they and their arguments take so many bytes together.

    Args:
        size: bytes that one result takes.
    """

    def decorate(function: Callable[[_Key], _Value]) -> Callable[[_Key], _Value]:
        known: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()
        lock, held = threading.Lock(), 0

        @wraps(function)
        def cached(key: _Key) -> _Value:
            nonlocal held
            with lock:
                if key in known:
                    known.move_to_end(key)
                    return known[key][0]
            value = function(key)
            taken = sys.getsizeof(key) + size(value)
            with lock:
                if key not in known and taken <= most_bytes:
                    known[key], held = (value, taken), held + taken
                while held > most_bytes:
                    held -= known.popitem(last=False)[1][1]
            return value

        return cached

    return decorate


def texts_size(texts: tuple[str, ...]) -> int:
    """Bytes of a tuple of texts."""
    return sys.getsizeof(texts) + sum(map(sys.getsizeof, texts))
