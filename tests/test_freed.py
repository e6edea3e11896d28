"""Memory that a process has freed goes back to the machine."""

from __future__ import annotations

import platform

import pytest

from bench.harness import status_kib
from populora_core.support.devices import give_back

BLOCK, COUNT = 64 * 1024, 2_000  # small enough to come from the heap: 128 MB in all


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library frees by its own rules")
def test_pages_between_what_is_still_held_are_given_back() -> None:
    held = [bytearray(BLOCK) for _ in range(COUNT)]
    before = status_kib("VmRSS")
    held = held[::8]  # what stays keeps the heap from shrinking by itself
    give_back()
    assert (before - status_kib("VmRSS")) * 1024 > 0.5 * BLOCK * COUNT
    assert len(held) == COUNT // 8
