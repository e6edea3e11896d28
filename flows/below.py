"""Flow runs below `populora ui`: their processes end once it is gone, also where it was killed."""

from __future__ import annotations

import os

from populora_core.support.children import end_with
from populora_core.support.processes import Owner

RUN_STOP_SECONDS = 45.0
"""A run that is being ended gives up its stage and stops its sandboxes."""
_PROCESS = "POPULORA_UI_PROCESS"


def below(ui: Owner) -> dict[str, str]:
    """The environment of what runs below a `populora ui`."""
    return {_PROCESS: str(ui)}


def end_with_ui() -> None:
    """Have this process end once the `populora ui` that it runs below is gone; elsewhere do nothing."""
    if ui := Owner.parse(os.environ.get(_PROCESS, "")):
        end_with(ui, RUN_STOP_SECONDS)
