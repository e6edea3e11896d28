r"""A control: problems of `code_o` with three inputs, asked and answered in one go, in a clone.

    python -m base_model.steps.several --out runs/several-base
    populora run --config configs/ablations/three-inputs.toml

The frontier base has only seen answers on one input, so it is trained on for a while, on answers on one and on three.
A second and a third thought begin as the first does, with a copy of their input:
``<so>PROGRAM\n#A\n#B\n#C\n#A\n:THOUGHT\n=OUT\n#B\n:THOUGHT\n=OUT\n#C\n:THOUGHT\n=OUT<eos>``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerFast

from base_model.blocks import choose_weighted
from base_model.documents import Document, Piece
from base_model.recipe import make
from base_model.steps import documents
from base_model.steps.documents import REFERENCES, SEVERAL_INPUTS, Corpus
from base_model.steps.grammar import SolvedProgram, sample
from base_model.steps.recipe import CLOSING, check_frontier
from base_model.steps.train import train
from populora_core.problems.dialects.compact import INPUT_MARK, CompactDialect, input_lines
from populora_core.problems.model import Problem
from populora_core.problems.parsing import FormatError
from populora_core.support.errors import ProblemError
from populora_core.support.shipped import REPOSITORY

THOUGHT_MARK = "\n:"
PROPOSED, ANSWERED = 0.1, 0.4
"""Shares of proposals of three inputs and of answers on three; the other documents are the frontier base's corpus."""


class Several(CompactDialect):
    """The compact dialect, with so many inputs a problem of `code_o`."""

    def __init__(self, inputs: int = 1) -> None:
        super().__init__()
        self.rules = replace(CompactDialect.rules, inputs=inputs)

    def asking(self, inputs: int) -> Several:
        """The same, with so many inputs a problem."""
        return Several(inputs)

    @cached_property
    def digest(self) -> str:
        return f"{super().digest}-several-{self.rules.inputs}"

    def propose_prompt(self, problem_type: str, references: Sequence[Problem]) -> str:
        if self.rules.inputs == 1:
            return super().propose_prompt(problem_type, references)
        if problem_type != "code_o":
            raise ProblemError(
                "several inputs a problem are asked of code_o alone",
                expected='propose.types = ["code_o"]',
                got=problem_type,
                fix="leave propose.inputs at 1 for the other types",
            )
        shown = [replace(one, inputs=one.inputs[:1]) for one in references]
        return (
            super().propose_prompt(problem_type, shown).replace("<po>", "<po>" + "#" * self.rules.inputs, 1)
        )

    def solve_prompt(self, problem: Problem) -> str:
        prompt = super().solve_prompt(problem)
        if problem.problem_type != "code_o" or len(problem.inputs) == 1:
            return prompt
        return prompt.removesuffix(THOUGHT_MARK) + input_lines(problem.inputs[:1]) + THOUGHT_MARK

    def parse_answer(self, problem: Problem, completion: str) -> str:
        if problem.problem_type != "code_o":
            return super().parse_answer(problem, completion)
        answers = completion.split(INPUT_MARK)
        if len(answers) != len(problem.inputs):
            raise FormatError(f"expected answers on {len(problem.inputs)} inputs, came {len(answers)}")
        return "\n".join(CompactDialect.parse_answer(self, problem, one) for one in answers)

    def thought(self, completion: str) -> str:
        """The traces before the outputs."""
        answers = completion.split(INPUT_MARK)
        return "".join(CompactDialect.thought(self, one).rpartition(THOUGHT_MARK)[2] for one in answers)


@dataclass(frozen=True)
class SeveralCorpus(Corpus):
    """The frontier base's corpus, half of it with three inputs."""

    def write(self, rng: np.random.Generator, _: PreTrainedTokenizerFast | None = None) -> Document:
        mark = rng.random()
        if mark < PROPOSED:
            return documents.propose(rng, "po", choose_weighted(rng, REFERENCES), self, several_share=1.0)
        if mark < PROPOSED + ANSWERED:
            return predict_outputs(sample(rng, choose_weighted(rng, self.solved), SEVERAL_INPUTS), self)
        return super().write(rng)


def predict_outputs(found: SolvedProgram, corpus: Corpus) -> Document:
    """The output on each input, each after its thought."""
    alone = [SolvedProgram(found.statements, (state,)) for state in found.inputs]
    (program, opening, *answer), *rest = (documents.predict_output(one, corpus).pieces for one in alone)
    asked = (program, Piece(documents.input_lines(found.inputs) + opening.text, 0.0))
    for _, opening, *lines in rest:
        answer += [replace(opening, weight=1.0), *lines]
    *before, end = answer
    lasting = (replace(piece, text=piece.text.removesuffix("<eos>")) for piece in before)
    return Document("so", (*asked, *lasting, end), asked[0].text + asked[1].text)


def main() -> None:
    """Command line of the recipe."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/several-base"))
    parser.add_argument("--tokens", type=int, default=800_000)
    options = parser.parse_args()
    training = replace(CLOSING, tokens=options.tokens, corpus=SeveralCorpus(**asdict(CLOSING.corpus)))
    frontier = REPOSITORY / "base_model" / "frontier"
    make(options.out, lambda folder: train(training, folder, frontier), check_frontier)
    print(f"{options.out}: done")


if __name__ == "__main__":
    main()
