"""docs/data-contract.md, rendered from the declared tables and views.

`python tests/data_contract_page.py docs/data-contract.md` writes it again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from populora_core.population.member import Role
from populora_core.population.rating import Outcome
from populora_core.problems.types import PROBLEM_TYPES
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.report.text import markdown_table
from populora_core.store.columns import Column
from populora_core.store.tables import TABLES
from populora_core.store.views import VIEWS
from populora_core.support.finish import FinishReason

_INTRODUCTION = """# Data contract

Rendered from `tables.py`, `record_tables.py`, `views.py` and `figure_views.py` of `populora_core/store/` by
`python tests/data_contract_page.py docs/data-contract.md`; a test fails when this page, the declarations and
DuckDB differ. Columns may be added, never renamed.

`RUN/catalogue.duckdb` holds the rows of the committed stages and these views over them. Every DuckDB client from
1.0 on opens it read-only, from any folder and also in a run that was copied, moved or sent;
`populora query RUN "SQL"` and `populora_core.open_run(RUN).query(sql)` do so too, and bring it up to date where the
run has gone on. There a row appears as soon as its stage is committed; the file itself is replaced after every
generation. A column that a later stage gives is null until then. Views, tables and columns have these comments.

Token ids and log-probabilities (`tables.proposals`, `tables.attempts`) stay in the stages' files. So do the rows of
`proposals`, `problems`, `attempts` and `evaluation_items` of a run that has more than 256 MiB of them. A client that
asks for these in a run that lies elsewhere gets an error, never another run's rows; `populora query` makes the
catalogue again for the place where it is.

`figures_generation`, `figures_type` and `figures_member` say once what valid, solved and rewarded mean; console,
report, trackers and study all show these columns. A row with the verdict `infrastructure` says nothing about anyone:
no mean and no share counts it, `..._judged` says over how many rows they are; counts and tokens hold what it cost.
The figures of a generation count each proposal, problem or attempt alike, those of a member belong to one role.

Every view ends with the column `run`, the run's name, so that several runs can be asked as one
(`populora query RUN RUN "SQL"`, `open_run(RUN, RUN)`). A catalogue that is made from nothing, and the views of a run
with more than it holds, read old generations from `RUN/blocks/`, larger files with the same rows; the stages' own
files stay as they are, and blocks may be deleted at any time.

`populora prune` removes weights and optimiser states of old generations, never a row. The folders that
`adapters.path` names for them then hold no weights, but an empty `adapter_model.safetensors.pruned`;
`members.adapter_path`, each member's newest, is always kept. The manifests still record what was there.

Where `store.url` names a shared store, every committed stage also lies there: its files and PEFT folders as
`objects/<sha256>`, and one document, `stages/<generation>/<stage>/<key>`, with the manifest and the hashes. The
first commit of a key stands; other machines take its files in place of their own, manifest included. The run
directory stays what is read: the catalogue never reads the store.

Ids derive from position and are zero-padded, so that text order is numeric order. Content hashes cover the
rows of the tables below; times, hosts and paths are in the manifests.
"""

_TABLES = """## Stage tables

`RUN/generations/0003/STAGE/TABLE.parquet`, as the stages write them. The catalogue has each as
`tables.NAME`, all generations together: there are the token ids and log-probabilities that the views leave
out.
"""

_VOCABULARIES = """## Closed vocabularies

`infrastructure` says that the verifier itself failed: never a wrong answer, never part of a reward or a
rating.
"""


def render() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, "## Views\n"]
    for view in VIEWS.values():
        parts.append(_section(view.name, view.meaning, view))
    parts.append(_TABLES)
    for table in TABLES.values():
        meaning = f"{table.meaning} Written by {', '.join(table.stages)}."
        parts.append(_section(table.name, meaning, table))
    parts.append(_VOCABULARIES)
    vocabularies = ((name, ", ".join(values)) for name, values in _vocabularies())
    parts.append(markdown_table(("column", "values"), vocabularies) + "\n")
    return "\n".join(parts)


def _section(name: str, meaning: str, columns: Iterable[Column]) -> str:
    rows = [(f"`{c.name}`", f"`{c.sql_type}`", "yes" if c.nullable else "", c.meaning) for c in columns]
    return f"### {name}\n\n{meaning}\n\n{markdown_table(('column', 'type', 'null', 'meaning'), rows)}\n"


def _vocabularies() -> list[tuple[str, Iterable[str]]]:
    enums: list[tuple[str, type[StrEnum]]] = [
        ("`role`", Role),
        ("`outcome`", Outcome),
        ("`finish_reason`", FinishReason),
        ("`verdict` of a proposal", ProposalVerdict),
        ("`verdict` of an attempt", AttemptVerdict),
    ]
    return [("`problem_type`", sorted(PROBLEM_TYPES)), *((name, list(enum)) for name, enum in enums)]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
