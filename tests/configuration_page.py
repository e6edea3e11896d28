"""docs/configuration.md, rendered from the sections of the configuration.

`python tests/configuration_page.py docs/configuration.md` writes it again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from populora_core.report.text import markdown_table
from populora_plugins.machine.settings_reference import DescribedSection, groups

_INTRODUCTION = """# Configuration

Rendered from the sections in `populora_core/config/` by `make docs`; a test fails when they differ.
`populora config KEY` shows the same in a terminal.

A configuration is a TOML file with a section per stage or service. `extends = "demo.toml"` takes over
another file; `--set solve.attempts=4` replaces one key. Unknown keys and values out of range are refused
before anything starts. The stages that read a section are named in brackets.
"""


def render() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *map(_section, groups())])


def _section(group: DescribedSection) -> str:
    rows = [
        (f"`{item.key.partition('.')[2]}`", f"`{item.default}`", item.kind, item.meaning)
        for item in group.settings
    ]
    table = markdown_table(("key", "default", "value", "meaning"), rows)
    return f"## {group.name}\n\n{group.meaning}\n\n{table}\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
