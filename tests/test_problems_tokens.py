"""Prompts as token ids: chat templates, and no special token out of the text of a problem."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from byte_tokenizer import CHAT, byte_tokenizer

from populora_core.problems.dialects import dialect
from populora_core.problems.dialects.compact import CompactDialect, compact_output
from populora_core.problems.dialects.dialect import unspelt
from populora_core.problems.dialects.instruct import InstructDialect
from populora_core.problems.model import Problem
from populora_core.sandbox.literals import canonical

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "def f(x):\n return x"
COMPACT, INSTRUCT = CompactDialect(), InstructDialect()


@pytest.fixture(scope="module")
def tokenizer():
    return byte_tokenizer()


def test_instruct_encodes_by_the_chat_template_and_opens_the_think_tag(tokenizer):
    tokenizer.chat_template = CHAT
    assert tokenizer.decode(INSTRUCT.encode(tokenizer, "Hello.")) == (
        "<|im_start|>user\nHello.<|im_end|>\n<|im_start|>assistant\n<think>\n"
    )


def test_instruct_does_not_open_a_think_tag_that_the_chat_template_opened(tokenizer):
    tokenizer.chat_template = CHAT.replace("assistant\n", "assistant\n<think>\n")
    assert tokenizer.decode(INSTRUCT.encode(tokenizer, "Hello.")).count("<think>") == 1


def test_instruct_encodes_plain_text_for_a_model_without_chat_template(tokenizer):
    tokenizer.chat_template = None
    assert tokenizer.decode(INSTRUCT.encode(tokenizer, "Hello.")) == "User: Hello.\n\nAssistant: <think>"


def test_a_special_token_spelled_in_a_problem_does_not_become_one(tokenizer):
    tokenizer.chat_template = CHAT
    prompt = INSTRUCT.solve_prompt(
        Problem("p", "code_o", "def f(x):\n return x+'<|im_end|>'", ("('a',)",), ("'a'",), "")
    )
    assert INSTRUCT.encode(tokenizer, prompt).count(tokenizer.eos_token_id) == 1


def test_a_special_token_without_a_name_is_not_spelled_either(tokenizer):
    """Most of Llama 3's are only marked as special in the tokenizer's own list."""
    from transformers import AddedToken

    tokenizer.chat_template = CHAT
    header = "<|start_header_id|>"
    tokenizer.add_tokens(AddedToken(header, special=True))
    assert header not in tokenizer.all_special_tokens
    program = f"def f(x):\n return x+'{header}'"
    prompt = INSTRUCT.solve_prompt(Problem("p", "code_o", program, ("('a',)",), ("'a'",), ""))
    assert tokenizer.convert_tokens_to_ids(header) not in INSTRUCT.encode(tokenizer, prompt)


END = "<|im_end|>"
LITERALS = (
    f"'{END}'",
    rf"'it\'s \\{END}{END}'",
    f'"it\'s {END}"',
    f"b'{END}'",
    rf"r'\d{END}\n'",
    f"'''two\n{END}\nlines'''",
    f'R"""{END}\n"""',
    f"f'{END}'",
    f"f'{{x}}{END}{{x}}'",
    f'("""two # lines""", "{END}")',
)


@pytest.mark.parametrize("name", ["instruct", "repl", "assert", "chat"])
@pytest.mark.parametrize("source", LITERALS)
def test_a_program_is_shown_with_the_values_that_it_has(tokenizer, name: str, source: str) -> None:
    spoken, program = dialect(name), f"def f(x):\n    # don't\n    return len({source}) + x"
    tokenizer.chat_template = CHAT
    ask = spoken.solve_prompt(Problem("p", "code_o", program, ("(1,)",), ("9",), ""))
    plain = spoken.solve_prompt(Problem("p", "code_o", PROGRAM, ("(1,)",), ("9",), ""))
    tokens, end = spoken.encode(tokenizer, ask), tokenizer.eos_token_id
    assert tokens.count(end) == spoken.encode(tokenizer, plain).count(end)
    shown = tokenizer.decode(tokens).rpartition("return len(")[2].partition(") + x")[0]
    assert ast.dump(ast.parse(shown)) == ast.dump(ast.parse(source))


@pytest.mark.parametrize("name", ["instruct", "repl", "assert"])
def test_a_value_is_shown_as_a_literal_of_the_same_value(tokenizer, name: str) -> None:
    value = f"['{END}', {{'a': '<{END}>'}}]"
    tokenizer.chat_template = None
    ask = dialect(name).solve_prompt(Problem("p", "code_i", PROGRAM, ("(1,)",), (value,), ""))
    shown = tokenizer.decode(dialect(name).encode(tokenizer, ask))
    (line,) = [line for line in shown.split("\n") if "{'a':" in line]
    assert END not in shown
    assert ast.literal_eval(line[line.index("[") : line.index("]") + 1]) == ast.literal_eval(value)


def test_a_special_token_among_operators_or_words_is_split(tokenizer) -> None:
    from transformers import AddedToken

    tokenizer.add_tokens(AddedToken("<s>", special=True))
    assert unspelt(tokenizer, "don't say <s>: x = a<s>b") == "don't say < s>: x = a< s>b"
    assert unspelt(tokenizer, "f'{a<s>b}'") == "f'{a< s>b}'"
    assert unspelt(tokenizer, "it's '<t>'") == "it's '<t>'"


def test_quotes_in_a_comment_open_no_literal(tokenizer) -> None:
    from transformers import AddedToken

    tokenizer.add_tokens(AddedToken("<s>", special=True))
    assert (
        unspelt(tokenizer, 'x = 1  # say """ <s>\ny = r\'<s>\'') == "x = 1  # say \"\"\" < s>\ny = r'<' r's>'"
    )


@pytest.mark.parametrize("inputs", [1, 3])
@pytest.mark.parametrize("kind", ["code_o", "code_i", "code_f"])
def test_instructions_spell_the_tags_as_the_tokens_that_they_are_and_no_problem_does(
    kind: str, inputs: int
) -> None:
    from transformers import AddedToken

    spoken, tokenizer = dialect("instruct", inputs), byte_tokenizer(CHAT)
    tags = ("</think>", "<answer>", "</answer>")
    tokenizer.add_tokens([AddedToken(tag, special=True) for tag in tags])
    count = inputs if kind != "code_f" else 10
    program = "def f(x):\n return x+'</think>'  # </answer>"
    tagged = Problem("p", kind, program, ("('<answer>',)",) * count, ("'</answer>'",) * count, "say </think>")
    plain = replace(tagged, program=PROGRAM, inputs=("(1,)",) * count, outputs=("1",) * count, message="say")
    for ask in (spoken.solve_prompt, lambda each: spoken.propose_prompt(kind, [each])):
        tokens = Counter(spoken.encode(tokenizer, ask(tagged)))
        for tag in tags:
            assert tokens[tokenizer.convert_tokens_to_ids(tag)] == ask(plain).count(tag) == 1


def test_compact_encodes_the_prompt_alone(tokenizer):
    tokenizer.chat_template = CHAT
    assert tokenizer.decode(COMPACT.encode(tokenizer, "<po><new>")) == "<po><new>"


SPELLED = ("'<eos>'", "'a<so>b<po>'", "['<ref>', {'<new>': ('<pad>',)}]", r"'\\<eos>'", "'<eos<eos>>'")


@pytest.mark.parametrize("value", SPELLED)
def test_no_value_puts_a_special_token_into_a_compact_prompt(value: str) -> None:
    """A program can make any text out of escapes and sums, and its outputs are shown to students."""
    shown = Problem("p", "code_i", PROGRAM, (f"({value},)",) * 6, (value,) * 6, "")
    for kind in ("code_o", "code_i", "code_f"):
        plain = replace(shown, problem_type=kind, inputs=("(1,)",) * 6, outputs=("1",) * 6)
        for ask in (COMPACT.solve_prompt, lambda each: COMPACT.propose_prompt(each.problem_type, [each])):
            marked = replace(shown, problem_type=kind)
            assert special_tokens(ask(marked)) == special_tokens(ask(plain))
    assert canonical(ast.literal_eval(compact_output(value))) == value


def special_tokens(prompt: str) -> list[str]:
    """Those that the tiny base's tokenizer reads in a prompt."""
    tokenizer = tiny_tokenizer()
    special = set(tokenizer.all_special_ids) | set(tokenizer.get_added_vocab().values())
    return [tokenizer.decode([each]) for each in COMPACT.encode(tokenizer, prompt) if each in special]


@pytest.mark.parametrize("kind", ["code_o", "code_i", "code_f"])
def test_no_value_puts_a_special_token_into_an_instruct_prompt(kind: str) -> None:
    value = "'<eos>'"
    shown = Problem("p", kind, PROGRAM, (f"({value},)",) * 10, (value,) * 10, "say <eos>")
    tokenizer = tiny_tokenizer()
    end = tokenizer.convert_tokens_to_ids("<eos>")
    assert end not in INSTRUCT.encode(tokenizer, INSTRUCT.solve_prompt(shown))
    assert end not in INSTRUCT.encode(tokenizer, INSTRUCT.propose_prompt(kind, [shown]))


@cache
def tiny_tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(ROOT / "base_model" / "tiny")
