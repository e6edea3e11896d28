"""Worker processes that end when their parent is gone, however it went."""

from __future__ import annotations

import os
import threading
import time

POLL_SECONDS = 0.5


def end_with_parent(parent: int) -> None:
    """From now on, end this process once `parent` is no longer its parent.

    A parent that was killed cannot end its children, so they look for it themselves.
    """
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)
