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
    """Open a run for questions, or several as one.

    Args:
        directories: run directories, folders of them, or patterns such as `runs/seed-*`.

    Raises:
        RunDirectoryError: one of them is no run and holds none.
    """
    from populora_core.runs.run import open_runs
    from populora_core.store.catalogue import Catalogue

    return Catalogue(*(run.directory for run in open_runs(directories)))
