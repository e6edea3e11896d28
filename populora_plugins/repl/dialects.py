r"""The repl dialects: programs, calls and results as a session or a test shows them, for bases that go on with text.

A small pretrained model follows no long instruction, but it goes on with what it sees. Every prompt is a comment,
some examples and an open end. As `repl` writes it, a line each:

    role             prompt ends with                             completion
    propose code_o   {PROGRAM\n>>> f(ARGS)\nOUT\n\n}*K def f      (x):\n BODY\n>>> f(ARGS)\nOUT    (code_i too)
    propose code_f   {PROGRAM{\n>>> f(ARGS)\nOUT}*n\n\n}*K def f  (x):\n BODY{\n>>> f(ARGS)\nOUT}*n
    solve code_o     PROGRAM\n>>> f(ARGS)\n                       OUT
    solve code_i     PROGRAM\n# A call that gives OUT:\n>>> f     (ARGS)
    solve code_f     {>>> f(ARGS)\nOUT\n}*shown def f             (x):\n BODY

`assert` writes `assert f(ARGS) == OUT` instead, where the place for a result cannot be taken for prose. A completion
runs to the first empty line; an output or arguments to the end of their line (`notation` says what is read of one).
What a teacher writes as results is passed over: the sandbox finds them. With thoughts (`repl-thoughts`) an answer of
code_o or code_i may have lines that start with `#` before it.

`chat` says what `assert` says in the turns of the base's own template: the user's has all but the last line of a
prompt, and the model's begins with that line, so its completions are read in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from populora_core.problems import types
from populora_core.problems.dialects.dialect import NO_MORE, Tokenizer, unspelt
from populora_core.problems.dialects.templates import TemplateFolder
from populora_core.problems.model import Draft, Problem
from populora_core.problems.parsing import FormatError, read_program
from populora_core.problems.types import AnswerForm, TypeRules
from populora_plugins.repl.notation import ASSERT, REPL, Notation
from populora_plugins.repl.seeds import SEEDS, SHOWN, Seed

GRAMMAR_VERSION = "4"
END, LINE_END = "\n\n", "\n"
TEMPLATES = Path(__file__).with_name("templates") / "repl"
OPENING = "def f"
COMMENT = "#"


class ReplDialect:
    """The grammar above, with the texts in templates/repl.

    Args:
        notation: how calls are written.
        thoughts: whether examples of answers show a thought, and answers may have one.
        shown: number of seeds, from the first on, that students see with their answers.
    """

    stop = (END, NO_MORE)
    rules = TypeRules(code_f_inputs_min=3, code_f_inputs_max=6, code_f_shown=2)

    def __init__(
        self,
        name: str = "repl",
        notation: Notation = REPL,
        thoughts: bool = False,
        folder: Path = TEMPLATES,
        shown: int = SHOWN,
    ) -> None:
        self.name, self._notation, self._thoughts, self._shown = name, notation, thoughts, shown
        self._templates = TemplateFolder(folder)

    @cached_property
    def digest(self) -> str:
        return self._templates.digest(
            self.name, GRAMMAR_VERSION, repr(self._notation), repr(self.rules), repr(SEEDS), str(self._shown)
        )

    def stops(self, prompt: str) -> tuple[str, ...]:
        """The end of its line where the prompt ends with a call: that is what shows one result, or arguments."""
        calls = prompt.rstrip(LINE_END).rpartition(LINE_END)[2].startswith(self._notation.mark)
        return (LINE_END, NO_MORE) if calls and not self._thoughts else self.stop

    def seeds(self, problem_type: str) -> list[Problem]:
        """The problems that references are drawn from before there are others; a copy of one is no new problem."""
        several = types.problem_type(problem_type).input_count(self.rules)[1] > 1
        return [
            seed.problem(problem_type, number, len(seed.calls) if several else 1)
            for number, seed in enumerate(SEEDS)
        ]

    def propose_prompt(self, problem_type: str, references: Sequence[Problem]) -> str:
        own = types.problem_type(problem_type).templates.get(f"{self.name}/propose")
        shown = "".join(
            f"{each.program}\n{self._notation.calls(each, range(len(each.inputs)))}{END}"
            for each in references
        )
        return self._templates.fill("propose", own, references=shown)

    def solve_prompt(self, problem: Problem) -> str:
        kind = types.problem_type(problem.problem_type)
        examples = "".join(self._example(seed, kind.answer_form) for seed in SEEDS[: self._shown])
        return self._templates.fill(
            f"solve_{kind.answer_form}",
            kind.templates.get(f"{self.name}/solve"),
            examples=examples,
            program=problem.program,
            call=self._notation.call(problem.inputs[0]) + self._notation.then,
            output=problem.outputs[0],
            calls=self._notation.calls(problem, kind.shown(problem, self.rules)),
            opening="" if self._thoughts else self._notation.mark,
        )

    def _example(self, seed: Seed, form: AnswerForm) -> str:
        """A seed with its answer, as the prompt of an attempt and its completion would be."""
        several = form is AnswerForm.PROGRAM
        problem = seed.problem(form, 0, self.rules.code_f_shown if several else 1)
        thought = f"{COMMENT} {seed.thought(form)}\n" if self._thoughts and not several else ""
        call, result = self._notation.call(problem.inputs[0]), self._notation.result(problem.outputs[0])
        match form:
            case AnswerForm.OUTPUT:
                thought = f"\n{thought.rstrip()}" if thought else ""
                return f"{problem.program}\n{call}{thought}{result}{END}"
            case AnswerForm.ARGUMENTS:
                asked = self._templates.fill("wanted", output=problem.outputs[0])
                compared = result if self._notation.compared else ""
                return f"{problem.program}\n{asked}\n{thought}{call}{compared}{END}"
            case AnswerForm.PROGRAM:
                every = self._notation.calls(problem, range(len(problem.inputs)))
                return f"{every}\n{problem.program}{END}"

    def parse_proposal(self, problem_type: str, completion: str) -> Draft:
        program, *blocks = _text(OPENING + completion).split(f"\n{self._notation.mark}")
        if not blocks:
            raise FormatError(f"expected a line that starts with `{self._notation.mark}(` after the program")
        inputs = tuple(self._notation.arguments(block.split(LINE_END, 1)[0]) for block in blocks)
        most = types.problem_type(problem_type).input_count(self.rules)[1]
        return Draft(problem_type, read_program(program), inputs[:most], message="")

    def parse_answer(self, problem: Problem, completion: str) -> str:
        match types.problem_type(problem.problem_type).answer_form:
            case AnswerForm.OUTPUT:
                return self._notation.output(self._after_thought(completion))
            case AnswerForm.ARGUMENTS:
                line = self._after_thought(completion)
                return self._notation.arguments(
                    line.removeprefix(self._notation.mark) if self._thoughts else line
                )
            case AnswerForm.PROGRAM:
                return read_program(_text(OPENING + completion).split(f"\n{self._notation.mark}")[0])

    def thought(self, completion: str) -> str:
        """The comments before an answer."""
        return "\n".join(_comments(_text(completion))) if self._thoughts else ""

    def encode(self, tokenizer: Tokenizer, prompt: str) -> list[int]:
        """The prompt as plain text: no chat template, and no special token spelled by a program."""
        return list(tokenizer(unspelt(tokenizer, prompt), add_special_tokens=True)["input_ids"])

    def _after_thought(self, completion: str) -> str:
        """The line with the answer."""
        lines = _text(completion).split("\n")
        first = len(_comments(_text(completion))) if self._thoughts else 0
        if first == len(lines):
            raise FormatError("expected an answer after the thought")
        return lines[first]


def _text(completion: str) -> str:
    """The completion up to its end."""
    return completion.split(NO_MORE, 1)[0].split(END, 1)[0].rstrip("\n")


def _comments(text: str) -> list[str]:
    """The comments that a text begins with."""
    lines = text.split("\n")
    return lines[: next((at for at, line in enumerate(lines) if not line.startswith(COMMENT)), len(lines))]


class ChatDialect(ReplDialect):
    """The same texts as turns of a chat; as plain text for a base without a template."""

    templated = True

    def encode(self, tokenizer: Tokenizer, prompt: str) -> list[int]:
        if not tokenizer.chat_template:
            return super().encode(tokenizer, prompt)
        asked = unspelt(tokenizer, prompt)
        before, _, opening = asked.rpartition(LINE_END)
        if not opening.startswith((self._notation.mark, OPENING)):  # a benchmark has prompts of its own
            before, opening = asked, ""
        turn = [{"role": "user", "content": before.rstrip()}]
        text = tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
        return list(tokenizer(text + opening, add_special_tokens=False)["input_ids"])


asserting = ReplDialect("assert", ASSERT)
chat = ChatDialect("chat", ASSERT)
session = ReplDialect()
thoughtful = ReplDialect("repl-thoughts", thoughts=True)
