r"""Training documents of the frontier base: the compact dialect's six roles, over the stepwise grammar.

What is decided here is the format; `base_model/frontier.md` gives the reasons.

- propose: ``<po>{<ref>PROGRAM\n#ARGS}*K<new>PROGRAM\n#ARGS<eos>``, ``<pi>`` alike, ``<pf>`` with six inputs in
  rising order. ``<po>###`` in place of ``<po>`` asks for three inputs, in rising order too.
- predict the output: ``<so>PROGRAM\n#ARGS\n:THOUGHT\n=OUT<eos>``; every answer has its thought
- find an input: ``<si>PROGRAM\n=OUT\n#ARGS<eos>``, without a thought
- write the function: ``<sf>#ARGS\n=OUT\n``, four times, then ``PROGRAM<eos>``, without a thought

A thought has one line for each executed statement, ``\n x+y:437``: the statement, then its variable's old value,
the operand's value and the new value. Each token is one look-up, at any depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from transformers import PreTrainedTokenizerFast

from base_model.blocks import choose, choose_weighted
from base_model.documents import Document, Piece
from base_model.execution import arguments_text, literal
from base_model.steps.grammar import SolvedProgram, State, relative, sample, steps

CODE_F_INPUTS = 6
SHOWN_PAIRS = 4
SEVERAL_INPUTS = 3
SEVERAL_SHARE = 0.15
RELATIVE_PROBABILITY = 0.8
REFERENCE_INPUTS = 2
REFERENCES: dict[int, float] = {0: 0.5, 1: 0.25, 2: 0.25}
INPUT_LOSS = 0.5


@dataclass(frozen=True, slots=True)
class Corpus:
    """The mixture of documents.

    Attributes:
        roles: role -> share of the documents.
        solved: level -> share among the programs whose output is predicted.
        proposed: level -> share among proposed programs.
        written: level -> share among programs to be written or inverted.
        shown_loss: loss weight of a shown program's tokens.
        computed_loss: loss weight of a step's new value, the one token that is computed and not copied.
    """

    roles: dict[str, float] = field(
        default_factory=lambda: {"po": 10, "pi": 6, "pf": 8, "so": 68, "si": 4, "sf": 4}
    )
    solved: dict[int, float] = field(default_factory=lambda: {1: 20, 2: 35, 3: 42, 4: 2, 5: 1})
    proposed: dict[int, float] = field(default_factory=lambda: {1: 5, 2: 25, 3: 47, 4: 15, 5: 8})
    written: dict[int, float] = field(default_factory=lambda: {1: 60, 2: 40})
    shown_loss: float = 0.2
    computed_loss: float = 4.0

    def write(self, rng: np.random.Generator, _: PreTrainedTokenizerFast | None = None) -> Document:
        """A random document."""
        role = choose_weighted(rng, self.roles)
        if role[0] == "p":
            return propose(rng, role, choose_weighted(rng, REFERENCES), self)
        if role == "so":
            return predict_output(sample(rng, choose_weighted(rng, self.solved)), self)
        found = sample(rng, choose_weighted(rng, self.written), SHOWN_PAIRS)
        return find_input(found, self.shown_loss) if role == "si" else write_function(found)


def thought(found: SolvedProgram) -> list[tuple[str, str]]:
    """The run on the first input: for each executed statement what is looked up, and what is computed from it."""
    return [
        (f"\n {''.join(step.statement)}:{step.old}{step.operand}", str(step.new))
        for step in steps(found.statements, found.inputs[0])
    ]


def result(found: SolvedProgram) -> str:
    """The line that ends an answer."""
    return f"\n={output_text(found.outputs[0])}<eos>"


def answer(found: SolvedProgram) -> str:
    """The text that predicts the output on the first input, thought included."""
    return "".join(read + new for read, new in thought(found)) + result(found)


def output_text(output: State) -> str:
    """The returned list as the dialect writes it."""
    return literal(list(output))


def input_lines(inputs: Sequence[State]) -> str:
    """Each input on a line of its own."""
    return "".join(f"\n#{arguments_text(state)}" for state in inputs)


def propose(
    rng: np.random.Generator,
    role: str,
    references: int,
    corpus: Corpus,
    several_share: float = SEVERAL_SHARE,
) -> Document:
    """A proposal after so many references: often a relative of one of them, never a copy."""
    several = role != "pf" and rng.random() < several_share
    count = CODE_F_INPUTS if role == "pf" else SEVERAL_INPUTS if several else 1
    shown = [_drawn(rng, corpus, count) for _ in range(references)]
    related = bool(shown) and rng.random() < RELATIVE_PROBABILITY
    while True:
        target = (
            relative(rng, choose(rng, shown), max(corpus.proposed), count)
            if related
            else _drawn(rng, corpus, count)
        )
        if all(target.statements != reference.statements for reference in shown):
            break
    shown_inputs = REFERENCE_INPUTS if role == "pf" else 1
    prompt = f"<{role}>" + "#" * (SEVERAL_INPUTS if several else 0)
    prompt += "".join(f"<ref>{one.program}{input_lines(one.inputs[:shown_inputs])}" for one in shown)
    pieces = (
        Piece(prompt, corpus.shown_loss),
        Piece("<new>", 0.0),
        Piece(target.program, 1.0),
        Piece(input_lines(sorted(target.inputs)), INPUT_LOSS),
        Piece("<eos>", 1.0),
    )
    return Document(role, pieces, prompt + "<new>")


def _drawn(rng: np.random.Generator, corpus: Corpus, inputs: int) -> SolvedProgram:
    return sample(rng, choose_weighted(rng, corpus.proposed), inputs)


def predict_output(found: SolvedProgram, corpus: Corpus) -> Document:
    """The output on the first input, after the thought."""
    asked = (
        Piece(f"<so>{found.program}", corpus.shown_loss),
        Piece(f"{input_lines(found.inputs[:1])}\n:", 0.0),
    )
    lines = (
        piece
        for read, new in thought(found)
        for piece in (Piece(read, 1.0), Piece(new, corpus.computed_loss))
    )
    return Document("so", (*asked, *lines, Piece(result(found), 1.0)), asked[0].text + asked[1].text)


def find_input(found: SolvedProgram, shown_loss: float) -> Document:
    """An input that gives the first output."""
    pieces = (
        Piece(f"<si>{found.program}", shown_loss),
        Piece(f"\n={output_text(found.outputs[0])}\n#", 0.0),
        Piece(f"{arguments_text(found.inputs[0])}<eos>", 1.0),
    )
    return Document("si", pieces, pieces[0].text + pieces[1].text)


def write_function(found: SolvedProgram) -> Document:
    """The program behind the examples."""
    examples = "".join(
        f"#{arguments_text(state)}\n={output_text(output)}\n"
        for state, output in zip(found.inputs, found.outputs, strict=True)
    )
    pieces = (Piece(f"<sf>{examples}", 0.0), Piece(f"{found.program}<eos>", 1.0))
    return Document("sf", pieces, pieces[0].text)
