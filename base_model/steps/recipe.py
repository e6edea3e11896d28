"""Makes the frontier base from nothing: ``python -m base_model.steps.recipe --out base_model/frontier``.

Generates the corpus, trains in one process of one thread, saves an ordinary transformers checkpoint, checks that
it loads and that its tokenizer is lossless, and only then puts it in place.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from base_model.recipe import check_checkpoint, make
from base_model.steps.documents import Corpus
from base_model.steps.train import StepsTraining, train
from base_model.steps.words import tokenizer

OPENING = StepsTraining(
    1_300_000,
    corpus=Corpus(
        solved={1: 20, 2: 35, 3: 43, 4: 1.2, 5: 0.8},
        proposed={1: 8, 2: 30, 3: 42, 4: 13, 5: 7},
        computed_loss=1.0,
    ),
)
"""Statements, pointers and values are learnt; sums are right a little more often than not."""
CLOSING = StepsTraining(
    500_000,
    seed=2,
    constant_share=0.4,
    corpus=Corpus(solved={1: 18, 2: 34, 3: 45.1, 4: 0.4, 5: 2.5}, computed_loss=1.5),
)
"""Sums are learnt, and just so much of levels 4 and 5 that answers there differ."""


def train_phases(phases: Sequence[StepsTraining], folder: Path) -> None:
    """Train phase after phase, each from where the one before ended; the record holds all of them."""
    records: list[object] = []
    for phase in phases:
        train(phase, folder, folder if records else None)
        records.append(json.loads((folder / "training.json").read_text()))
    (folder / "training.json").write_text(json.dumps({"phases": records}, indent=1) + "\n")


def check_frontier(folder: Path) -> None:
    """See `check_checkpoint`."""
    corpus = Corpus()
    check_checkpoint(folder, tokenizer(), lambda rng: corpus.write(rng).text)


def main() -> None:
    """Command line of the recipe."""
    parser = argparse.ArgumentParser(description="Make the frontier base from nothing.")
    parser.add_argument("--out", type=Path, default=Path("base_model/frontier"))
    parser.add_argument("--seed", type=int, default=0, help="added to each phase's own")
    options = parser.parse_args()
    phases = [replace(phase, seed=phase.seed + options.seed) for phase in (OPENING, CLOSING)]
    make(options.out, partial(train_phases, phases), check_frontier)
    print(f"{options.out}: done")


if __name__ == "__main__":
    main()
