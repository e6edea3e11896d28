"""Makes the frontier base from nothing: ``python -m base_model.steps.recipe --out base_model/frontier``.

Generates the corpus, trains in one process of one thread, saves an ordinary transformers checkpoint, checks that
it loads and that its tokenizer is lossless, and only then puts it in place.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from base_model.steps.documents import Corpus
from base_model.steps.train import StepsTraining, train
from base_model.steps.words import tokenizer
from populora_core.support.errors import BaseModelError

CHECKED_DOCUMENTS = 500
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
    constant_share=0.4,
    corpus=Corpus(solved={1: 18, 2: 34, 3: 44.5, 4: 0.5, 5: 3}, computed_loss=1.5),
)
"""Sums are learnt, and just so much of levels 4 and 5 that answers there differ."""


def check_checkpoint(folder: Path, seed: int = 0) -> None:
    """Load the checkpoint as any user would and try it.

    Raises:
        BaseModelError: the tokenizer is not the one of training or loses text, or the logits are not finite.
    """
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    loaded, original, corpus = AutoTokenizer.from_pretrained(folder), tokenizer(), Corpus()
    rng = np.random.default_rng(seed)
    for _ in range(CHECKED_DOCUMENTS):
        text = corpus.write(rng).text
        ids = loaded(text)["input_ids"]
        if ids != original(text)["input_ids"] or loaded.decode(ids) != text:
            raise BaseModelError(
                "The saved tokenizer differs from the one of training.",
                expected=f"the same ids, and text back unchanged, for {text!r}",
                came=repr(loaded.decode(ids)),
                remedy="Use the transformers version that pyproject.toml pins and make the checkpoint again.",
            )
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits
    if logits.shape[-1] != len(loaded) or not bool(torch.isfinite(logits).all()):
        raise BaseModelError(
            "The saved model does not give usable logits.",
            expected=f"finite logits over {len(loaded)} tokens",
            came=f"shape {tuple(logits.shape)}",
            remedy="Train again; if it repeats, lower the learning rates.",
        )


def make(out: Path, phases: Sequence[StepsTraining], start: Path | None = None) -> None:
    """Train phase after phase in a folder beside ``out``; rename it there once it passes `check_checkpoint`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        records = []
        for phase in phases:
            train(phase, folder, start)
            records.append(json.loads((folder / "training.json").read_text()))
            start = folder
        (folder / "training.json").write_text(json.dumps({"phases": records}, indent=1) + "\n")
        check_checkpoint(folder)
        folder.chmod(0o755)
        if out.exists():
            os.replace(out, folder.with_suffix(".old"))
        os.replace(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(folder.with_suffix(".old"), ignore_errors=True)


def main() -> None:
    """Command line of the recipe."""
    parser = argparse.ArgumentParser(description="Make the frontier base from nothing.")
    parser.add_argument("--out", type=Path, default=Path("base_model/frontier"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    make(options.out, [replace(phase, seed=options.seed) for phase in (OPENING, CLOSING)])
    print(f"{options.out}: done")


if __name__ == "__main__":
    main()
