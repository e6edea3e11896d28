r"""The instruct dialect: a think section, then an answer section of fenced blocks, for chat models.

The prompt opens the think section itself (`encode` ends with `<think>`), so a completion is

    REASONING </think> <answer> BLOCKS </answer>

with nothing but white space between `</think>` and `<answer>` and after `</answer>`; the text after the last
`<answer>` counts. Sampling ends at the first `</answer>`. A block is a line ```TAG, its content, and a line ```;
blocks come in any order, prose may stand between them, and each tag must come exactly as often as the prompt says:

    propose code_o, code_i    python 1, input 1
    propose code_f            python 1, input 10, message 1
    solve code_o              output 1
    solve code_i              input 1
    solve code_f              python 1

With several inputs a problem (`propose.inputs`) code_o and code_i have so many blocks in place of the one input or
output, in the order of the problem's.

An input block holds the arguments of one call, separated by commas; an output block holds one literal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from populora_core.problems import types
from populora_core.problems.dialects.dialect import Tokenizer, respelt, unspelt
from populora_core.problems.dialects.templates import TEMPLATE_ROOT, TemplateFolder
from populora_core.problems.model import Draft, Problem
from populora_core.problems.parsing import FormatError, read_arguments, read_output, read_program
from populora_core.problems.types import AnswerForm, TypeRules
from populora_core.sandbox.literals import written_arguments
from populora_core.sandbox.policy import ALLOWED_MODULES

GRAMMAR_VERSION = "2"
THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"
ASKED_FOR = (THINK_CLOSE, ANSWER_OPEN, ANSWER_CLOSE)
"""Tags that the instructions spell as they are to be written, also for a base that has them as special tokens."""
FENCE = "```"
PYTHON, INPUT, OUTPUT, MESSAGE = "python", "input", "output", "message"
MAX_MESSAGE_CHARS = 2_000
REFERENCE_EXAMPLES = 2
_ANSWERS = {
    AnswerForm.OUTPUT: (OUTPUT, read_output),
    AnswerForm.ARGUMENTS: (INPUT, read_arguments),
    AnswerForm.PROGRAM: (PYTHON, read_program),
}


class InstructDialect:
    """The grammar above, with the texts in templates/instruct."""

    name = "instruct"
    stop = (ANSWER_CLOSE,)
    templated = True

    def __init__(self, folder: Path = TEMPLATE_ROOT / "instruct", inputs: int = 1) -> None:
        self._folder, self._templates = folder, TemplateFolder(folder)
        self._several = TemplateFolder(folder / "several")  # asks for several inputs, or shows them
        self.rules = TypeRules(code_f_inputs_min=10, code_f_inputs_max=10, code_f_shown=5, inputs=inputs)

    @cached_property
    def digest(self) -> str:
        several = (str(self.rules.inputs), self._several.digest()) if self.rules.inputs > 1 else ()
        return self._templates.digest(
            self.name, GRAMMAR_VERSION, repr(self.rules), _modules(), *self.stop, *several
        )

    def asking(self, inputs: int) -> InstructDialect:
        """The same, with so many inputs a problem where an answer has a part for each."""
        return type(self)(self._folder, inputs)

    def propose_prompt(self, problem_type: str, references: Sequence[Problem]) -> str:
        kind = types.problem_type(problem_type)
        count = kind.input_count(self.rules)[1]
        return self._for(kind.answer_form, count).fill(
            f"propose_{problem_type}",
            kind.templates.get(f"{self.name}/propose"),
            rules=self._templates.fill("rules", modules=_modules()),
            references="\n\n".join(
                self._templates.fill("reference", number=str(number), blocks=_reference(reference))
                for number, reference in enumerate(references, start=1)
            )
            or self._templates.fill("no_reference"),
            input_count=str(count),
            shown_count=str(self.rules.code_f_shown),
        )

    def solve_prompt(self, problem: Problem) -> str:
        kind = types.problem_type(problem.problem_type)
        shown = kind.shown(problem, self.rules)
        return self._for(kind.answer_form, len(shown)).fill(
            f"solve_{problem.problem_type}",
            kind.templates.get(f"{self.name}/solve"),
            program=_block(PYTHON, problem.program),
            input="\n".join(_input_block(problem.inputs[index]) for index in shown),
            output="\n".join(_block(OUTPUT, problem.outputs[index]) for index in shown),
            count=str(len(shown)),
            examples=_examples(problem, shown),
            message=_block(MESSAGE, problem.message),
            modules=_modules(),
        )

    def parse_proposal(self, problem_type: str, completion: str) -> Draft:
        kind = types.problem_type(problem_type)
        wanted = {PYTHON: (1, 1), INPUT: kind.input_count(self.rules)}
        if kind.has_message:
            wanted[MESSAGE] = (1, 1)
        blocks = read_blocks(answer_section(completion), wanted)
        message = blocks[MESSAGE][0].strip() if kind.has_message else ""
        if len(message) > MAX_MESSAGE_CHARS:
            raise FormatError(f"expected a message of at most {MAX_MESSAGE_CHARS} characters")
        inputs = tuple(map(read_arguments, blocks[INPUT]))
        return Draft(problem_type, read_program(blocks[PYTHON][0]), inputs, message)

    def parse_answer(self, problem: Problem, completion: str) -> str:
        kind = types.problem_type(problem.problem_type)
        tag, read = _ANSWERS[kind.answer_form]
        count = 1 if kind.answer_form is AnswerForm.PROGRAM else len(kind.shown(problem, self.rules))
        return "\n".join(map(read, read_blocks(answer_section(completion), {tag: (count, count)})[tag]))

    def thought(self, completion: str) -> str:
        """The think section."""
        return completion.rpartition(ANSWER_OPEN)[0].rstrip().removesuffix(THINK_CLOSE).strip()

    def _for(self, form: AnswerForm, count: int) -> TemplateFolder:
        """The templates for problems of this form with so many inputs; a function always has several."""
        return self._several if count > 1 and form is not AnswerForm.PROGRAM else self._templates

    def encode(self, tokenizer: Tokenizer, prompt: str) -> list[int]:
        """Wrap the prompt by the model's chat template, or as plain User/Assistant text; open the think tag.

        No program or message can spell a special token (see `unspelt`, and for the tags `_block`).
        """
        prompt = unspelt(tokenizer, prompt, ASKED_FOR)
        if tokenizer.chat_template:
            turn = [{"role": "user", "content": prompt}]
            text = tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
        else:
            text = self._templates.fill("plain_wrapper", prompt=prompt)
        if not text.rstrip().endswith(THINK_OPEN):
            text += f"{THINK_OPEN}\n"
        return list(tokenizer(text, add_special_tokens=not tokenizer.chat_template)["input_ids"])


def fence(tag: str, content: str) -> str:
    """A block as the grammar reads it."""
    return f"{FENCE}{tag}\n{content}\n{FENCE}"


def answer_section(completion: str) -> str:
    """The text between the last `<answer>` and the `</answer>` that ends the completion.

    Raises:
        FormatError: a tag is missing, or there is text where none belongs.
    """
    head, opened, tail = completion.rpartition(ANSWER_OPEN)
    if not opened:
        raise FormatError(f"expected {ANSWER_OPEN}")
    if not head.rstrip().endswith(THINK_CLOSE):
        raise FormatError(f"expected {THINK_CLOSE} directly before {ANSWER_OPEN}")
    body, closed, rest = tail.rpartition(ANSWER_CLOSE)
    if not closed:
        raise FormatError(f"expected {ANSWER_CLOSE}")
    if rest.strip():
        raise FormatError(f"expected nothing after {ANSWER_CLOSE}")
    return body


def read_blocks(text: str, wanted: Mapping[str, tuple[int, int]]) -> dict[str, list[str]]:
    """The contents of the fenced blocks by tag, in order.

    Args:
        text: an answer section.
        wanted: the fewest and the most blocks of each tag.

    Raises:
        FormatError: a block is not closed, has a tag that is not wanted, or comes too seldom or too often.
    """
    blocks: dict[str, list[str]] = defaultdict(list)
    tag: str | None = None
    content: list[str] = []
    for line in text.split("\n"):
        mark = line.rstrip()
        if tag is None and mark.startswith(FENCE):
            tag, content = mark.removeprefix(FENCE), []
        elif tag is not None and mark == FENCE:
            blocks[tag].append("\n".join(content))
            tag = None
        elif tag is not None:
            content.append(line)
    if tag is not None:
        raise FormatError(f"expected the {tag or 'untagged'} block to be closed by a line {FENCE}")
    if unknown := sorted(blocks.keys() - wanted.keys()):
        raise FormatError(f"expected no {unknown[0] or 'untagged'} block")
    for name, (fewest, most) in wanted.items():
        if not fewest <= len(blocks[name]) <= most:
            count = str(fewest) if fewest == most else f"{fewest} to {most}"
            raise FormatError(f"expected {count} {name} block(s), came {len(blocks[name])}")
    return blocks


def _block(tag: str, content: str) -> str:
    """A block of a prompt, with a part of a problem that spells no tag of ours."""
    return fence(tag, respelt(content, ASKED_FOR))


def _input_block(arguments: str) -> str:
    return _block(INPUT, ", ".join(written_arguments(arguments)))


def _examples(problem: Problem, indices: Sequence[int]) -> str:
    return "\n".join(
        f"{_input_block(problem.inputs[index])}\n{_block(OUTPUT, problem.outputs[index])}"
        for index in indices
    )


def _reference(problem: Problem) -> str:
    shown = range(min(REFERENCE_EXAMPLES, len(problem.inputs)))
    blocks = [_block(PYTHON, problem.program), _examples(problem, shown)]
    if problem.message:
        blocks.append(_block(MESSAGE, problem.message))
    return "\n".join(blocks)


def _modules() -> str:
    return ", ".join(sorted(ALLOWED_MODULES))
