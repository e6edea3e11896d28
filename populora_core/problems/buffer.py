"""The buffer of reference problems, and the memory of all that was ever proposed in the run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from populora_core.problems.model import Problem
from populora_core.problems.normal import Ngram, ngrams, novelty, program_key


class Buffer:
    """Valid problems by type, to show teachers as references and to tell what is new.

    The oldest references make room for new ones, but nothing is forgotten for duplicates: a problem that left
    the buffer is still known. A known program with other inputs is a duplicate too: otherwise a teacher could live
    on one program. The state depends on the order of `add` alone.

    Args:
        capacity: the most references kept of each problem type.
        past: knows n-grams of programs from an earlier generation's buffer, so that only later ones are parsed.
    """

    def __init__(self, capacity: int, past: PastNgrams | None = None) -> None:
        self._capacity = capacity
        self._past = past or PastNgrams()
        self._references: dict[str, list[Problem]] = {}
        self._known: set[tuple[str, str]] = set()
        self._before: frozenset[Ngram] | None = None
        self._since: set[Ngram] = set()
        # Programs whose n-grams are in neither yet: sampling references alone costs none of it.
        self._unseen: list[str] = []

    def add(self, problem: Problem, key: str = "") -> bool:
        """Take a problem in; False, and nothing changes, where it is a duplicate of one of its type.

        Args:
            key: of the program (`program_key`), where that is known; to find it, the program is parsed.
        """
        known = problem.problem_type, key or program_key(problem.program)
        if known in self._known:
            return False
        self._known.add(known)
        self._unseen.append(problem.program)
        references = self._references.setdefault(problem.problem_type, [])
        references.append(problem)
        if len(references) > self._capacity:
            del references[0]
        return True

    def knows(self, problem_type: str, key: str) -> bool:
        """True if a problem of this type and program (`program_key`) was added before."""
        return (problem_type, key) in self._known

    def sample(self, problem_type: str, k: int, rng: np.random.Generator) -> list[Problem]:
        """`k` different references of the type, uniformly, in random order; fewer where there are fewer."""
        references = self._references.get(problem_type, [])
        chosen = rng.choice(len(references), size=min(k, len(references)), replace=False)
        return [references[index] for index in chosen]

    def novelty(self, program: str) -> float:
        """The share of the program's token n-grams that no problem added so far has, of whatever type."""
        if self._before is None:
            self._before = self._past.of(self._unseen)
        else:
            self._since.update(_ngrams_of(self._unseen))
        self._unseen.clear()
        return novelty(program, self._before, self._since)


class PastNgrams:
    """The n-grams of a list of programs to which more are appended, such as a run's past: each is parsed once.

    A list with another beginning is parsed whole. No program is kept, only the distinct n-grams: programs of one
    language have most of them in common.
    """

    def __init__(self) -> None:
        self._known: tuple[int, bytes, frozenset[Ngram]] = 0, _digest(()), frozenset()

    def of(self, programs: Sequence[str]) -> frozenset[Ngram]:
        """The n-grams of all these programs."""
        count, digest, found = self._known
        if _digest(programs[:count]) != digest:
            count, found = 0, frozenset()
        if count < len(programs):
            found = found.union(_ngrams_of(programs[count:]))
            self._known = len(programs), _digest(programs), found
        return found


def _ngrams_of(programs: Iterable[str]) -> Iterator[Ngram]:
    """The n-grams of one program after another: those of all at once would fill the memory."""
    return chain.from_iterable(map(ngrams, programs))


def _digest(programs: Iterable[str]) -> bytes:
    found = hashlib.sha256()
    for program in programs:
        found.update(f"{len(program)}:{program}".encode(errors="surrogatepass"))
    return found.digest()
