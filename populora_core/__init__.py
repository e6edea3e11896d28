"""PopuLoRA: co-evolving LoRA teachers and students on one frozen base model.

`open_run(DIR).query(sql)` answers questions about a run: `.df()` gives a pandas frame, `.arrow()` an Arrow table.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from populora_core.store.catalogue import Catalogue

__version__ = "0.1.0"
__all__ = ["open_run"]


def open_run(*directories: str | Path) -> Catalogue:
    """Open a run directory for questions, or several as one.

    Raises:
        RunDirectoryError: one of them is not a run directory.
    """
    from populora_core.runs.run import Run
    from populora_core.store.catalogue import Catalogue

    return Catalogue(*(Run.open(directory).directory for directory in directories))
