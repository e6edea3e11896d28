"""Makes the frontier base from nothing: ``python -m base_model.steps.recipe --out base_model/frontier``.

Generates the corpus, trains in one process of one thread, saves an ordinary transformers checkpoint, checks that
it loads and that its tokenizer is lossless, and only then puts it in place.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from base_model.steps.documents import Corpus
from base_model.steps.train import StepsTraining, train
from base_model.steps.words import tokenizer
from populora_core.errors import BaseModelError

CHECKED_DOCUMENTS = 500


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


def make(out: Path, training: StepsTraining) -> None:
    """Train in a folder beside ``out`` and rename it there once it passes `check_checkpoint`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        train(training, folder)
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
    parser.add_argument("--tokens", type=float, default=StepsTraining().tokens)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    make(options.out, StepsTraining(int(options.tokens), options.seed))
    print(f"{options.out}: done")


if __name__ == "__main__":
    main()
