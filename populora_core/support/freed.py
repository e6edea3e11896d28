"""Memory that was freed, given back to the machine: C's allocator keeps what lies between blocks still in use."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Give back the pages of this process that nothing uses; without effect where C's library is not glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
