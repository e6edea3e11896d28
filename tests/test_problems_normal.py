"""The normal form, novelty and complexity of programs."""

from __future__ import annotations

import ast
import hashlib
import keyword
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from base_model.grammar import sample
from base_model.steps import grammar as steps
from populora_core.problems.complexity import Complexity, measure
from populora_core.problems.normal import CACHE_BYTES, ngrams, normal_tokens, novelty, program_key
from populora_core.problems.parsing import ProgramSyntaxError
from populora_core.problems.unused import without_unused

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
        ("def f(x, y=1):\n return x+y", "def f(x, y=2):\n return x+y"),
        ("def f(x, k=3, y=2):\n return x+y", "def f(x, y=2):\n return x+y"),
        ("def f(x, k=3, *y):\n return y", "def f(x, *y):\n return y"),
        ("def f(x, k=3):\n return f(x-1, 5) if x else 0", "def f(x):\n return f(x-1, 5) if x else 0"),
        ("def f(x):\n if 0:\n  yield\n return x", "def f(x):\n return x"),
        ("y = 1\ndef f(x):\n if 0:\n  y = 2\n return y", "y = 1\ndef f(x):\n return y"),
        ("def f(x):\n if 0:\n  return 1\n else:\n  return 2", "def f(x):\n return 1"),
        ("def f(x):\n if 1:\n  return 1\n return 2", "def f(x):\n return 2"),
        ("def g(x, k=[].append(1)):\n return x\ndef f(x):\n return x", "def f(x):\n return x"),
        ("def len(x):\n return 1\ndef f(x):\n return len(x)", "def f(x):\n return len(x)"),
        ("def f(x):\n return x+0", "def f(x):\n return x"),
        ("def f(x, y):\n return x+y", "def f(x, y):\n return y+x"),
        ("def f(x, y):\n return x==y", "def f(x, y):\n return y==x"),
        *(
            (given.format("x*y"), given.format("y*x"))
            for given in (
                "class A(int):\n def __mul__(self, other): return 1\ndef f(x):\n y = A(x)\n return {}",
                "def f(x, y):\n try:\n  return {}\n except TypeError as error:\n  return str(error)",
            )
        ),
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


@pytest.mark.parametrize(
    "rewritten",
    [
        "def f(x, y):\n if 0:\n  return 1\n z = x*y\n return z",
        "def f(x, y):\n z = x*y\n if False:\n  x.append(y)\n  pass\n return z",
        "def f(x, y, k=3, why='not'):\n z = x*y\n return z",
        "def g(x):\n return x\ndef f(x, y):\n z = x*y\n return z",
        "def g(x):\n return g(x)\ndef f(x, y):\n z = x*y\n return z\ndef h(x, y=2):\n return g(x)",
        "def f(x, y):\n z = y*x\n return z",
    ],
)
def test_what_a_program_does_not_use_and_the_order_of_factors_do_not_change_the_key(rewritten: str) -> None:
    assert program_key(rewritten) == program_key("def f(x, y):\n z = x*y\n return z")
    assert ngrams(rewritten) == ngrams("def f(x, y):\n z = x*y\n return z")


LINES = (
    " x = x*y", " x = y*x", " x = x+y", " x = y+x", " x = x+0", " x = x-y", " y = x == y", " if 0:\n  return y",
    " if 0:\n  y = 1", " if x:\n  y = 2", " y = len(x)", " x = g(x, y)", " x = g(y)", " y = y+k",
)  # fmt: skip
STATEMENTS = (
    "def g(x):\n return {0}(x)", "def h(x, k=2):\n return x", "def k({0}=3):\n return {1}", "def g(x=k):\n return x",
    "@k\ndef h(x):\n return x", "def f(x, y=1):\n return {0}(x) + {1}", "{0} = {1}", "import {0}",
    "def h(x):\n global {0}\n return h", "class k:\n {0} = 1", "def g(x):\n def h():\n  return {0}\n return {1}",
)  # fmt: skip
STATEMENT = st.builds(str.format, st.sampled_from(STATEMENTS), *[st.sampled_from(["f", "g", "h", "k"])] * 2)


def words(statement: ast.AST) -> set[str]:
    """The names in a statement, but those of functions and parameters."""
    nodes = list(ast.walk(statement))
    found = {node.id for node in nodes if isinstance(node, ast.Name)}
    found |= {node.name for node in nodes if isinstance(node, ast.alias)}
    return found.union(*(node.names for node in nodes if isinstance(node, ast.Global)))


def kept(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements without helpers, by the rule as one says it: a plain one that no other statement names goes."""
    for helper in body:
        others = [each for each in body if each is not helper]
        match helper:
            case ast.FunctionDef(name="g" | "h" | "k" as name, decorator_list=[], args=given):
                plain = all(isinstance(each, ast.Constant) for each in given.defaults)
                if plain and not any(name in words(each) for each in others):
                    return kept(others)
    return body


@given(st.lists(STATEMENT, max_size=6))
def test_helpers_go_that_no_other_statement_names(drawn: list[str]) -> None:
    tree = ast.parse("\n".join([*drawn, "def f(x, *y):\n return g(x)"]))
    assert ast.dump(without_unused(tree)) == ast.dump(ast.Module(kept(tree.body), []))


@pytest.mark.parametrize("order", [1, -1])
def test_helpers_that_name_each_other_are_left_out_in_one_walk(order: int) -> None:
    chain = [f"def h{number}(x):\n return h{number + 1}(x)\n" for number in range(10_000)]
    tree = ast.parse("".join([*chain[::order], "def f(x):\n return x"]))
    assert len(without_unused(tree).body) == 1, "a walk for each pair of them takes hours"


VALUES = (0, 1, -2, True, 2.5, -0.0, "a", "ab", [1], (1, 2), None)


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Programs with helpers, defaults and statements of which some are used."""
    helper = draw(st.sampled_from(["", "def g(a, b=2):\n return a*b\n", "def len(a):\n return 3\n"]))
    given = draw(st.sampled_from(["x, y", "x, y=1", "x, y=1, k=3", "x, y=1, k=4", "x, k=3, y=1"]))
    lines = draw(st.lists(st.sampled_from(LINES), max_size=3))
    return "\n".join([f"{helper}def f({given}):", *lines, " return [x, y]"])


def outputs(program: str) -> list[str | None]:
    """What these programs of the tests' own give, None where one raises."""
    space: dict[str, Any] = {}
    exec(program, space)
    found: list[str | None] = []
    for arguments in [*product(VALUES), *product(VALUES, VALUES), *product((1, "a"), (2, "b"), (3,))]:
        try:
            found.append(repr(space["f"](*arguments)))
        except Exception:
            found.append(None)
    return found


@settings(max_examples=30, deadline=None)
@given(st.lists(programs(), min_size=20, max_size=40, unique=True))
def test_programs_that_give_different_outputs_have_different_keys(drawn: list[str]) -> None:
    by_key: dict[str, str] = {}
    for program in drawn:
        other = by_key.setdefault(program_key(program), program)
        pairs = zip(outputs(program), outputs(other), strict=True)
        assert all(one == two for one, two in pairs if None not in (one, two)), f"{program}\n\n{other}"


def test_programs_of_the_bundled_grammars_keep_their_keys() -> None:
    rng = np.random.default_rng(0)
    tiny = [sample(rng, kind).program for kind in ("code_o", "code_f") for _ in range(300)]
    drawn = [tuple(steps.random_statement(rng) for _ in range(3)) for _ in range(300)]
    stepwise = map(steps.program_text, drawn)
    keys = "".join(map(program_key, [*tiny, *stepwise]))
    assert (
        hashlib.sha256(keys.encode()).hexdigest()
        == "e0d6f1bac4c8920335862bb4fcab8a50853366672ccce0ca12792030b1570fcb"
    )


def test_huge_integers_and_every_kind_of_constant_have_a_normal_form():
    program_key("def f(x):\n return x, 0x" + "f" * 6000 + ", 1j, b'a', ..., None, -0.0, 'é'")


def test_the_cache_of_normal_forms_is_bounded_by_all_that_they_hold():
    normal_tokens.cache.clear()
    tokens = normal_tokens("def f(x):\n return [" + ",".join(f"x{i}" for i in range(1000)) + "]")
    assert 50 * len(tokens) < normal_tokens.cache.currsize < normal_tokens.cache.maxsize / 100
    assert normal_tokens.cache.maxsize == CACHE_BYTES


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
