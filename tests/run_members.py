"""Members of a run, chosen by what became of them."""

from __future__ import annotations

from populora_core.runs.run import Run
from populora_core.store.catalogue import Catalogue


def members_of(run: Run, condition: str) -> list[str]:
    with Catalogue(run.directory) as catalogue:
        return [
            row["member_id"] for row in catalogue.rows(f"SELECT * FROM members WHERE {condition} ORDER BY 1")
        ]


def oldest(run: Run) -> str:
    """A member that lived through the whole run."""
    return members_of(run, "died_generation IS NULL AND born_generation = 0")[0]
