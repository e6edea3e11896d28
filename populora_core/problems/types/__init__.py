"""Problem types. Yours is a class in a package of your own: examples/problem_type is a whole one."""

from populora_core.problems.types.protocol import AnswerForm, ProblemType, TypeRules
from populora_core.problems.types.rules import CodeF, CodeI, CodeO, parts
from populora_core.sandbox.literals import canonical_texts
from populora_core.support.errors import ProblemError
from populora_core.support.registry import Registry

__all__ = ["PROBLEM_TYPES", "AnswerForm", "ProblemType", "TypeRules", "ballot", "problem_type"]

PROBLEM_TYPES = Registry(
    {"code_o": CodeO(), "code_i": CodeI(), "code_f": CodeF()},
    group="populora.problem_types",
    what="problem type",
    setting="propose.types",
    error=ProblemError,
    protocol=ProblemType,
)


def problem_type(name: str) -> ProblemType:
    """The problem type of that name, or at that place.

    Raises:
        ProblemError: there is none, or it lacks a method.
    """
    kind: ProblemType = PROBLEM_TYPES.find(name)
    return kind


def ballot(name: str, answer: str | None) -> str | None:
    """The form in which votes count an answer to such a problem: an output by its value, all else as written.

    The order of entries may decide whether an input is right, never whether an output is.
    """
    if answer is None or problem_type(name).answer_form is not AnswerForm.OUTPUT:
        return answer
    return "\n".join(canonical_texts(parts(answer)))
