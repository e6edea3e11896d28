"""A handful of rows of our own in each public benchmark's published schema, odd ones included, and solutions."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from typing import Any

Row = dict[str, Any]


def pack(cases: list[dict[str, str]]) -> str:
    """Private test cases as LiveCodeBench packs them."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


def stdin(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"input": given, "output": wanted, "testtype": "stdin"} for given, wanted in pairs]


def functional(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"input": given, "output": wanted, "testtype": "functional"} for given, wanted in pairs]


def code_row(number: int, **fields: Any) -> Row:
    return {
        "question_title": f"Fixture {number}",
        "question_content": "Says what is wanted.",
        "platform": "atcoder",
        "question_id": f"fixture_{number}",
        "contest_id": "fixture",
        "contest_date": "2024-01-01T00:00:00",
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": "[]",
        "private_test_cases": "",
        "metadata": "{}",
    } | fields


HUMANEVAL_PLUS: list[Row] = [
    {
        "task_id": "HumanEval/9001",
        "prompt": "from typing import List\n\n\ndef mean_of(values: List[float]) -> float:\n"
        '    """The mean of the values; 0.0 for none.\n    >>> mean_of([1.0, 2.0])\n    1.5\n    """\n',
        "entry_point": "mean_of",
        "canonical_solution": "    return sum(values) / len(values) if values else 0.0\n",
        "base_input": [[[1.0, 2.0]], [[3]]],
        "plus_input": [[[]], [[0.1, 0.2, 0.3]], [[1e300, 1e300]]],
        "atol": 0,
        "contract": "\n    assert isinstance(values, list)  # $_CONTRACT_$\n",
    },
    {
        "task_id": "HumanEval/9002",
        "prompt": 'def swap_ends(text: str) -> str:\n    """Swap the first and the last character, ü too."""\n',
        "entry_point": "swap_ends",
        "canonical_solution": "    return text if len(text) < 2 else text[-1] + text[1:-1] + text[0]\n",
        "base_input": [["abc"], [""]],
        "plus_input": [["über"], ["a"], ["\u2028\n\x00'\""], ["😀b"]],
        "atol": 0,
        "contract": "",
    },
    {
        "task_id": "HumanEval/9003",
        "prompt": 'def power_of_two(n: int):\n    """2 to the n, with the divisors of n as a set."""\n',
        "entry_point": "power_of_two",
        "canonical_solution": "    return 2**n, {d for d in range(1, n + 1) if n % d == 0}\n",
        "base_input": [[3]],
        "plus_input": [[0], [12], [9000]],
        "atol": 0,
        "contract": "",
    },
    {
        "task_id": "HumanEval/9004",
        "prompt": "import math\n\n\ndef poly(xs: list, x: float):\n    return sum(c * math.pow(x, i) for i, c in "
        'enumerate(xs))\n\n\ndef find_zero(xs: list):\n    """A zero of the polynomial."""\n',
        "entry_point": "find_zero",
        "canonical_solution": "    low, high = -1000.0, 1000.0\n    while high - low > 1e-12:\n"
        "        middle = (low + high) / 2"
        "\n        if poly(xs, low) * poly(xs, middle) <= 0:\n            high = middle\n        else:\n"
        "            low = middle\n        if middle in (low, high) and high - low < 1e-9:\n            break\n"
        "    return low\n",
        "base_input": [[[1, 2]]],
        "plus_input": [[[-6, 11, -6, 1]]],
        "atol": 0.0001,
        "contract": "",
    },
]

MBPP_PLUS: list[Row] = [
    {
        "task_id": "Mbpp/2",
        "prompt": '"""\nWrite a function to find the elements that two tuples share.\n'
        'assert set(similar_elements((3, 4), (4, 5))) == {4}\n"""\n',
        "entry_point": "similar_elements",
        "canonical_solution": "\ndef similar_elements(a, b):\n    return tuple(set(a) & set(b))\n",
        "base_input": [[[3, 4, 5, 6], [5, 7, 4, 10]]],
        "plus_input": [[[], []], [[1, 2], [2, 1]]],
        "atol": 0,
        "contract": "\n  assert isinstance(a, tuple)  # $_CONTRACT_$\n",
    },
    {
        "task_id": "Mbpp/252",
        "prompt": '"""\nWrite a function to turn a complex number into polar coordinates.\n"""\n',
        "entry_point": "to_polar",
        "canonical_solution": "\nimport cmath\n\ndef to_polar(number):\n    return cmath.polar(number)\n",
        "base_input": [["1"], ["(-2-0.5j)"]],
        "plus_input": [["1j"]],
        "atol": 0,
        "contract": "",
    },
    {
        "task_id": "Mbpp/793",
        "prompt": '"""\nWrite a function to find the last place of a value; -1 for none.\n"""\n',
        "entry_point": "last_place",
        "canonical_solution": "\ndef last_place(items, value):\n"
        "    return max((i for i, item in enumerate(items) if item == value), default=-1)\n",
        "base_input": [[[1, 2, 2], 2], [[1], 3]],
        "plus_input": {},
        "atol": 0,
        "contract": "",
    },
    {
        "task_id": "Mbpp/9004",
        "prompt": '"""\nWrite a function to search for digits.\n"""\n',
        "entry_point": "text_match_three",
        "canonical_solution": "\nimport re\n\ndef text_match_three(text):\n    return re.search(r'\\d', text)\n",
        "base_input": [["a1"], ["b"]],
        "plus_input": [[""]],
        "atol": 0,
        "contract": "",
    },
]

LIVECODEBENCH: list[Row] = [
    code_row(
        1,
        question_content="Read n and n numbers; print their sum and their mean.",
        public_test_cases=json.dumps(stdin(("2\n1 3\n", "4 2.0\n"))),
        private_test_cases=pack(
            stdin(("1\n5\n", "5 5.0"), ("3\n1 2 4\n", "7 2.3333333333333335\n"), ("1\n-7", "-7 -7"))
        ),
    ),
    code_row(
        2,
        question_content="Print the text backwards, ünïcode too.",
        difficulty="medium",
        public_test_cases=json.dumps(stdin(("abc\n", "cba\n"))),
        private_test_cases=json.dumps(stdin(("ünï😀\n", "😀ïnü"), ("a b\n", "b a\n"))),
    ),
    code_row(
        3,
        question_content="Return the pair of places whose values add up to the target.",
        platform="leetcode",
        difficulty="hard",
        starter_code="class Solution:\n    def pair(self, nums: List[int], target: int) -> List[int]:\n        ",
        public_test_cases=json.dumps(functional(("[2, 7, 11]\n9", "[0, 1]"))),
        private_test_cases=pack(functional(("[3, 3]\n6", "[0, 1]"), ("[1]\n5", "[]"))),
        metadata=json.dumps({"func_name": "pair"}),
    ),
]

ROWS: dict[str, list[Row]] = {
    "humaneval_plus": HUMANEVAL_PLUS,
    "mbpp_plus": MBPP_PLUS,
    "livecodebench": LIVECODEBENCH,
    "aime24": [
        {
            "id": 60,
            "problem": "Add 100 and 104.",
            "solution": "We get \\boxed{204}.",
            "url": "https://example.org",
        },
        {"id": 61, "problem": "Größe von 33?", "solution": "First \\boxed{3}. Then \\boxed{033}.", "url": ""},
    ],
    "aime25": [
        {"problem": "Add 30 and 40.", "answer": "70", "id": "0"},
        {"problem": "Nought?", "answer": "0", "id": "1"},
    ],
    "amc23": [
        {"id": 0, "question": "Half of 54?", "answer": "27.0", "url": ""},
        {"id": 1, "question": "A quarter?", "answer": 0.25, "url": ""},
    ],
    "math500": [
        {
            "problem": "Which fraction is half of $\\frac{3}{2}$?",
            "solution": "It is $\\boxed{\\frac{3}{4}}$.",
            "answer": "\\frac{3}{4}",
            "subject": "Prealgebra",
            "level": 1,
            "unique_id": "test/prealgebra/9001.json",
        },
        {
            "problem": "Name the roots of $x^2+x-2$.",
            "solution": "",
            "answer": "1,-2",
            "subject": "Algebra",
            "level": 5,
            "unique_id": "test/algebra/9002.json",
        },
    ],
    "minerva": [
        {"question": "Light's speed in m/s, to one digit?", "answer": "3e8"},
        {"question": "Kinetic energy of mass m at speed v?", "answer": "\\frac{m v^2}{2}"},
        {"question": "Light's speed in m/s, to one digit?", "answer": "3e8"},
    ],
    "gsm8k": [
        {"question": "Three boxes of six eggs?", "answer": "3 * 6 = <<3*6=18>>18\n#### 18"},
        {"question": "Seven ten-thousands?", "answer": "#### 70,000"},
    ],
    "olympiadbench": [
        {
            "id": 9001,
            "question": "Find all $x$ with $x^2=4$.",
            "solution": ["By inspection."],
            "final_answer": ["$2$", "$-2$"],
            "context": None,
            "modality": "Text-only",
            "difficulty": "Competition",
            "is_multiple_answer": True,
            "unit": None,
            "answer_type": "Numerical",
            "error": None,
            "question_type": "Open-ended",
            "subfield": "Algebra",
            "subject": "Math",
            "language": "English",
        },
        {
            "id": 9002,
            "question": "Give $\\pi$ to two decimals.",
            "solution": [""],
            "final_answer": ["$3.1416$"],
            "context": "Measure a circle.",
            "modality": "Text-only",
            "difficulty": "Competition",
            "is_multiple_answer": False,
            "unit": "",
            "answer_type": "Numerical",
            "error": "1e-2",
            "question_type": "Open-ended",
            "subfield": "Geometry",
            "subject": "Math",
            "language": "English",
        },
    ],
}

SOLUTIONS: dict[str, list[str]] = {
    "livecodebench": [
        "n = int(input())\nnumbers = [int(x) for x in input().split()]\nprint(sum(numbers), sum(numbers) / n)",
        "import sys\n\ndef main():\n    print(sys.stdin.readline().rstrip('\\n')[::-1])\n\n"
        "if __name__ == '__main__':\n    main()",
        "class Solution:\n    def pair(self, nums: List[int], target: int) -> List[int]:\n"
        "        for i, a in enumerate(nums):\n            for j in range(i + 1, len(nums)):\n"
        "                if a + nums[j] == target:\n                    return i, j\n        return []",
    ],
} | {
    name: [row["prompt"] + row["canonical_solution"] for row in ROWS[name]]
    for name in ("humaneval_plus", "mbpp_plus")
}
"""Right programs for the rows of the code benchmarks."""


def fenced(program: str) -> str:
    return f"Here is the program.\n\n```python\n{program}\n```\n"
