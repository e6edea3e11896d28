"""A corpus in the loss: texts are read from a file of the user's, count by content, and are drawn by a seed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ask, small_config, start, write_lines

from base_model.documents import write_document
from base_model.steps.documents import Corpus
from populora_core.benchmarks.corpus import read_corpus
from populora_core.config.load import Config
from populora_core.learner.rows import CorpusText
from populora_core.lifecycle.loop import fork, rerun
from populora_core.model.base import load_vocabulary
from populora_core.problems.dialects import dialect
from populora_core.runs.preflight import check_changed, preflight
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.stages.decisive import decisive
from populora_core.stages.engine import run_generation
from populora_core.store.manifest import read_manifest, stage_dir
from populora_core.support.errors import ConfigError, ProblemError

TEXTS = [{"prompt": f"<so>def f(a):\n return a+{n}\n#1\n:", "completion": f"\n={1 + n}"} for n in range(3)]


def using(corpus: Path | str, share: float = 0.25) -> Config:
    return small_config(update={"corpus_share": share, "corpus": str(corpus)})


@pytest.mark.parametrize("place", ["own.jsonl", "own.json", "own.parquet", "set/supervised/train.parquet"])
def test_a_corpus_is_a_file_or_what_problems_wrote(place: str, tmp_path: Path) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    match file.suffix:
        case ".parquet":
            pq.write_table(pa.Table.from_pylist([row | {"student_id": "s"} for row in TEXTS]), file)
        case ".json":
            file.write_text(json.dumps(TEXTS))
        case _:
            write_lines(file, TEXTS)
    given = tmp_path / "set" if place.startswith("set") else file
    assert list(read_corpus(str(given))) == [CorpusText(row["prompt"], row["completion"]) for row in TEXTS]


BROKEN = {
    "no file": (None, "there is no corpus"),
    "no row": ([], "holds no text"),
    "no completion": ([{"prompt": "<so>"}], "row 1 is no text to learn"),
    "an empty one": ([TEXTS[0], {"prompt": "<so>", "completion": ""}], "row 2 is no text to learn"),
}


@pytest.mark.parametrize(("rows", "told"), BROKEN.values(), ids=BROKEN)
def test_one_that_cannot_be_used_is_refused_before_any_work(
    rows: list[dict] | None, told: str, tmp_path: Path
) -> None:
    file = tmp_path / "own.jsonl"
    if rows is not None:
        write_lines(file, rows)
    with pytest.raises(ConfigError, match=told) as raised:
        preflight(using(file), "the test's configuration")
    assert raised.value.expected or raised.value.got


def test_a_fork_with_a_corpus_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"update\.corpus cannot be used"):
        check_changed(using(tmp_path / "nowhere.jsonl"), small_config(), "the settings")


def test_it_decides_by_its_content_and_only_where_it_is_used(tmp_path: Path) -> None:
    first, moved, other = (tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.jsonl"))
    write_lines(first, TEXTS), write_lines(moved, TEXTS), write_lines(other, TEXTS[:1])
    assert decisive(using(first), ["update"]) == decisive(using(moved), ["update"])
    assert decisive(using(first), ["update"]) != decisive(using(other), ["update"])
    assert decisive(using("nowhere", share=0.0), ["update"])


@pytest.mark.parametrize("base", ["tiny", "frontier"])
def test_a_bundled_bases_documents_make_a_corpus(base: str, tmp_path: Path) -> None:
    """As docs/how-to.md has it; what is asked for there can be read, and by the dialect's own rules."""
    rng, spoken = np.random.default_rng(0), dialect("compact")
    tokenizer = load_vocabulary(small_config(base={"path": f"bundled:{base}"}).base.folder()).tokenizer
    write = Corpus().write if base == "frontier" else write_document
    documents = [write(rng, tokenizer) for _ in range(40)]
    rows = [{"prompt": each.prompt, "completion": each.completion} for each in documents]
    texts = read_corpus(str(write_lines(tmp_path / "own.jsonl", rows)))
    assert len(texts) == 40
    for document, text in zip(documents, texts, strict=True):
        assert document.text.startswith(f"{text.prompt}{text.completion}<eos>")
        assert spoken.encode(tokenizer, text.prompt)
        if document.role in ("po", "pi"):
            spoken.parse_proposal(f"code_{document.role[1]}", text.completion)


@pytest.mark.loop
@pytest.mark.sandbox
def test_every_member_that_learns_has_texts_as_the_share_is_to_its_completions(tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "own.jsonl", [TEXTS[0]] * 100)
    config = small_config(
        population={"teachers": 1, "students": 1},
        propose={"per_type": 4, "types": ("code_o", "code_i")},
        update={"corpus_share": 0.25, "corpus": str(corpus), "minibatches": 2},
    )
    run = tmp_path / "run"
    with Session(start(run, config)) as session:
        run_generation(session, 0)
        run_generation(session, 1)
    updates = ask(run, "SELECT role, n_rows, tokens, steps FROM updates")
    sampled = ask(
        run,
        """SELECT 'student' AS role, count(*) AS n, sum(completion_tokens) AS tokens FROM attempts
           UNION ALL SELECT 'teacher', count(*), sum(completion_tokens) FROM proposals""",
    )
    told = {row["role"]: (row["n_rows"], row["tokens"]) for row in updates}
    assert told == {row["role"]: (row["n"], row["tokens"]) for row in sampled}, "of what was sampled alone"
    tokenizer = load_vocabulary(small_config().base.folder()).tokenizer
    length = len(tokenizer(TEXTS[0]["completion"])["input_ids"]) + 1
    texts = sum(round(row["n_rows"] / 3) for row in updates if row["steps"])
    manifest = read_manifest(stage_dir(run, 1, "update"))
    assert manifest is not None
    assert manifest.extra["corpus_tokens"] == texts * length

    write_lines(corpus, TEXTS)
    with (
        Session(Run.open(run)) as session,
        pytest.raises(ProblemError, match="has changed since generation 1"),
    ):
        run_generation(session, 1)
    with Session(fork(Run.open(run), 1, tmp_path / "fork", config)) as session:
        again = rerun(session, 1, "update")
    assert again[0].manifest.config["update"]["corpus"] != manifest.config["update"]["corpus"]
