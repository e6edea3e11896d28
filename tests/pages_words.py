"""Words of the pages that people write by hand, and the longest sentences of docs/decisions.md.

    python tests/pages_words.py

Left out are lab logs, which are records, and the pages that are rendered from code.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
PLUGINS = DOCS.with_name("populora_plugins")
RENDERED = {"commands.md", "configuration.md", "data-contract.md"}
WORD = re.compile(r"\S*\w\S*")
CODE = re.compile(r"`[^`]*`")
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
END = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][*)\"])\s+|(?<=[.!?]\*\*)\s+")


def by_hand() -> list[Path]:
    """Pages of docs/ and beside plug-ins that are neither lab log nor rendered."""
    return sorted(
        page
        for page in (*DOCS.glob("*.md"), *PLUGINS.glob("*/*.md"))
        if page.name not in RENDERED and not page.name.startswith("lab-log")
    )


def words(text: str) -> int:
    """Count words: a run of signs without a letter or digit, such as a table's rule, is none."""
    return len(WORD.findall(text))


def sentences(text: str) -> list[str]:
    """The sentences of a page, but its headings; a span of code counts as one word, a link's target as none."""
    plain = LINK.sub(r"\1", CODE.sub("code", text))
    parts = (
        END.split(" ".join(part.split())) for part in re.split(r"\n\s*\n|^#+ .*$", plain, flags=re.MULTILINE)
    )
    return [sentence for part in parts for sentence in part if words(sentence)]


def main() -> None:
    counted = {
        f"{page.parent.name}/{page.name}": words(page.read_text(encoding="utf-8")) for page in by_hand()
    }
    for name, count in sorted(counted.items(), key=lambda each: each[1]):
        print(f"{count:6} {name}")
    print(f"{sum(counted.values()):6} in all")
    for sentence in sorted(sentences((DOCS / "decisions.md").read_text(encoding="utf-8")), key=words)[-10:]:
        print(f"{words(sentence):6} {sentence}")


if __name__ == "__main__":
    main()
