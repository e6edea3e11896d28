"""Problem types. A new verifiable type is one module here that registers itself, plus its template files."""

from populora_core.problems.types.registry import (
    PROBLEM_TYPES,
    AnswerForm,
    ProblemType,
    TypeRules,
    problem_type,
    register,
)
from populora_core.problems.types.rules import CodeF, CodeI, CodeO

__all__ = ["PROBLEM_TYPES", "AnswerForm", "ProblemType", "TypeRules", "problem_type", "register"]

for _kind in (CodeO(), CodeI(), CodeF()):
    register(_kind)
