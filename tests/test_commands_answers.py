"""How rows are shown on a terminal: text, never markup."""

from __future__ import annotations

import io

from populora_core.commands.answers import print_rows
from populora_core.terminal.screen import Screen


def test_a_column_that_is_named_by_its_expression_is_shown_as_it_is() -> None:
    said = io.StringIO()
    name = "regexp_matches(program, '[/]')"
    wide = {name: "x", "second": "y" * 60, "third": "z" * 60}
    for terminal in (True, False):
        print_rows([wide], Screen(file=said, width=80, force_terminal=terminal, color_system=None))
    assert said.getvalue().count(name) == 2
