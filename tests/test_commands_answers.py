"""How rows are shown on a terminal: text, never markup."""

from __future__ import annotations

import io
from pathlib import Path

from store_run import write_run

from populora_core.commands.answers import print_rows, save_answer
from populora_core.store.catalogue import Catalogue
from populora_core.terminal.screen import Screen


def test_a_column_that_is_named_by_its_expression_is_shown_as_it_is() -> None:
    said = io.StringIO()
    name = "regexp_matches(program, '[/]')"
    wide = {name: "x", "second": "y" * 60, "third": "z" * 60}
    for terminal in (True, False):
        print_rows([wide], Screen(file=said, width=80, force_terminal=terminal, color_system=None))
    assert said.getvalue().count(name) == 2


def test_one_query_gives_one_table_however_its_rows_come(tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    with Catalogue(write_run(tmp_path / "run", generations=1)) as catalogue:
        answer = catalogue.query("SELECT 11 AS who UNION ALL SELECT 22")
        save_answer(answer, "table", file)
    told = file.read_text()
    assert told.count("who") == 1 and told.endswith("2 rows\n")
