"""Programs whose difficulty is how many statements they have, each of them one easy step.

Two digits ``x`` and ``y`` are changed statement by statement, modulo 5, and both are returned. The *level* of
a program is its number of statements. A program is *tight* on an input if leaving out any one statement changes
the output there, so that no step can be skipped.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from base_model.blocks import choose, choose_weighted

VARIABLES = "xy"
OPERATORS = "+-*"
BASE = 5
CONSTANTS = "1234"
FACTORS = "234"
HEAD = "def f(x,y):"
TAIL = "\n return [x,y]"
KINDS: dict[str, float] = {"constant": 0.5, "variable": 0.35, "factor": 0.15}
"""Frequencies of what a statement does to its variable: add or subtract a constant or the other one, or multiply.

Each can be undone, so that a program gives a different output for each input, and a guess is right one time in 25.
"""

RESERVED = 8
"""One program in so many is in no document."""

State = tuple[int, int]


class Statement(NamedTuple):
    """One step: ``target`` becomes itself plus, minus or times the operand, modulo 5."""

    target: str
    operator: str
    operand: str

    @property
    def source(self) -> str:
        """The line of Python, with its line break and indent."""
        return f"\n {self.target}=({self.target}{self.operator}{self.operand})%{BASE}"


@dataclass(frozen=True, slots=True)
class ExecutedStep:
    """One executed statement: its variable's old value, the operand's value, the new value."""

    statement: Statement
    old: int
    operand: int
    new: int


Statements = tuple[Statement, ...]


def program_text(statements: Statements) -> str:
    """The Python function ``f`` of two digits."""
    return HEAD + "".join(statement.source for statement in statements) + TAIL


def steps(statements: Statements, state: State) -> list[ExecutedStep]:
    """Execute the statements in order; return each with its operand, old and new value."""
    values = dict(zip(VARIABLES, state, strict=True))
    done = []
    for statement in statements:
        old = values[statement.target]
        operand = values[statement.operand] if statement.operand in values else int(statement.operand)
        new = {"+": old + operand, "-": old - operand, "*": old * operand}[statement.operator] % BASE
        values[statement.target] = new
        done.append(ExecutedStep(statement, old, operand, new))
    return done


def output(statements: Statements, state: State) -> State:
    """The two digits that the program returns."""
    values = dict(zip(VARIABLES, state, strict=True))
    for step in steps(statements, state):
        values[step.statement.target] = step.new
    return values["x"], values["y"]


def tight(statements: Statements, state: State) -> bool:
    """True if each single statement, left out, changes the output for this input."""
    end = output(statements, state)
    shorter = (statements[:index] + statements[index + 1 :] for index in range(len(statements)))
    return all(output(rest, state) != end for rest in shorter)


def read_input(arguments: str) -> State:
    """The two numbers of a canonical argument tuple.

    Raises:
        ValueError: it is something else.
    """
    if not _INPUT.fullmatch(arguments):
        raise ValueError(f"expected two small numbers, came {arguments!r}")
    x, y = ast.literal_eval(arguments)
    return x, y


def random_statement(rng: np.random.Generator) -> Statement:
    """A statement of a random kind."""
    target = choose(rng, VARIABLES)
    other = VARIABLES[1 - VARIABLES.index(target)]
    kind = choose_weighted(rng, KINDS)
    if kind == "factor":
        return Statement(target, "*", choose(rng, FACTORS))
    return Statement(target, choose(rng, "+-"), other if kind == "variable" else choose(rng, CONSTANTS))


def random_input(rng: np.random.Generator) -> State:
    """Two digits below `BASE`."""
    return int(rng.random() * BASE), int(rng.random() * BASE)


@dataclass(frozen=True, slots=True)
class SolvedProgram:
    """A program and the inputs that it is tight on; of all statements no two are equal."""

    statements: Statements
    inputs: tuple[State, ...]

    @property
    def program(self) -> str:
        """Its text."""
        return program_text(self.statements)

    @property
    def level(self) -> int:
        """Its number of statements."""
        return len(self.statements)

    @property
    def outputs(self) -> tuple[State, ...]:
        """One for each input."""
        return tuple(output(self.statements, state) for state in self.inputs)


_INPUT = re.compile(r"\(\d{1,9}, \d{1,9}\)")
_SOURCE = re.compile(r"\n (\w)=\(\1([-+*])(\w)\)%\d")


def read_statements(program: str) -> Statements:
    """The statements of a program that this grammar wrote.

    Raises:
        ValueError: it did not.
    """
    found = tuple(Statement(*match.groups()) for match in _SOURCE.finditer(program))
    if program_text(found) != program:
        raise ValueError(f"expected a program of the stepwise grammar, came {program!r}")
    return found


def reserved(statements: Statements) -> bool:
    """True if the program is kept for held-out sets: of two statements and more, one in `RESERVED` by its hash."""
    digest = hashlib.sha256(program_text(statements).encode()).digest()
    return len(statements) > 1 and int.from_bytes(digest[:4], "big") % RESERVED == 0


def trainable(statements: Statements) -> bool:
    """True if a document may show the program."""
    return not reserved(statements)


def with_inputs(rng: np.random.Generator, statements: Statements, count: int) -> SolvedProgram | None:
    """The statements with distinct inputs that they are tight on, or None where these are rare or a line repeats."""
    if len(set(statements)) < len(statements):
        return None
    found: dict[State, None] = {}
    for _ in range(3 * count + 4):
        state = random_input(rng)
        if tight(statements, state):
            found[state] = None
        if len(found) == count:
            return SolvedProgram(statements, tuple(found))
    return None


def sample(
    rng: np.random.Generator,
    level: int,
    inputs: int = 1,
    wanted: Callable[[Statements], bool] = trainable,
) -> SolvedProgram:
    """A random wanted program of the level, tight on so many distinct inputs."""
    while True:
        statements = tuple(random_statement(rng) for _ in range(level))
        found = with_inputs(rng, statements, inputs) if wanted(statements) else None
        if found is not None:
            return found


def relative(rng: np.random.Generator, parent: SolvedProgram, deepest: int, inputs: int = 1) -> SolvedProgram:
    """A program that keeps most of its parent: a statement replaced, one added, or both."""
    while True:
        changed = list(parent.statements)
        way = rng.random()
        if way < 0.5:
            changed[int(rng.random() * len(changed))] = random_statement(rng)
        if way > 0.3:
            changed.insert(int(rng.random() * (len(changed) + 1)), random_statement(rng))
        if len(changed) > deepest or tuple(changed) == parent.statements or reserved(tuple(changed)):
            continue
        found = with_inputs(rng, tuple(changed), inputs)
        if found is not None:
            return found
