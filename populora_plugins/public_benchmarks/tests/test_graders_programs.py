"""Which part of a completion is the program, and what stands beside it without deciding the verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator
from textwrap import indent

import pytest
from benchmark_rows import MBPP_PLUS, Row, code_row, fenced, functional, stdin
from sandboxed import BACKEND_NAMES, opened

from populora_core.benchmarks.benchmark import ItemScore, Response, benchmark
from populora_core.sandbox.backends import SandboxKind, open_sandbox
from populora_core.sandbox.jobs import Sandbox, python_of
from populora_plugins.public_benchmarks.code_tests import code_limits
from populora_plugins.public_benchmarks.programs import (
    code_blocks,
    defines,
    function_code,
    needed,
    whole_program,
)

FUNCTION = "def drop_vowels(text):\n    return ''.join(c for c in text if c not in 'aeiou')"
WRONG = FUNCTION.replace("aeiou", "aeio")
HEAD = 'def drop_vowels(text: str) -> str:\n    """Remove the vowels a, e, i, o and u."""\n'
VOWELS: Row = {
    "task_id": "HumanEval/9001",
    "prompt": HEAD,
    "entry_point": "drop_vowels",
    "canonical_solution": "    return ''.join(c for c in text if c not in 'aeiou')\n",
    "base_input": [["house"], [""], ["xyz"]],
    "plus_input": [],
    "atol": 0,
    "contract": "",
}
TOTAL = code_row(1, public_test_cases=json.dumps(stdin(("3\n1 2 3\n", "6\n"), ("1\n-5\n", "-5\n"))))
RAISED = code_row(
    2,
    public_test_cases=json.dumps(functional(("[1, 2]\n3", "[4, 5]"))),
    starter_code="class Solution:\n    def raised(self, xs: List[int], k: int) -> List[int]:\n        ",
    metadata=json.dumps({"func_name": "raised"}),
)
TOTALLED = "n = int(input())\nprint(sum(map(int, input().split())))"
DEPTH = code_row(3, public_test_cases=json.dumps(stdin(("1000\n", "1000\n"))))
DEEP = code_row(4, public_test_cases=json.dumps(stdin(("5000\n", "5000\n"))))
RECURSION = (
    "import sys\nfrom functools import lru_cache\nsys.setrecursionlimit(10**6)\n\n\n@lru_cache(None)\n"
    "def depth(n):\n    return 0 if n == 0 else 1 + depth(n - 1)\n\n\nprint(depth(int(input())))"
)
CLASS = "class Solution:\n    def raised(self, xs, k):\n        return [x + k for x in xs]"


def tagged(text: str, tag: str = "") -> str:
    return f"```{tag}\n{text}\n```\n"


ROUND = {
    "alone": fenced("FUNCTION"),
    "asks for input": fenced("FUNCTION\n\nprint(drop_vowels(input('word: ')))"),
    "a wrong assertion": fenced("FUNCTION\n\nassert drop_vowels('house') == 'hse'"),
    "exits": fenced("FUNCTION\n\nimport sys\nsys.exit(0)"),
    "unittest": fenced(
        "import unittest\n\nFUNCTION\n\nclass T(unittest.TestCase):\n    pass\n\n"
        "if __name__ == '__main__':\n    unittest.main()"
    ),
    "doctest": fenced("import doctest\nFUNCTION\n\nif __name__ == '__main__':\n    doctest.testmod()"),
    "unused numpy": fenced("import numpy as np\nFUNCTION"),
    "prose, no fence": "Here you are:\n\nFUNCTION\n\nIt removes the vowels.",
    "only the closing fence": "FUNCTION\n```\n",
    "tilde fence": "~~~python\nFUNCTION\n~~~\n",
    "fence after text": "Answer: ```python\nFUNCTION\n```\n",
    "a usage block after it": fenced("FUNCTION") + "Use:\n" + fenced("print(drop_vowels('house'))"),
    "its output after it": fenced("FUNCTION") + "Gives:\n" + tagged("hs"),
    "a test that imports it": fenced("FUNCTION")
    + fenced("from solution import drop_vowels\ndrop_vowels('')"),
    "prose that begins with a fence": "I will use\n``` fences as asked.\n\n" + fenced("FUNCTION"),
    "a titled fence": '```python title="main.py"\nFUNCTION\n```\nIt removes the vowels.',
    "a tag behind the fence": "```python\nFUNCTION\n```</answer>",
    "Windows line endings": fenced("FUNCTION").replace("\n", "\r\n"),
}
AFTER = {
    "nothing": "",
    "sample output": tagged("6"),
    "tagged text": tagged("3\n1 2 3", "text"),
    "a shell line": tagged("python3 main.py < in.txt", "bash"),
    "complexity": tagged("Time: O(n), space: O(1)"),
    "a check": fenced("assert sum([1, 2, 3]) == 6"),
    "a use": fenced("print(Solution().raised([1], 2))"),
    "a test that imports it": fenced("from solution import Solution, raised\nassert Solution"),
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox("auto", code_limits(3.0), workers=2) as opened:
        yield opened


def scores(sandbox: Sandbox, name: str, row: Row, texts: list[str]) -> list[ItemScore]:
    measured = benchmark(name)
    items = measured.load([row]) * len(texts)
    return list(measured.grade(items, list(map(Response, texts)), "instruct", sandbox))


def correct(sandbox: Sandbox, name: str, row: Row, texts: list[str]) -> list[bool | None]:
    return [score.correct for score in scores(sandbox, name, row, texts)]


@pytest.mark.sandbox
def test_what_stands_round_a_function_decides_nothing(sandbox: Sandbox) -> None:
    for function, right in ((FUNCTION, True), (WRONG, False)):
        texts = [text.replace("FUNCTION", function) for text in ROUND.values()]
        assert correct(sandbox, "humaneval_plus", VOWELS, texts) == [right] * len(texts)


@pytest.mark.sandbox
def test_what_comes_after_a_program_is_not_taken_for_it(sandbox: Sandbox) -> None:
    for program, right in ((TOTALLED, True), (TOTALLED.replace("sum", "max"), False)):
        texts = [fenced(program) + "\nThat is all:\n" + text for text in AFTER.values()]
        assert correct(sandbox, "livecodebench", TOTAL, texts) == [right] * len(texts)
    for program, right in ((CLASS, True), (CLASS.replace("x + k", "x - k"), False)):
        texts = [fenced(program) + "\nThat is all:\n" + text for text in AFTER.values()]
        assert correct(sandbox, "livecodebench", RAISED, texts) == [right] * len(texts)


@pytest.mark.sandbox
def test_a_fence_may_have_a_title_a_tag_behind_it_or_windows_line_endings(sandbox: Sandbox) -> None:
    plain = fenced(TOTALLED)
    texts = [
        plain.replace("python", 'python title="main.py"') + "It adds.",
        plain.rstrip() + "</answer>",
        plain.replace("\n", "\r\n"),
        f"I will use\n``` fences as asked.\n\n{plain}",
    ]
    assert correct(sandbox, "livecodebench", TOTAL, texts) == [True] * len(texts)


@pytest.mark.sandbox
def test_a_program_may_write_an_integer_of_more_digits_than_python_does_by_default(sandbox: Sandbox) -> None:
    row = code_row(5, public_test_cases=json.dumps(stdin(("6000\n", f"1{'0' * 6000}\n"))))
    texts = [fenced("print(10 ** int(input()))"), fenced("print(10 ** int(input()) + 1)")]
    assert correct(sandbox, "livecodebench", row, texts) == [True, False]


@pytest.mark.sandbox
def test_a_corrected_program_replaces_the_draft(sandbox: Sandbox) -> None:
    drafts = [fenced(TOTALLED.replace("sum", "max")), fenced(TOTALLED)]
    assert correct(sandbox, "livecodebench", TOTAL, ["".join(drafts), "".join(reversed(drafts))]) == [
        True,
        False,
    ]
    drafts = [fenced(WRONG), fenced(FUNCTION)]
    assert correct(sandbox, "humaneval_plus", VOWELS, ["".join(drafts), "".join(reversed(drafts))]) == [
        True,
        False,
    ]


@pytest.mark.sandbox
def test_a_missing_module_is_named_and_a_crash_is_not(sandbox: Sandbox) -> None:
    harmless = ("argparse", "logging", "pathlib", "platform", "unittest")
    missing = ("asyncio", "numpy", "sortedcontainers", "subprocess", "tempfile")
    texts = [fenced(f"import {name}\n{TOTALLED}") for name in (*harmless, *missing)] + [fenced("1 / 0")]
    *found, crash = scores(sandbox, "livecodebench", TOTAL, texts)
    assert [score.correct for score in found] == [True] * len(harmless) + [False] * len(missing)
    assert [score.detail for score in found[len(harmless) :]] == [
        f"test 0: runtime_error: the sandbox has no module {name}" for name in missing
    ]
    assert crash.detail == "test 0: runtime_error"


@pytest.mark.sandbox
@pytest.mark.parametrize("kind", BACKEND_NAMES)
def test_recursion_through_c_code_is_right_as_deep_as_this_python_goes(kind: SandboxKind) -> None:
    off = RECURSION.replace("0 if", "1 if")
    with opened(kind, code_limits(3.0)) as sandbox:
        python = python_of(sandbox.identity).rpartition(".")[0]
        shallow = correct(sandbox, "livecodebench", DEPTH, [fenced(RECURSION), fenced(off)])
        deep = [
            (score.verdict, score.detail)
            for score in scores(sandbox, "livecodebench", DEEP, [fenced(RECURSION), fenced(off)])
        ]
    assert shallow == [True, False]
    if tuple(map(int, python.split("."))) < (3, 12):
        assert deep == [("correct", ""), ("wrong", "test 0 is wrong")]
    else:
        assert deep == [("runtime_error", f"test 0: runtime_error: RecursionError, Python {python}")] * 2


def test_code_blocks_are_found_in_order_whatever_their_language() -> None:
    text = "a\n```python\nx = 1\n```\nb\n```\ny = 2\n```\n~~~\nt = 0\n~~~\n```\n```\nso: ```py\nz = 3"
    assert code_blocks(text) == ["x = 1", "y = 2", "t = 0", "z = 3"]


def test_a_fence_inside_a_docstring_closes_nothing() -> None:
    inside = 'def f():\n    """Example:\n\n    ```\n    f()\n    ```\n    """'
    assert code_blocks(f"```python\n{inside}\n```\nThen:\n```\n1\n```") == [inside, "1"]
    assert code_blocks("```\nx = '''\n```\n1\n```\n2\n```") == ["x = '''", "2"]  # no fence makes it parse


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def g(): ...", True),
        ("g = lambda: 1", True),
        ("class g: ...", True),
        ("from math import gcd as g", True),
        ("class A:\n    def g(self): ...", False),
        ("def h(): ...", False),
        ("def g(:", True),  # a broken program still says what it would define
        ("", False),
    ],
)
def test_whether_code_defines_a_function(code: str, found: bool) -> None:
    assert defines(code, "g") is found


@pytest.mark.parametrize(
    ("before", "margin"), [("1. The function:\n\n   ", "   "), ("- ", "  "), ("1. - ", "     "), ("    ", "")]
)
def test_a_block_in_a_list_loses_the_indentation_of_its_fence(before: str, margin: str) -> None:
    text = f"{before}```python\n{indent(FUNCTION, margin)}\n{margin}```\n\nIt removes them."
    assert function_code(text, "drop_vowels") == FUNCTION


@pytest.mark.sandbox
@pytest.mark.parametrize(("before", "margin"), [("", ""), (" ", " "), ("- ", "  "), ("    ", "    ")])
def test_a_body_keeps_its_indentation_wherever_its_fence_stands(
    sandbox: Sandbox, before: str, margin: str
) -> None:
    body = indent("kept = [c for c in text if c not in 'aeiou']\nreturn ''.join(kept)", "    ")
    assert correct(sandbox, "humaneval_plus", VOWELS, [f"{before}```python\n{body}\n{margin}```\n"]) == [True]


def test_a_function_keeps_what_it_needs_and_no_more() -> None:
    kept = [
        "from __future__ import annotations",
        "import sys",
        "from functools import cache as remembered",
        "sys.setrecursionlimit(10**6)",
        "from sys import set_int_max_str_digits",
        "set_int_max_str_digits(0)",
        "from decimal import getcontext",
        "getcontext().prec = 60",
        "table = {0: 'ü'}; seen = []",
        "for i in range(3):\n    table[i + 1] = i",
        "seen.append(1)",
        "del seen[0]",
        "for k in range(3):\n    if k:\n        seen.append(k)",
        "[seen.append(k) for k in range(3)]",
        "try:\n    from math import prod\nexcept ImportError:\n    prod = None",
        "class Node:\n    depth = LIMIT",
        "LIMIT = 3",
        "@remembered\ndef helper(n):\n    return Node, prod, table, seen",
        "def g(n):\n    return helper(n) or sys.maxsize",
    ]
    dropped = [
        "import numpy",
        "other = numpy.zeros(3)",
        "print(g(1))",
        "assert g(1) == 2",
        "g(1)",
        "sys.exit()",
        "for line in sys.stdin:\n    sys.stdout.write(line)",
        "[sys.stdout.write(str(k)) for k in range(3)]",
        "if __name__ == '__main__':\n    g = None",
        "def unused():\n    return other",
    ]
    assert needed("\n".join([*kept, *dropped]), "g").split("\n") == "\n".join(kept).replace("; ", "\n").split(
        "\n"
    )


def test_what_a_call_fills_is_kept_with_the_call() -> None:
    kept = [
        "import heapq",
        "from bisect import insort",
        "heap, table, primes, code = [3, 1], [], [], 1",
        "def sieve(n):\n    for i in range(n):\n        primes.append(i)",
        "def bound():\n    global LIMIT\n    LIMIT = 3",
        "sieve(100)",
        "bound()",
        "heapq.heapify(x=heap)",
        "for x in (3, 1):\n    insort(table, x)",
        "def g(n):\n    found = heap, table, primes, code, LIMIT\n    return [y for y in found]",
    ]
    dropped = [
        "import doctest, sys, time, turtle",
        "n, found, y = 5, [1], [2]",
        "time.sleep(n)",
        "turtle.goto(found)",
        "turtle.goto(y)",
        "def apart():\n    primes = []\n    primes.append(1)",
        "def asked():\n    primes.append(input())",
        "apart()",
        "asked()",
        "g(1)",
        "sys.exit(code)",
        "doctest.run_docstring_examples(g, globals())",
    ]
    assert needed("\n".join([*kept, *dropped]), "g") == "\n".join(kept)


@pytest.mark.sandbox
def test_a_comment_at_the_margin_ends_no_whole_function_of_a_base_model(sandbox: Sandbox) -> None:
    measured, row = benchmark("mbpp_plus"), MBPP_PLUS[0]
    text = f"\n# The elements of both.{row['canonical_solution']}"
    (score,) = measured.grade(measured.load([row]), [Response(text)], "compact", sandbox)
    assert score.correct


def test_a_function_with_the_name_of_an_import_is_the_one_that_counts() -> None:
    code = "from heapq import merge\ndef merge(a, b):\n    return [*a, *b]"
    assert needed(code, "merge") == code


def test_code_without_the_function_or_that_does_not_parse_stays() -> None:
    assert needed("x = 1\nprint(x)", "g") == "x = 1\nprint(x)"
    assert needed("def g(:", "g") == "def g(:"
    deep = f"x = {'+'.join('1' * 2_000)}\ndef g():\n    return 1"
    assert needed(deep, "g") == deep


def test_no_function_is_no_program_and_the_last_that_parses_counts() -> None:
    assert function_code("I cannot.", "g") is None
    blocks = [fenced("def g():\n    return 1"), fenced("def g():\n    return 2"), fenced("def g(:")]
    assert function_code("".join(blocks), "g") == "def g():\n    return 2"


def test_a_whole_program_reads_or_at_least_writes() -> None:
    assert whole_program(["print(input())", "print(f([1]))", "6"]) == "print(input())"
    assert whole_program(["print(6)", "6", "1 2"]) == "print(6)"
    assert whole_program(["1 2", "2 3"]) == "2 3"


def test_a_function_that_is_whole_counts_where_its_block_was_cut_behind_it() -> None:
    whole = "def f(x):\n    return x + 1"
    cut = f"So:\n\n```python\nimport math\n\n{whole}\n\n# An example\nassert f([1, [2"
    assert function_code(cut, "f") == whole
    assert function_code(f"```python\n{whole[:-6]}", "f") is not None  # cut inside: judged, and wrong
