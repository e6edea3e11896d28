"""Reading model text: programs are parsed, never run; inputs and outputs are kept as they were written.

Every dialect and problem type reads through these functions, so that there is one meaning of "a program", "an
input" and "an output" whoever wrote them.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Iterator, Sequence

from populora_core.sandbox.literals import (
    NotPlainData,
    argument_tuple,
    parse_arguments,
    written,
)

ENTRY = "f"
MAX_PROGRAM_CHARS = 10_000
MAX_AST_DEPTH = 100  # later passes over the tree recurse: a deeper program would exhaust the stack there


class FormatError(ValueError):
    """Model text that does not follow its dialect's grammar."""


class ProgramSyntaxError(ValueError):
    """A program, found where the grammar wants one, that does not parse."""


def parse_program(program: str) -> ast.Module:
    """The syntax tree of a program.

    Raises:
        ProgramSyntaxError: not Python, longer than `MAX_PROGRAM_CHARS`, or deeper than `MAX_AST_DEPTH`.
    """
    if len(program) > MAX_PROGRAM_CHARS:
        raise ProgramSyntaxError(f"expected at most {MAX_PROGRAM_CHARS} characters, came {len(program)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `3[0]` or an invalid escape in model text is not our warning
            tree = ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProgramSyntaxError(f"{type(error).__name__}: {error}") from None
    if (depth := tree_depth(tree)) > MAX_AST_DEPTH:
        raise ProgramSyntaxError(f"expected nesting of at most {MAX_AST_DEPTH} levels, came {depth}")
    return tree


def tree_depth(tree: ast.AST) -> int:
    """Nodes on the longest path from the root to a leaf; load and store markers are not counted as nodes."""
    depth, level = 0, [tree]
    while level:
        depth += 1
        level = [
            child
            for node in level
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, ast.expr_context)
        ]
    return depth


def entry_function(tree: ast.Module) -> ast.FunctionDef | None:
    """The top-level definition of `f` that a caller would get: the last one."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == ENTRY]
    return functions[-1] if functions else None


def blocks_of(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements that the node itself has, those of a `try` or a `match` among them."""
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield value
        elif isinstance(value, list) and value and isinstance(value[0], ast.ExceptHandler | ast.match_case):
            for part in value:
                yield part.body


def is_string(node: ast.AST) -> bool:
    """True if a statement is only a string, as a docstring is: it counts as no line and does nothing."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case _:
            return False


def read_program(text: str) -> str:
    """A program as the grammar wants it: it parses and defines `f` at top level; nothing is renamed.

    Raises:
        ProgramSyntaxError: it does not parse.
        FormatError: it parses but defines no top-level function `f`.
    """
    program = text.strip("\r\n")
    if entry_function(parse_program(program)) is None:
        raise FormatError(f"expected a program that defines a top-level function `{ENTRY}`")
    return program


def read_arguments(text: str) -> str:
    """The argument tuple of a comma-separated list: `3,[1,2]` gives `(3, [1, 2])`.

    Raises:
        FormatError: not a list of literals.
    """
    try:
        return argument_tuple(text)
    except NotPlainData as error:
        raise FormatError(f"expected the arguments as Python literals: {error}") from None


def read_input(text: str) -> str:
    """The literal of an argument tuple, as written: `(3,[1])` gives `(3, [1])`.

    Raises:
        FormatError: not the literal of a tuple.
    """
    try:
        parse_arguments(text)
        return written(text)
    except NotPlainData as error:
        raise FormatError(str(error)) from None


def read_output(text: str) -> str:
    """The literal of an output, as written.

    Raises:
        FormatError: not one literal.
    """
    try:
        return written(text)
    except NotPlainData as error:
        raise FormatError(f"expected the output as one Python literal: {error}") from None


def blanked(program: str, statements: Sequence[ast.stmt]) -> str:
    """The program with `pass` in the place of these statements, which follow each other in one block.

    Cut out of the text: Python 3.11 cannot write out every f-string that it parses, and no version every number.
    """
    lines = program.replace("\r\n", "\n").replace("\r", "\n").encode().split(b"\n")
    first, last = statements[0], statements[-1]
    top = min([first.lineno, *(each.lineno for each in getattr(first, "decorator_list", ()))]) - 1
    assert last.end_lineno is not None
    before = lines[top][: first.col_offset]
    after = lines[last.end_lineno - 1][last.end_col_offset :]
    return b"\n".join([*lines[:top], before + b"pass" + after, *lines[last.end_lineno :]]).decode()


def name_beyond(program: str) -> str:
    """A name that the program cannot spell, as it would hold its own digest."""
    return f"made_{hashlib.sha256(program.encode()).hexdigest()[:24]}"


def accepts(function: ast.FunctionDef, count: int) -> bool:
    """True if a call with `count` positional arguments fits the signature, as far as the text alone tells."""
    if function.decorator_list:  # a decorator may change the signature
        return True
    arguments = function.args
    most = len(arguments.posonlyargs) + len(arguments.args)
    fewest = most - len(arguments.defaults)
    if any(default is None for default in arguments.kw_defaults):  # a keyword-only argument without a default
        return False
    return fewest <= count and (arguments.vararg is not None or count <= most)


def ignores_arguments(function: ast.FunctionDef) -> bool:
    """True if the body never reads any parameter, so that every input gives the same output."""
    arguments = function.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    parameters += [star for star in (arguments.vararg, arguments.kwarg) if star is not None]
    names = {parameter.arg for parameter in parameters}
    return not any(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names
        for statement in function.body
        for node in ast.walk(statement)
    )
