"""Countdown: reach a number with given ones. A whole problem type, outside of PopuLoRA.

    pip install -e examples/problem_type
    populora run --preset quick --set 'propose.types=["countdown"]'

A teacher writes a function that only calculates with its arguments, and the numbers it is called with; the sandbox
finds the target. A student sees numbers and target, and writes a function of its own that reaches it.
"""

from __future__ import annotations

import ast

from populora_core import (
    AnswerForm,
    AttemptVerdict,
    Draft,
    Job,
    JobResult,
    OneExample,
    Problem,
    ProposalVerdict,
    TypeRules,
    entry_function,
    job_for,
    judge_outputs,
    parse_arguments,
    parse_program,
)

SIGNS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv)


class Countdown(OneExample):
    """One program, one input, its output: `OneExample` has the methods that need no word here."""

    answer_form = AnswerForm.PROGRAM
    version = 1
    templates = {  # noqa: RUF012
        "compact/propose": "<po>$references<new>",
        "compact/solve": "<sf>$examples",
        "instruct/propose": "Write a Python function `f` of two to six arguments that returns one expression of them,"
        " with + - * // and brackets, each argument used at most once and no other number; and an input of whole"
        " numbers. Another programmer sees your numbers and the result, and must reach it.\n\n$references\n\n"
        "Reason first, close your reasoning with </think>, and give exactly this:\n\n<answer>\n```python\n"
        "def f(a, b, c):\n    return (a + b) * c\n```\n```input\n3, 4, 5\n```\n</answer>",
        "instruct/solve": "Reach the number in the output block with those in the input block: + - * // and brackets,"
        " each number at most once, no other number.\n\n$examples\n\nReason first, close your reasoning with </think>,"
        " and give a function of the numbers, in their order:\n\n<answer>\n```python\ndef f(a, b, c):\n"
        "    return (a + b) * c\n```\n</answer>",
    }

    def refuse(
        self, draft: Draft, rules: TypeRules, outputs: tuple[str, ...] | None = None
    ) -> ProposalVerdict | None:
        if refused := super().refuse(draft, rules, outputs):
            return refused
        numbers = parse_arguments(draft.inputs[0])
        if not calculates(draft.program) or not all(type(number) is int for number in numbers):
            return ProposalVerdict.FORMAT_ERROR
        return ProposalVerdict.TRIVIAL if outputs and outputs[0] in map(str, numbers) else None

    def answer_job(self, problem: Problem, answer: str, rules: TypeRules) -> Job | None:
        return job_for(problem, answer, problem.inputs, answer)

    def judge(self, problem: Problem, answer: str, result: JobResult | None) -> AttemptVerdict:
        return judge_outputs(result, problem.outputs) if calculates(answer) else AttemptVerdict.WRONG


def calculates(program: str) -> bool:
    """True if it is one function that returns one expression of its arguments, each used at most once."""
    tree = parse_program(program)
    function = entry_function(tree)
    if function is None or len(tree.body) != 1 or function.decorator_list:
        return False
    names = [argument.arg for argument in function.args.args]
    match function.body:
        case [ast.Return(value=ast.BinOp() as expression)] if ast.unparse(function.args) == ", ".join(names):
            used = [node for node in ast.walk(expression) if isinstance(node, ast.Name)]
            allowed = (ast.BinOp, ast.Name, ast.expr_context, *SIGNS)
            return (
                all(isinstance(node, allowed) for node in ast.walk(expression))
                and len({node.id for node in used}) == len(used)
                and {node.id for node in used} <= set(names)
            )
    return False
