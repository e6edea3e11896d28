"""Makes the held-out suite of the tiny base: `python -m base_model.suite`.

Draws problems of every type and level from the grammar, and keeps those that the base was not trained on. To
know, the training corpus is generated again from the seeds in tiny/training.json. A program counts as known if its
normal form is anywhere in the corpus: written, shown, or as a reference. The corpus holds all of the about a
thousand programs of level 1, so of `code_f` problems of that level it is asked that no input of theirs was ever
shown with their program. All programs of the suite differ.

Writes populora_core/benchmarks/data/tiny.parquet, and tiny.json beside it.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from base_model.corpus import generate_shard
from base_model.documents import Document
from base_model.execution import arguments_text
from base_model.grammar import sample_problem
from base_model.tokenizer import build_tokenizer
from populora_core.benchmarks.suite import DATA
from populora_core.problems.normal import program_key
from populora_core.sandbox.literals import literal
from populora_core.support import ids
from populora_core.support.shipped import REPOSITORY

SEED = 20_260
TRAINING = REPOSITORY / "base_model" / "tiny" / "training.json"
STRATA: dict[str, dict[int, int]] = {
    "code_o": {2: 48, 3: 48, 4: 48, 5: 48, 6: 48},
    "code_i": {2: 48, 3: 48, 4: 48, 5: 48, 6: 48},
    "code_f": {1: 80, 2: 120, 3: 40},
}
"""Problem type -> level -> problems. Deeper `code_f` is beyond the base: it would measure nothing."""
KNOWN_PROGRAMS = ("code_f", 1)
"""The stratum whose programs the base knows, with other inputs."""

_Shown = dict[
    str, set[str]
]  # program -> the inputs that were shown with it, as the compact dialect writes them
_INPUT = re.compile(r"(?:\n|>)#(.*?)(?=\n|<|$)")


def shown_in(document: Document) -> _Shown:
    """The programs of a training document, each with the inputs that stand beside it."""
    text = document.text.removesuffix("<eos>")
    if document.role[0] == "p":
        parts = re.split("<ref>|<new>", text)[1:]
        return {part.split("\n#")[0]: set(_INPUT.findall(part)) for part in parts}
    opening = document.pieces[-1 if document.role == "sf" else 0].text
    program = opening.removesuffix("<eos>").removeprefix(f"<{document.role}>")
    return {program: set(_INPUT.findall(text))}


def corpus_shard(seed: int, rank: int, tokens: int) -> _Shown:
    """Programs and inputs that one process of the training saw (see `base_model.train`)."""
    shown: _Shown = defaultdict(set)

    def watch(document: Document) -> None:
        for program, inputs in shown_in(document).items():
            shown[program] |= inputs

    generate_shard(np.random.default_rng([seed, rank]), build_tokenizer(), tokens, watch=watch)
    return dict(shown)


def corpus(training: dict[str, Any]) -> dict[str, set[str]]:
    """The normal form of every program of the training corpus -> the inputs that were shown with it."""
    share = -(-training["tokens"] // training["processes"])
    with ProcessPoolExecutor(training["processes"]) as pool:
        futures = [
            pool.submit(corpus_shard, training["seed"], rank, share) for rank in range(training["processes"])
        ]
        shards = [future.result() for future in futures]
    known: dict[str, set[str]] = defaultdict(set)
    for shard in shards:
        for program, inputs in shard.items():
            known[program_key(program)] |= inputs
    return known


def held_out(known: dict[str, set[str]], seed: int = SEED) -> list[dict[str, Any]]:
    """The rows of the suite, none of which is in the corpus."""
    rows, taken = [], set()
    for kind, levels in STRATA.items():
        for level, count in levels.items():
            rng = ids.generator(seed, kind, level)
            found = 0
            while found < count:
                program, inputs, outputs = sample_problem(rng, kind, level)
                key = program_key(program)
                shown = known.get(key)
                repeats = (kind, level) == KNOWN_PROGRAMS
                fresh = shown is None or (repeats and not shown & set(map(arguments_text, inputs)))
                if not fresh or key in taken:
                    continue
                taken.add(key)
                rows.append(
                    {
                        "item_id": f"{kind}-{level}-{found:03d}",
                        "problem_type": kind,
                        "level": level,
                        "program": program,
                        "inputs": [literal(tuple(arguments)) for arguments in inputs],
                        "outputs": [literal(output) for output in outputs],
                        "known_program": shown is not None,
                    }
                )
                found += 1
    return rows


def main() -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=DATA)
    arguments = parser.parse_args()
    training = json.loads(TRAINING.read_text())["training"]
    known = corpus(training)
    rows = held_out(known)
    arguments.out.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), arguments.out / "tiny.parquet", compression="zstd")
    recipe = {
        "made_by": "python -m base_model.suite",
        "seed": SEED,
        "corpus": {name: training[name] for name in ("seed", "tokens", "processes")},
        "corpus_programs": len(known),
        "problems": STRATA,
    }
    (arguments.out / "tiny.json").write_text(json.dumps(recipe, indent=1) + "\n")
    print(f"{arguments.out / 'tiny.parquet'}: {len(rows)} problems, none of them among {len(known)} programs")


if __name__ == "__main__":
    main()
