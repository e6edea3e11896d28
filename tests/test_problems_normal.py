"""The normal form, novelty and complexity of programs."""

from __future__ import annotations

import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora_core.problems.complexity import Complexity, measure
from populora_core.problems.normal import ngrams, novelty, program_key
from populora_core.problems.parsing import ProgramSyntaxError

LOOP = """def f(x, y):
    total = 0
    for item in y:
        if item > x and item:
            total += item
        else:
            total = 1 - total
    return total
"""

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,3}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name) and name not in {"f", "len"}
)


@given(st.lists(NAMES, min_size=5, max_size=5, unique=True))
def test_renaming_variables_parameters_and_helpers_does_not_change_the_key(names):
    program = (
        "def {4}({0}):\n return len({0})\n"
        "def f({0}, {1}):\n {2} = [{3} for {3} in {0} if {3}]\n return {4}({2})+{1}"
    )
    assert program_key(program.format(*names)) == program_key(program.format("x", "y", "u", "i", "h"))


@pytest.mark.parametrize(
    "dressed",
    [
        "def f(a):\n    '''Doubles.'''\n    return a * 2  # twice\n",
        "def f(x: int) -> int:\n\n\n    return (x * 2)",
        "'''A module.'''\ndef f(x):\n pass\n 'note'\n return x*2",
    ],
)
def test_comments_docstrings_annotations_and_layout_do_not_change_the_key(dressed):
    assert program_key(dressed) == program_key("def f(x):\n return x*2")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("def f(x, y):\n return x-y", "def f(x, y):\n return y-x"),
        ("def f(x):\n return x+1", "def f(x):\n return x+True"),
        ("def f(x):\n return x+1", "def f(x):\n return x+1.0"),
        ("def f(x):\n return x.a", "def f(x):\n return x.b"),
        ("def f(x):\n return x[1:]", "def f(x):\n return x[:1]"),
        ("def f(x):\n return len(x)", "def f(x):\n return sum(x)"),
        ("def f(x):\n return len(x)", "def f(x, len):\n return len(x)"),
        ("def f(x):\n return [x for x in x]", "def f(x):\n return [y for x in x for y in x]"),
        (
            "def g(a, b):\n return a-b\ndef f(x):\n return g(a=x, b=1)",
            "def g(b, a):\n return b-a\ndef f(x):\n return g(a=x, b=1)",
        ),
        (
            "def g(**a):\n return a\ndef f(x):\n return g(**x)",
            "def g(**a):\n return a\ndef f(x):\n return g(_=x)",
        ),
        ("def f(x, *y):\n return y", "def f(x, y):\n return y"),
        (
            "def f(x):\n y = 1\n def g():\n  y = x\n g()\n return y",
            "def f(x):\n y = 1\n def g():\n  nonlocal y\n  y = x\n g()\n return y",
        ),
        ("def f(x, y=1):\n return x", "def f(x, y=2):\n return x"),
        ("def f(x):\n return f'{x}'", "def f(x):\n return f'{x!r}'"),
        ("import math as m\ndef f(x):\n return m.pi", "import cmath as m\ndef f(x):\n return m.pi"),
        (
            "class A:\n y = 1\n z = 2\ndef f(x):\n return A.y",
            "class A:\n z = 1\n y = 2\ndef f(x):\n return A.y",
        ),
        ("def f(x):\n return (y := x) + y", "def f(x):\n y = x\n return x + y"),
        (
            "def g(a, b):\n return a-b\ndef f(x):\n return g(**{'a': x, 'b': 1})",
            "def g(b, a):\n return b-a\ndef f(x):\n return g(**{'a': x, 'b': 1})",
        ),
        (
            "from functools import singledispatch as s\n@s\ndef g(x): return 0\n@g.register\n"
            "def h(x: int): return 1\ndef f(x):\n return g(x)",
            "from functools import singledispatch as s\n@s\ndef g(x): return 0\n@g.register\n"
            "def h(x: str): return 1\ndef f(x):\n return g(x)",
        ),
    ],
)
def test_programs_that_may_compute_different_things_have_different_keys(left, right):
    assert program_key(left) != program_key(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("def f(x):\n return [x for x in x]", "def f(y):\n return [z for z in y]"),
        ("def f(x):\n return (lambda x: x+1)(x)", "def f(x):\n return (lambda y: y+1)(x)"),
        ("def f(x):\n def g():\n  return x\n return g()", "def f(u):\n def h():\n  return u\n return h()"),
        (
            "def f(x):\n def g():\n  x = 1\n  return x\n return g()+x",
            "def f(x):\n def g():\n  y = 1\n  return y\n return g()+x",
        ),
        ("def f(x):\n return {x: y for x, y in x}", "def f(p):\n return {k: v for k, v in p}"),
    ],
)
def test_names_are_followed_through_scopes(left, right):
    assert program_key(left) == program_key(right)


def test_huge_integers_and_every_kind_of_constant_have_a_normal_form():
    program_key("def f(x):\n return x, 0x" + "f" * 6000 + ", 1j, b'a', ..., None, -0.0, 'é'")


def test_novelty_is_one_for_the_first_program_and_zero_for_a_copy():
    seen = ngrams(LOOP)
    assert novelty(LOOP, frozenset()) == 1.0
    assert novelty(LOOP, seen) == 0.0


def test_novelty_looks_through_names_and_constants():
    seen = ngrams("def f(x):\n return x*4+5")
    assert novelty("def f(y):\n return y*3+8", seen) == 0.0
    assert 0.0 < novelty("def f(y):\n return sorted(y)*3+8", seen) < 1.0


def test_complexity_of_a_small_loop():
    assert measure(LOOP) == Complexity(
        ast_depth=7, cyclomatic_complexity=4, lines_of_code=7, variable_count=4
    )


def test_complexity_counts_every_function_once():
    program = "def g(x):\n return 1 if x else 2\ndef f(x):\n def h(y):\n  return y and x\n return g(h(x))\n"
    assert measure(program).cyclomatic_complexity == 2 + 1 + 2


def test_complexity_counts_methods_of_classes_inside_functions():
    program = "def f(x):\n class A:\n  def g(self):\n   return 1 if x else 2\n return A().g()"
    assert measure(program).cyclomatic_complexity == 1 + 2


def test_lines_are_statements_however_they_are_laid_out():
    flat = "def f(x):\n y = [x, x[1:], {1: 2}]; return y"
    spread = '"""Text."""\n\ndef f(x):\n    # note\n    y = [\n  x,\n  x[1:],\n  {1: 2},\n    ]\n    return y'
    assert measure(flat).lines_of_code == measure(spread).lines_of_code == 3


def test_variables_are_counted_by_distinct_name():
    program = (
        "def f(a, *b, c=1, **d):\n"
        "    e = a\n"
        "    for g, h in b:\n        e += g\n"
        "    with a as i:\n        pass\n"
        "    try:\n        pass\n    except ValueError as j:\n        pass\n"
        "    k: int = [l for l in a if (m := l)]\n"
        "    match a:\n        case [n, *o]:\n            pass\n        case {1: p, **q}:\n            pass\n"
        "    return len(e)\n"
    )
    assert measure(program).variable_count == len("abcdeghijklmnopq")


def test_a_program_that_does_not_parse_has_no_normal_form_and_no_complexity():
    for function in (program_key, measure, ngrams):
        with pytest.raises(ProgramSyntaxError):
            function("def f(")
