r"""The compact dialect: one special token opens each role, line marks separate the parts, no prose.

It is what the bundled tiny base is trained on. A completion is read by its line marks alone: `\n#` opens the
arguments of an input, `\n=` an output. A program of this language has no line that starts with either.

    role             prompt                                         completion
    propose code_o   <po>{<ref>PROGRAM\n#ARGS}*K<new>               PROGRAM\n#ARGS      (code_i: <pi>)
    propose code_f   <pf>{<ref>PROGRAM\n#ARGS\n#ARGS}*K<new>        PROGRAM\n#ARGS...   (one line an input)
    solve code_o     <so>PROGRAM\n#ARGS\n:                          TRACE\n=OUT         (TRACE may be empty)
    solve code_i     <si>PROGRAM\n=OUT\n#                           ARGS
    solve code_f     <sf>{#ARGS\n=OUT\n}*shown                      PROGRAM

ARGS are the arguments without the tuple's parentheses; ARGS and OUT have no spaces outside strings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from populora_core.problems import types
from populora_core.problems.dialects.dialect import Tokenizer
from populora_core.problems.dialects.templates import TEMPLATE_ROOT, TemplateFolder
from populora_core.problems.model import Draft, Problem
from populora_core.problems.parsing import FormatError, read_arguments, read_output, read_program
from populora_core.problems.types import AnswerForm, TypeRules
from populora_core.sandbox.literals import written, written_arguments

GRAMMAR_VERSION = "2"
SPECIAL_TOKENS = ("<pad>", "<eos>", "<po>", "<pi>", "<pf>", "<so>", "<si>", "<sf>", "<ref>", "<new>")
INPUT_MARK = "\n#"
OUTPUT_MARK = "\n="
REFERENCE_INPUTS = 2


class CompactDialect:
    """The grammar above, with the texts in templates/compact."""

    name = "compact"
    stop = ()
    reserved = SPECIAL_TOKENS
    rules = TypeRules(code_f_inputs_min=5, code_f_inputs_max=8, code_f_shown=4)

    def __init__(self, folder: Path = TEMPLATE_ROOT / "compact") -> None:
        self._templates = TemplateFolder(folder)

    @cached_property
    def digest(self) -> str:
        return self._templates.digest(self.name, GRAMMAR_VERSION, repr(self.rules))

    def propose_prompt(self, problem_type: str, references: Sequence[Problem]) -> str:
        shown = "".join(
            self._templates.fill(
                "reference",
                program=reference.program,
                inputs=input_lines(reference.inputs[:REFERENCE_INPUTS]),
            )
            for reference in references
        )
        own = types.problem_type(problem_type).templates.get(f"{self.name}/propose")
        return self._templates.fill(f"propose_{problem_type}", own, references=shown)

    def solve_prompt(self, problem: Problem) -> str:
        kind = types.problem_type(problem.problem_type)
        shown = kind.shown(problem, self.rules)
        return self._templates.fill(
            f"solve_{problem.problem_type}",
            kind.templates.get(f"{self.name}/solve"),
            program=problem.program,
            inputs=input_lines(problem.inputs[index] for index in shown),
            output=compact_output(problem.outputs[shown[0]]),
            examples="".join(
                f"#{compact_arguments(problem.inputs[index])}\n={compact_output(problem.outputs[index])}\n"
                for index in shown
            ),
        )

    def parse_proposal(self, problem_type: str, completion: str) -> Draft:
        program, *inputs = _plain(completion).split(INPUT_MARK)
        if not inputs:
            raise FormatError("expected a line of arguments that starts with `#` after the program")
        return Draft(problem_type, read_program(program), tuple(map(read_arguments, inputs)), message="")

    def parse_answer(self, problem: Problem, completion: str) -> str:
        text = _plain(completion)
        match types.problem_type(problem.problem_type).answer_form:
            case AnswerForm.OUTPUT:
                _, mark, output = text.rpartition(OUTPUT_MARK)
                if not mark:
                    raise FormatError("expected a line that starts with `=`")
                return read_output(output)
            case AnswerForm.ARGUMENTS:
                return read_arguments(text)
            case AnswerForm.PROGRAM:
                return read_program(text)

    def thought(self, completion: str) -> str:
        """The trace before an output."""
        return completion.rpartition(OUTPUT_MARK)[0]

    def encode(self, tokenizer: Tokenizer, prompt: str) -> list[int]:
        return list(tokenizer(prompt, add_special_tokens=False)["input_ids"])


def compact_arguments(arguments: str) -> str:
    """The ARGS of an argument tuple: `(3, [1, 2])` gives `3,[1,2]`."""
    return ",".join(map(_shown, written_arguments(arguments, spaces=False)))


def compact_output(output: str) -> str:
    """The OUT of an output."""
    return _shown(written(output, spaces=False))


def _shown(text: str) -> str:
    r"""A literal of the same value in which no special token is spelled: `'<eos>'` gives `'\x3ceos>'`."""
    for token in SPECIAL_TOKENS if "<" in text else ():
        text = text.replace(token, rf"\x3c{token[1:]}")
    return text


def input_lines(inputs: Iterable[str]) -> str:
    """The input lines that follow a program, each opened by its mark."""
    return "".join(INPUT_MARK + compact_arguments(arguments) for arguments in inputs)


def _plain(completion: str) -> str:
    """The text before the end token; any other special token would be read as one again in a later prompt."""
    text = completion.removesuffix("<eos>")
    if found := [token for token in SPECIAL_TOKENS if token in text]:
        raise FormatError(f"expected no special token inside a completion, came {', '.join(found)}")
    return text
