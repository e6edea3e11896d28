r"""Training documents: the six roles of the compact dialect, written from samples of the grammar.

- propose: ``<po>{<ref>PROGRAM\n#ARGS}*K<new>PROGRAM\n#ARGS<eos>``, ``<pi>`` alike, ``<pf>`` with more inputs
- predict the output: ``<so>PROGRAM\n#ARGS\n:TRACE\n=OUT<eos>``
- find an input: ``<si>PROGRAM\n=OUT\n#ARGS<eos>``
- write the function: ``<sf>#ARGS\n=OUT\n``, four times, then ``PROGRAM<eos>``

Predicting and finding go on with further examples of the same program after the first ``<eos>``;
what is played, one example, is the exact prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerFast

from base_model.blocks import choose, choose_weighted
from base_model.execution import arguments_text, literal
from base_model.grammar import Sample, sample, sample_relative
from base_model.trace import tracer

ROLE_WEIGHTS: dict[str, float] = {"po": 8, "pi": 7, "pf": 9, "so": 31, "si": 12, "sf": 33}
REFERENCE_WEIGHTS: dict[int, float] = {0: 0.5, 1: 0.25, 2: 0.25}
RELATIVE_PROBABILITY = 0.8
REFERENCE_INPUTS = 2
SHOWN_PAIRS = 4
MAX_TRACE_TOKENS = 64
KIND_OF_ROLE = {"o": "code_o", "i": "code_i", "f": "code_f"}

# A little of the loss goes to what is shown and to what is inferable: more to learn from in every token.
SHOWN_PROGRAM_LOSS = 0.3
SHOWN_OUTPUT_LOSS = 0.5
INPUT_LOSS = 0.5


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a document's text and the weight of its tokens in the loss."""

    text: str
    weight: float


@dataclass(frozen=True, slots=True)
class Document:
    """One training text.

    Attributes:
        role: ``po``, ``pi``, ``pf``, ``so``, ``si`` or ``sf``.
        pieces: the text in order, with loss weights.
        prompt: the prefix that is given when the role is played.
    """

    role: str
    pieces: tuple[Piece, ...]
    prompt: str

    @property
    def text(self) -> str:
        """The whole document."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def completion(self) -> str:
        """The text after the prompt when the role is played, without the end token."""
        return self.text.removeprefix(self.prompt).partition("<eos>")[0]


def _input_lines(found: Sample, count: int) -> str:
    return "".join(f"\n#{arguments_text(arguments)}" for arguments in found.inputs[:count])


def propose(rng: np.random.Generator, role: str, references: int) -> Document:
    """A proposal after so many references: often a relative of one of them, never a copy."""
    kind = KIND_OF_ROLE[role[1]]
    shown = [sample(rng, kind) for _ in range(references)]
    related = bool(shown) and rng.random() < RELATIVE_PROBABILITY
    while True:
        target = sample_relative(rng, kind, choose(rng, shown)) if related else sample(rng, kind)
        if all(target.program != reference.program for reference in shown):
            break
    prompt = f"<{role}>"
    for reference in shown:
        shown_inputs = REFERENCE_INPUTS if kind == "code_f" else 1
        prompt += f"<ref>{reference.program}{_input_lines(reference, shown_inputs)}"
    pieces = (
        Piece(prompt, SHOWN_PROGRAM_LOSS),
        Piece("<new>", 0.0),
        Piece(target.program, 1.0),
        Piece(_input_lines(target, len(target.inputs) if kind == "code_f" else 1), INPUT_LOSS),
        Piece("<eos>", 1.0),
    )
    return Document(role, pieces, prompt + "<new>")


def predict_output(found: Sample, pairs: int, tokenizer: PreTrainedTokenizerFast) -> Document:
    """The outputs of the sample's first inputs, each after its trace."""
    trace = tracer(found.program)
    pieces = [Piece(f"<so>{found.program}", SHOWN_PROGRAM_LOSS)]
    for arguments, output in found.examples[:pairs]:
        scratchpad = trace(arguments)
        if len(tokenizer(scratchpad)["input_ids"]) > MAX_TRACE_TOKENS:
            scratchpad = ""
        pieces.append(Piece(f"\n#{arguments_text(arguments)}\n:", 0.0))
        pieces.append(Piece(f"{scratchpad}\n={literal(output)}<eos>", 1.0))
    return Document("so", tuple(pieces), pieces[0].text + pieces[1].text)


def find_input(found: Sample, pairs: int) -> Document:
    """Inputs that give the sample's first outputs."""
    pieces = [Piece(f"<si>{found.program}", SHOWN_PROGRAM_LOSS)]
    for arguments, output in found.examples[:pairs]:
        pieces.append(Piece(f"\n={literal(output)}\n#", 0.0))
        pieces.append(Piece(f"{arguments_text(arguments)}<eos>", 1.0))
    return Document("si", tuple(pieces), pieces[0].text + pieces[1].text)


def write_function(found: Sample) -> Document:
    """The program behind the sample's first examples."""
    pieces = [Piece("<sf>", 0.0)]
    for index, (arguments, output) in enumerate(found.examples[:SHOWN_PAIRS]):
        pieces.append(Piece(f"#{arguments_text(arguments)}\n=", 0.0))
        # From the second pair on, an output can be inferred from the pairs before it: that teaches induction.
        pieces.append(Piece(f"{literal(output)}\n", SHOWN_OUTPUT_LOSS if index else 0.0))
    prompt = "".join(piece.text for piece in pieces)
    return Document("sf", (*pieces, Piece(f"{found.program}<eos>", 1.0)), prompt)


def write_document(
    rng: np.random.Generator, tokenizer: PreTrainedTokenizerFast, role: str | None = None
) -> Document:
    """A random document, of the role where one is given."""
    role = role or choose_weighted(rng, ROLE_WEIGHTS)
    if role[0] == "p":
        return propose(rng, role, choose_weighted(rng, REFERENCE_WEIGHTS))
    found = sample(rng, KIND_OF_ROLE[role[1]])
    if role == "sf":
        return write_function(found)
    pairs = choose(rng, (2, 3, 4))
    return find_input(found, pairs) if role == "si" else predict_output(found, pairs, tokenizer)


def encode_document(tokenizer: PreTrainedTokenizerFast, document: Document) -> tuple[list[int], list[float]]:
    """Token ids of the whole document, tokenised at once, and each token's loss weight.

    Raises:
        ValueError: the prompt's ids are not a prefix of the document's, so play would differ from training.
    """
    encoded = tokenizer(document.text, return_offsets_mapping=True)
    ids: list[int] = encoded["input_ids"]
    prompt_ids = tokenizer(document.prompt)["input_ids"]
    if ids[: len(prompt_ids)] != prompt_ids:
        raise ValueError(f"The prompt's tokens are not a prefix of the document's: {document.text!r}")
    starts = [start for start, _ in encoded["offset_mapping"]]
    ends = np.cumsum([len(piece.text) for piece in document.pieces])
    return ids, [document.pieces[owner].weight for owner in np.searchsorted(ends, starts, side="right")]
