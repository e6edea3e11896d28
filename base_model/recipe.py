"""Makes the bundled tiny base from nothing: ``python -m base_model.recipe --out base_model/tiny``.

Generates the corpus, trains, saves an ordinary transformers checkpoint, checks that it loads and that its
tokenizer is lossless, and only then puts it in place.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from base_model.documents import write_document
from base_model.tokenizer import build_tokenizer
from base_model.train import Training, train_process
from populora_core.support.errors import BaseModelError

DEFAULT_TOKENS = 14_000_000
CHECKED_DOCUMENTS = 500


def check_checkpoint(
    folder: Path, original: PreTrainedTokenizerFast, write: Callable[[np.random.Generator], str]
) -> None:
    """Load the checkpoint as any user would and try it.

    Args:
        original: the tokenizer of training.
        write: draws a document.

    Raises:
        BaseModelError: the tokenizer is not the one of training or loses text, or the logits are not finite.
    """
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    loaded = AutoTokenizer.from_pretrained(folder)
    rng = np.random.default_rng(0)
    for _ in range(CHECKED_DOCUMENTS):
        text = write(rng)
        ids = loaded(text)["input_ids"]
        if ids != original(text)["input_ids"] or loaded.decode(ids) != text:
            raise BaseModelError(
                "The saved tokenizer differs from the one of training.",
                expected=f"the same ids, and text back unchanged, for {text!r}",
                got=repr(loaded.decode(ids)),
                fix="Use the transformers version that pyproject.toml pins and make the checkpoint again.",
            )
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits
    if logits.shape[-1] != len(loaded) or not bool(torch.isfinite(logits).all()):
        raise BaseModelError(
            "The saved model does not give usable logits.",
            expected=f"finite logits over {len(loaded)} tokens",
            got=f"shape {tuple(logits.shape)}",
            fix="Train again; if it repeats, lower the learning rates.",
        )


def make(out: Path, train: Callable[[Path], None], check: Callable[[Path], None]) -> None:
    """Train in a folder beside ``out`` and rename it there once it passes the check (see `check_checkpoint`)."""
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        train(folder)
        check(folder)
        folder.chmod(0o755)
        if out.exists():
            os.replace(out, folder.with_suffix(".old"))
        os.replace(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(folder.with_suffix(".old"), ignore_errors=True)


def train_tiny(training: Training, folder: Path) -> None:
    """Train the tiny base in its processes; the checkpoint is in the folder."""
    torch.multiprocessing.spawn(train_process, (training, str(folder)), nprocs=training.processes)
    (folder / "rendezvous").unlink(missing_ok=True)


def check_tiny(folder: Path) -> None:
    """See `check_checkpoint`."""
    original = build_tokenizer()
    check_checkpoint(folder, original, lambda rng: write_document(rng, original).text)


def main() -> None:
    """Command line of the recipe."""
    parser = argparse.ArgumentParser(description="Make the bundled tiny base from nothing.")
    parser.add_argument("--out", type=Path, default=Path("base_model/tiny"))
    parser.add_argument("--tokens", type=float, default=DEFAULT_TOKENS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--layers", type=int, default=5)
    arguments = parser.parse_args()
    training = Training(int(arguments.tokens), arguments.seed, arguments.processes, arguments.layers)
    make(arguments.out, partial(train_tiny, training), check_tiny)
    print(f"{arguments.out}: done")


if __name__ == "__main__":
    main()
