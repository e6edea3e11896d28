"""Overlap of a run's problems with a suite's, in n-grams: how much of the suite the run has seen.

Exact copies cannot occur for the bundled suite, since the verify stage refuses them; what is reported is how alike
the rest is. A small language repeats itself, so the overlap is to be read against that of fresh problems.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import chain

from populora_core.benchmarks.benchmark import Item
from populora_core.problems.normal import Ngram

NGRAM = 13  # words, as in the GPT-3 paper (Brown et al. 2020, appendix C)
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Contamination:
    """Overlap of documents with the problems of a suite.

    Attributes:
        overlapping: problems that share at least one n-gram with a document.
        mean_share: over the problems, of the share of their n-grams that some document has.
    """

    items: int
    documents: int
    overlapping: int
    mean_share: float
    highest: float


def contamination(problems: Iterable[str], documents: Iterable[str]) -> Contamination:
    """The overlap of a suite's problems with the documents that a run trained on.

    Args:
        problems: text of at least one; the n-grams of all are held at once.
        documents: text of the run's problems, one after another: a long run has too many to hold.
    """
    asked: dict[bytes, frozenset[Ngram]] = {}  # by text: one that is asked at two temperatures counts once
    for text in problems:
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        if digest not in asked:
            asked[digest] = ngrams(text)
    wanted = frozenset(chain.from_iterable(asked.values()))
    seen: set[Ngram] = set()
    count = 0
    for document in documents:
        seen |= wanted & ngrams(document)
        count += 1
    shares = [len(own & seen) / len(own) if own else 0.0 for own in asked.values()]
    return Contamination(
        items=len(shares),
        documents=count,
        overlapping=sum(share > 0 for share in shares),
        mean_share=sum(shares) / len(shares),
        highest=max(shares),
    )


def item_text(item: Item, columns: Collection[str] | None = None) -> str:
    """All text of a problem: question, tests and solution alike, since any of them may have leaked.

    Args:
        columns: that hold text which people can read; None for all.
    """
    told = [value for name, value in item.fields.items() if columns is None or name in columns]
    return "\n".join(value for value in told if isinstance(value, str))


def ngrams(text: str) -> frozenset[Ngram]:
    """The distinct runs of `NGRAM` words or signs, in lower case; a shorter text is one run."""
    words = tuple(_WORD.findall(text.lower()))
    if not words:
        return frozenset()
    return frozenset(words[start : start + NGRAM] for start in range(max(1, len(words) - NGRAM + 1)))
