"""Texts that members keep learning to write beside what they are paid for: prompts with the completions wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from populora_core.benchmarks.files import OwnFile, read_rows
from populora_core.learner.rows import CorpusText
from populora_core.support.digest import file_sha256
from populora_core.support.errors import ProblemError

CORPUS_FILE = OwnFile(Path("supervised", "train.parquet"), "corpus", "update.corpus")


def read_corpus(path: str) -> Sequence[CorpusText]:
    """The texts of a corpus, in order.

    Args:
        path: a folder that `populora problems` wrote, or a .parquet, .jsonl or .json file whose rows have prompt and
            completion.

    Raises:
        ProblemError: there is no such file, no row, or a row without both.
        BenchmarkError: the file cannot be read.
    """
    file = CORPUS_FILE.at(path)
    return _read(file, file_sha256(file))


@lru_cache(maxsize=1)
def _read(file: Path, sha256: str) -> Sequence[CorpusText]:
    texts = [_text(row, f"{file}, row {number}") for number, row in enumerate(read_rows(file, sha256), 1)]
    if not texts:
        raise ProblemError(f"{file} holds no text", expected="rows with prompt and completion", got="no row")
    return texts


def _text(row: Mapping[str, object], where: str) -> CorpusText:
    prompt, completion = row.get("prompt"), row.get("completion")
    if not (isinstance(prompt, str) and prompt and isinstance(completion, str) and completion):
        raise ProblemError(
            f"{where} is no text to learn",
            expected="prompt and completion, both text that is not empty",
            got=repr(row)[:200],
            fix="correct the row or take it out",
        )
    return CorpusText(prompt, completion)
