"""Words that docs/style.md replaces, found in what people read: pages, messages, docstrings and comments.

    python tests/plain_words.py

Records of what was measured (lab logs, studies) stay as they were written.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
INSTEAD = {
    "mend": "fix",
    "mends": "fixes",
    "mended": "fixed",
    "anew": "again",
    "nobody": "no one",
    "likewise": "also",
}
WORD = re.compile(r"\b[A-Za-z]?[a-z]+\b")  # in capitals it is a name
COUNTED = "tokens|updates|nats|lines|statements|cells|problems|programs|proposals|seconds"
RATE = re.compile(
    rf"\b(\d\S*|{COUNTED}) (an?) ((?:member|generation|token|proposal|slot|step|worker|type)\b(?!'))"
)
"""A rate: 'per' says so."""
PAGES = ("*.md", "docs/*.md", "base_model/*.md", "configs/**/*.toml")
CODE = ("populora_core", "flows", "tasks", "base_model", "bench", "examples", "notebooks")
RECORDS = {"docs/lab-log-frontier.md", "docs/study.md", "docs/style.md"}


def found(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, words, and plainer words of each place that has such."""
    for number, line in enumerate(text.splitlines(), start=1):
        for word in WORD.findall(line):
            if word.lower() in INSTEAD:
                yield number, word, INSTEAD[word.lower()]
        for counted, article, each in RATE.findall(line):
            yield number, f"{counted} {article} {each}", f"{counted} per {each}"


def main() -> int:
    files = [path for pattern in PAGES for path in REPOSITORY.glob(pattern)]
    files += [path for folder in CODE for path in (REPOSITORY / folder).rglob("*.py")]
    count = 0
    for path in sorted(files):
        place = path.relative_to(REPOSITORY).as_posix()
        for number, word, plainer in [] if place in RECORDS else found(path.read_text()):
            print(f"{place}:{number}: write {plainer!r} instead of {word!r} (docs/style.md)")
            count += 1
    return count > 0


if __name__ == "__main__":
    sys.exit(main())
