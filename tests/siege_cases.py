"""Programs of the siege, harmless and hostile, and what each must come to."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from attack_calls import MACHINE_CODE, SYSTEM_CALLS, TRY_CALLS
from attack_traces import FIND_TRACES, LEAVE_TRACES
from attacks import ATTACKS

from base_model.blocks import choose
from base_model.grammar import KINDS, sample_problem
from populora_core.sandbox.jobs import JobResult
from populora_core.sandbox.literals import canonical, canonical_texts, literal
from populora_core.sandbox.status import Status

HOSTILE, FAULTY = 0.1, 0.05  # shares


@dataclass(frozen=True, slots=True)
class Case:
    """A program and what it must come to.

    Attributes:
        outputs: what it must answer where it may end well.
        says: a pattern that its error must match.
    """

    name: str
    program: str
    inputs: tuple[str, ...] = ("(3,)",)
    statuses: frozenset[Status] = frozenset({Status.OK})
    outputs: tuple[str, ...] = ()
    says: str = ""
    hostile: bool = True

    def allows(self, result: JobResult) -> bool:
        """True if the result is one that the program may come to."""
        outputs = self.outputs if result.status is Status.OK else ()
        fits = result.status in self.statuses and canonical_texts(result.outputs) == outputs
        return fits and re.search(self.says, result.error) is not None


def hostile_cases() -> list[Case]:
    """Every attack, and the programs that look for what it left."""
    numbered = platform.machine() == "x86_64"  # system calls are named by number
    known = [Case(each.name, each.program, statuses=each.statuses, says=each.says) for each in ATTACKS]
    untouched = "([], ([1, 3], 2, 0, 4300), 28, True, 5)"
    known.append(Case("leaves traces", LEAVE_TRACES, outputs=("'done'",)))
    known.append(Case("finds traces", FIND_TRACES, outputs=(untouched,)))
    if numbered:
        refused = f"({len(SYSTEM_CALLS)}, {{}})"
        known.append(Case("tries system calls", TRY_CALLS, outputs=(refused,)))
        known += [
            Case(each.name, each.program, statuses=each.statuses, says=each.says) for each in MACHINE_CODE
        ]
    return known


FAULTS = (
    ("divides by zero", "def f(x):\n    return x // (x - x)", Status.ERROR),
    ("does not parse", "def f(x) return x", Status.SYNTAX_ERROR),
    ("defines no f", "g = 1", Status.ERROR),
    ("answers with a set in a set", "def f(x):\n    return frozenset([x])", Status.NOT_PLAIN_DATA),
    ("hashes", "def f(x):\n    return hash(str(x))", Status.NONDETERMINISTIC),
    ("counts its calls", "n = []\ndef f(x):\n    n.append(x)\n    return len(n)", Status.NONDETERMINISTIC),
)


def draw(rng: np.random.Generator, hostile: Sequence[Case]) -> Case:
    """A program, one in ten hostile."""
    lot = rng.random()
    if lot < HOSTILE:
        return choose(rng, hostile)
    if lot < HOSTILE + FAULTY:
        name, program, status = choose(rng, FAULTS)
        return Case(name, program, ("(3,)", "(4,)"), frozenset({status}), hostile=False)
    program, inputs, outputs = sample_problem(rng, choose(rng, KINDS))
    return Case(
        "grammar",
        program,
        tuple(map(literal, inputs)),
        outputs=tuple(map(canonical, outputs)),
        hostile=False,
    )
