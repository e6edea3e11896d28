"""Programs are parsed and looked at, never run."""

from __future__ import annotations

import ast
import contextlib
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora_core.problems.parsing import (
    MAX_AST_DEPTH,
    MAX_PROGRAM_CHARS,
    FormatError,
    ProgramSyntaxError,
    accepts,
    entry_function,
    ignores_arguments,
    parse_program,
    read_arguments,
    read_input,
    read_output,
    read_program,
    tree_depth,
)


def entry(program: str) -> ast.FunctionDef:
    function = entry_function(parse_program(program))
    assert function is not None
    return function


@pytest.mark.parametrize(
    "program",
    [
        "def f(x):\n return x+1",
        "import math\n\nclass A:\n    def __init__(self):\n        pass\n\n"
        "def g(x):\n    return x\n\ndef f(x):\n    def h(y):\n        return y\n    return h(g(x))\n",
        "def f(x):\n    # import os, random, sys.exit\n    return 'import subprocess'",
    ],
)
def test_nested_functions_helpers_classes_and_words_in_comments_are_fine(program):
    assert read_program(program) == program.strip("\n")


@pytest.mark.parametrize(
    "program",
    ["x = 1", "f = lambda x: x", "def g(x):\n return x", "async def f(x):\n return x", "class f: pass"],
)
def test_a_program_without_a_top_level_function_f_is_a_format_error(program):
    with pytest.raises(FormatError):
        read_program(program)


@pytest.mark.parametrize(
    "program",
    [
        "def f(x) return x",
        "def f(x):\n return '\0'",
        "def f(x):\n return " + "(" * 300,
        "def f(x):\n return " + "-" * 9000 + "1",
        "def f(x):\n return " + "+".join(["x"] * 400),
        "def f(x):\n return '\ud800'",
        "def f(x):\n return x" + "#" * MAX_PROGRAM_CHARS,
    ],
)
def test_a_program_that_does_not_parse_within_bounds_is_a_syntax_error(program):
    with pytest.raises(ProgramSyntaxError):
        read_program(program)


def test_a_program_as_deep_as_allowed_is_read():
    program = "def f(x):\n return " + "-" * (MAX_AST_DEPTH - 4) + "x"
    assert tree_depth(parse_program(program)) == MAX_AST_DEPTH


def test_no_warning_escapes_for_doubtful_syntax():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_program("def f(x):\n return 3[0], '\\d', x is 1")


@given(st.text(max_size=60))
def test_arbitrary_text_is_a_program_or_one_of_two_errors(text):
    with contextlib.suppress(FormatError, ProgramSyntaxError):
        read_program(text)


@pytest.mark.parametrize(
    ("signature", "counts"),
    [
        ("x", {1}),
        ("x, y", {2}),
        ("x, y=1", {1, 2}),
        ("x, /, y, *z", {2, 3, 4}),
        ("*x", {0, 1, 2, 3, 4}),
        ("x, *, y=1", {1}),
        ("x, *, y", set()),
        ("x, **y", {1}),
        ("", {0}),
    ],
)
def test_the_signature_says_how_many_arguments_fit(signature, counts):
    function = entry(f"def f({signature}):\n return 1")
    assert {count for count in range(5) if accepts(function, count)} == counts


def test_a_decorated_signature_is_left_to_the_sandbox():
    assert accepts(entry("@d\ndef f():\n return 1"), 3)


def test_the_last_of_several_definitions_of_f_is_the_entry():
    assert accepts(entry("def f(x):\n return x\ndef f(x, y):\n return x"), 2)


@pytest.mark.parametrize(
    ("program", "ignored"),
    [
        ("def f(x):\n return 5", True),
        ("def f(x):\n x = 5\n y = 2\n return y", True),
        ("def f():\n return 5", True),
        ("def f(x, y):\n return y", False),
        ("def f(*x):\n return len(x)", False),
        ("def f(x):\n def g():\n  return x\n return g()", False),
        ("def f(x):\n return [i for i in x]", False),
    ],
)
def test_a_function_that_reads_no_parameter_ignores_its_arguments(program, ignored):
    assert ignores_arguments(entry(program)) is ignored


def test_arguments_and_outputs_are_read_as_they_were_written():
    assert read_arguments("3,{'b':1,'a':2}") == "(3, {'b': 1, 'a': 2})"
    assert read_input("({'b':1,'a':{8,0}},)") == "({'b': 1, 'a': {8, 0}},)"
    assert read_output(" {3,1} ") == "{3, 1}"


@pytest.mark.parametrize("read", [read_arguments, read_output])
def test_an_expression_in_place_of_a_literal_is_a_format_error(read):
    with pytest.raises(FormatError):
        read("1+1")
