"""Words that docs/style.md replaces, found in what people read: pages, messages, docstrings and comments.

    python tests/plain_words.py

A docstring opens with an imperative or a noun phrase, so not with a word of `NO_OPENER`.

Records of what was measured (lab logs, studies) stay as they were written.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from house import BESIDE, CORE, PLUGINS

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
PAGES = ("*.md", "docs/*.md", "populora_plugins/*/*.md", "base_model/*.md", "configs/**/*.toml")
CODE = {CORE, PLUGINS, *BESIDE, "examples", "notebooks"} - {"verifier_image"}
NO_OPENER = re.compile(
    r"[`*]*(what|whatever|whether|how|of|who|whom|whose|which|why|where|wherever|when|whenever|those|that|so|as|at|in|on|"
    r"into|for|from|to|until|after|over|below|between|within|with|without|among|beside|than|otherwise|still|not|must|"
    r"can|is|are|has|if|while)(?![\w-])",
    re.IGNORECASE,
)
RECORDS = {"docs/lab-log-frontier.md", "docs/study.md", "docs/style.md"}


def found(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, words, and plainer words of each place that has such."""
    for number, line in enumerate(text.splitlines(), start=1):
        for word in WORD.findall(line):
            if word.lower() in INSTEAD:
                yield number, word, INSTEAD[word.lower()]
        for counted, article, each in RATE.findall(line):
            yield number, f"{counted} {article} {each}", f"{counted} per {each}"


def openers(source: str) -> Iterator[tuple[int, str]]:
    """Line and first word of each docstring, also below a constant, that opens with one of `NO_OPENER`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                if opener := NO_OPENER.match(text.strip()):
                    yield node.lineno, opener[1]


def main() -> int:
    files = [path for pattern in PAGES for path in REPOSITORY.glob(pattern)]
    code = [path for folder in CODE for path in (REPOSITORY / folder).rglob("*.py")]
    files += [path for path in code if "tests" not in path.parts]
    count = 0
    for path in sorted(files):
        place, text = path.relative_to(REPOSITORY).as_posix(), path.read_text()
        advice = (
            [] if place in RECORDS else [(n, f"write {plainer!r}", word) for n, word, plainer in found(text)]
        )
        if path.suffix == ".py":
            advice += [(n, "open with an imperative or a noun phrase", word) for n, word in openers(text)]
        for number, better, word in advice:
            print(f"{place}:{number}: {better} instead of {word!r} (docs/style.md)")
        count += len(advice)
    return count > 0


if __name__ == "__main__":
    sys.exit(main())
