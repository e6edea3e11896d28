"""The repl dialect: a session that a small base goes on with."""

from __future__ import annotations

import pytest
from byte_tokenizer import CHAT as TURNS
from byte_tokenizer import byte_tokenizer

from populora_core.problems.dialects import dialect, seeds_of, stops_of, thought_of
from populora_core.problems.grading import check_proposals
from populora_core.problems.model import Problem
from populora_core.problems.normal import program_key
from populora_core.problems.parsing import FormatError
from populora_core.problems.types import problem_type
from populora_core.problems.verdicts import ProposalVerdict
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.sandbox.verify import verify_or_raise

TYPES = ("code_o", "code_i", "code_f")
REPL, THINKING, ASSERT = dialect("repl"), dialect("repl-thoughts"), dialect("assert")
CHAT = dialect("chat")
DOUBLE = "def f(xs):\n    return [2 * x for x in xs]"
SESSION = f"{DOUBLE}\n>>> f([1, 2])\n[2, 4]\n>>> f([])\n[]\n>>> f([3])\n[6]"


def doubled(kind: str) -> Problem:
    inputs, outputs = ("([1, 2],)", "([],)", "([3],)"), ("[2, 4]", "[]", "[6]")
    count = 3 if kind == "code_f" else 1
    return Problem("p", kind, DOUBLE, inputs[:count], outputs[:count], "")


@pytest.mark.parametrize("spoken", [REPL, THINKING, ASSERT, CHAT], ids=lambda spoken: spoken.name)
@pytest.mark.parametrize("kind", TYPES)
def test_what_a_prompt_shows_is_what_a_completion_looks_like(spoken, kind: str) -> None:  # type: ignore[no-untyped-def]
    """A reference, with the prompt's open end before it taken off, is read as the problem that it shows."""
    shown = spoken.propose_prompt(kind, [doubled(kind)])
    reference = shown.partition("\n\n")[2].removesuffix("\n\ndef f")
    read = spoken.parse_proposal(kind, reference.removeprefix("def f") + "\n\n")
    assert (read.program, read.inputs) == (DOUBLE, doubled(kind).inputs)


@pytest.mark.sandbox
@pytest.mark.parametrize("kind", TYPES)
def test_seeds_are_valid_problems_with_the_outputs_they_show(kind: str) -> None:
    seeds = seeds_of(REPL, kind)
    with open_sandbox("auto", Limits(), workers=1) as sandbox:
        checks = check_proposals(
            REPL,
            lambda jobs: verify_or_raise(sandbox, jobs, determinism=True),
            [seed.draft() for seed in seeds],
        )
    assert [(check.verdict, check.outputs) for check in checks] == [
        (ProposalVerdict.VALID, seed.outputs) for seed in seeds
    ]
    assert len({program_key(seed.program) for seed in seeds}) == len(seeds) >= 4


@pytest.mark.parametrize(
    ("kind", "completion", "answer"),
    [
        ("code_o", "[2, 4]\n\n", "[2, 4]"),
        ("code_o", "[2,4]\n>>> f([9])\n[18]\n\n", "[2, 4]"),
        ("code_i", "([1, 2])\n\n", "([1, 2],)"),
        ("code_f", "(a):\n    return a + a\n\n", "def f(a):\n    return a + a"),
        ("code_f", "(a):\n    return a + a\n>>> f(1)\n2\n\n", "def f(a):\n    return a + a"),
    ],
)
def test_an_answer_ends_where_its_form_does(kind: str, completion: str, answer: str) -> None:
    assert REPL.parse_answer(doubled(kind), completion) == answer


@pytest.mark.parametrize(
    ("kind", "completion"),
    [("code_o", "\n\n"), ("code_o", "# because\n[2]\n\n"), ("code_i", "[1, 2]\n\n"), ("code_f", "no\n\n")],
)
def test_other_text_is_no_answer(kind: str, completion: str) -> None:
    with pytest.raises((FormatError, SyntaxError, ValueError)):
        REPL.parse_answer(doubled(kind), completion)


def test_a_proposal_without_a_call_is_refused() -> None:
    with pytest.raises(FormatError, match="line that starts"):
        REPL.parse_proposal("code_o", "(x):\n    return x + 1\n\n")


def test_with_thoughts_comments_may_come_before_the_answer() -> None:
    asked, written = doubled("code_o"), "# 2 * 1 = 2\n# 2 * 2 = 4\n[2, 4]\n\n"
    assert THINKING.parse_answer(asked, written) == "[2, 4]"
    assert thought_of(THINKING, written) == "# 2 * 1 = 2\n# 2 * 2 = 4"
    assert THINKING.parse_answer(doubled("code_i"), "# halves\n>>> f([1, 2])\n\n") == "([1, 2],)"
    assert "# n twice" in THINKING.solve_prompt(asked) and "# n twice" not in REPL.solve_prompt(asked)


@pytest.mark.parametrize(
    ("kind", "completion", "answer"),
    [
        ("code_o", " [2,4]\n", "[2, 4]"),
        ("code_o", " [2, 4]  # doubled\n", "[2, 4]"),
        ("code_o", " [2, 4], 'each is doubled'\n", "[2, 4]"),
        ("code_o", " ([2, 4], 'each')\n", "([2, 4], 'each')"),
        ("code_o", " None\n", "None"),
        ("code_o", " 'ab' joining all words\n", "'ab'"),
        ("code_o", " -1.5 apples\n", "-1.5"),
        ("code_o", " [2, 4]<|endoftext|>", "[2, 4]"),
        ("code_f", "(a):\n    return a + a<|endoftext|>", "def f(a):\n    return a + a"),
        ("code_o", " 'ab'稳健\n", "'ab'"),
        ("code_o", " 'a'r'b' says it\n", "'ab'"),
        ("code_i", "([1, 2]) gives it\n", "([1, 2],)"),
        ("code_i", "([1, 2]) == [2, 4]\n", "([1, 2],)"),
        ("code_i", "('a) == b', 1) == 2\n", "('a) == b', 1)"),
        ("code_i", "([1, 2])  # as asked\n", "([1, 2],)"),
        ("code_i", "([1, 2]) ==\n", "([1, 2],)"),
        ("code_f", "(a):\n    return a + a\nassert f(1) == 2\n\n", "def f(a):\n    return a + a"),
    ],
)
def test_an_assertion_is_read_as_python_reads_it(kind: str, completion: str, answer: str) -> None:
    assert ASSERT.parse_answer(doubled(kind), completion) == answer


@pytest.mark.parametrize(
    ("kind", "completion"),
    [
        ("code_o", "\n"),
        ("code_o", " 1 + 1\n"),
        ("code_o", " 'ab'.upper()\n"),
        ("code_o", " 2 == 2\n"),
        ("code_o", " 2 if x else 3\n"),
        ("code_o", " 2; x = 3\n"),
        ("code_o", " twice\n"),
        ("code_o", " 'no' or f('1') == 'y\n"),
        ("code_o", " 1 + 2 apples\n"),
        ("code_o", " [1] * n times\n"),
        ("code_o", " 12th\n"),
        ("code_o", " 'it's'\n"),
        ("code_o", " 'a'_\n"),
        ("code_o", " [1]x\n"),
        ("code_o", " {2: 3}4\n"),
        ("code_i", "('it')s')\n"),
        ("code_i", "(1)2 == 3\n"),
        ("code_o", " ([2, 4]\n"),
        ("code_i", "(1)(2) == 3\n"),
        ("code_i", "(1) + 1 == 3\n"),
        ("code_i", "(x) == 3\n"),
        ("code_i", " == 3\n"),
    ],
)
def test_what_is_no_value_is_no_answer(kind: str, completion: str) -> None:
    with pytest.raises(FormatError):
        ASSERT.parse_answer(doubled(kind), completion)


@pytest.mark.parametrize("spoken", [REPL, ASSERT], ids=lambda spoken: spoken.name)
def test_an_answer_of_one_line_ends_with_it(spoken) -> None:  # type: ignore[no-untyped-def]
    stops = {kind: stops_of(spoken, spoken.solve_prompt(doubled(kind))) for kind in TYPES}
    line, block = ("\n", "<|endoftext|>"), ("\n\n", "<|endoftext|>")
    assert stops == {"code_o": line, "code_i": line, "code_f": block}
    assert stops_of(spoken, spoken.propose_prompt("code_o", [doubled("code_o")])) == block
    assert stops_of(THINKING, THINKING.solve_prompt(doubled("code_o"))) == block
    assert stops_of(dialect("compact"), "any prompt") == ()


def test_a_student_sees_neither_the_answer_nor_what_is_held_back() -> None:
    prompts = {kind: REPL.solve_prompt(doubled(kind)).rpartition("\n\n")[2] for kind in TYPES}
    assert prompts["code_o"] == f"{DOUBLE}\n>>> f([1, 2])\n"
    assert "[1, 2]" not in prompts["code_i"] and "[2, 4]" in prompts["code_i"]
    assert DOUBLE not in prompts["code_f"] and "[6]" not in prompts["code_f"]
    assert ASSERT.solve_prompt(doubled("code_o")).endswith(f"{DOUBLE}\nassert f([1, 2]) ==")
    assert all(len(problem_type(kind).shown(doubled(kind), REPL.rules)) == 1 for kind in ("code_o", "code_i"))


@pytest.mark.parametrize(
    ("kind", "opening"), [("code_o", "assert f([1, 2]) =="), ("code_i", "assert f"), ("code_f", "def f")]
)
def test_a_chat_begins_the_models_turn_with_the_line_that_it_goes_on_with(kind: str, opening: str) -> None:
    prompt = CHAT.solve_prompt(doubled(kind))
    tokenizer = byte_tokenizer(TURNS)
    assert tokenizer.decode(CHAT.encode(tokenizer, prompt)) == (
        f"<|im_start|>user\n{prompt.removesuffix(opening).rstrip()}<|im_end|>\n<|im_start|>assistant\n{opening}"
    )
    plain = byte_tokenizer()
    assert CHAT.encode(plain, prompt) == ASSERT.encode(plain, prompt)


def test_a_chat_asks_the_prompt_of_a_benchmark_as_one_turn() -> None:
    tokenizer, prompt = byte_tokenizer(TURNS), "Write the function.\n\n```python\ndef f(x):\n```"
    assert tokenizer.decode(CHAT.encode(tokenizer, prompt)) == (
        f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
    )
