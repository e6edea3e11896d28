"""Overlap of a run's problems with a suite's, in n-grams: how much of the suite the run has seen.

Exact copies cannot occur for the bundled suite, since the verify stage refuses them; what is reported is how alike
the rest is. A small language repeats itself, so the overlap is to be read against that of fresh problems.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from populora_core.benchmarks.benchmark import Item
from populora_core.problems.normal import Ngram

NGRAM = 13  # words, as in the GPT-3 paper (Brown et al. 2020, appendix C)
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Contamination:
    """Overlap of documents with the problems of a suite.

    Attributes:
        n: words of an n-gram.
        overlapping: problems that share at least one n-gram with a document.
        mean_share: over the problems, of the share of their n-grams that some document has.
    """

    n: int
    items: int
    documents: int
    overlapping: int
    mean_share: float
    highest: float


def contamination(items: Sequence[Item], documents: Iterable[str], n: int = NGRAM) -> Contamination:
    """The overlap of a suite's problems with the documents that a run trained on.

    Args:
        items: at least one.
        documents: text of the run's problems.
    """
    seen: set[Ngram] = set()
    count = 0
    for document in documents:
        seen |= ngrams(document, n)
        count += 1
    shares = {}  # by text: a benchmark that is asked at two temperatures counts once
    for text in map(item_text, items):
        own = ngrams(text, n)
        shares[text] = len(own & seen) / len(own) if own else 0.0
    return Contamination(
        n=n,
        items=len(shares),
        documents=count,
        overlapping=sum(share > 0 for share in shares.values()),
        mean_share=sum(shares.values()) / len(shares),
        highest=max(shares.values()),
    )


def item_text(item: Item) -> str:
    """All text of a problem: question, tests and solution alike, since any of them may have leaked."""
    return "\n".join(value for value in item.fields.values() if isinstance(value, str))


def ngrams(text: str, n: int) -> frozenset[Ngram]:
    """The distinct runs of n words or signs, in lower case; a shorter text is one run."""
    words = tuple(_WORD.findall(text.lower()))
    if not words:
        return frozenset()
    return frozenset(words[start : start + n] for start in range(max(1, len(words) - n + 1)))
