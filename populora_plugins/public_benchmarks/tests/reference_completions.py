"""Completions that ours and the reference graders judge: published answers in other valid forms, and near misses.

What is right and what is wrong is not said here: the reference graders decide, and differences are looked at by hand.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmark_rows import fenced
from fault_rule import Fault, faults, planted
from published_data import published

from populora_core.benchmarks.benchmark import Item, benchmark
from populora_core.sandbox.literals import parse_arguments, parse_literal
from populora_core.support.finish import FinishReason
from populora_plugins.public_benchmarks.evalplus import reference

MATHEMATICS = {
    "aime24": "aime24.jsonl.gz",
    "aime25": "aime25.jsonl",
    "amc23": "amc23.jsonl",
    "math500": "math500.jsonl.gz",
    "minerva": "minerva_math.jsonl.gz",
    "gsm8k": "gsm8k.jsonl.gz",
    "olympiadbench": "olympiadbench.jsonl.gz",
}
CODE = {"humaneval": "HumanEval.jsonl.gz", "mbpp_plus": "MbppPlus.jsonl.gz"}
CRUXEVAL = dict.fromkeys(("cruxeval_o", "cruxeval_i"), "cruxeval-first400.jsonl")
STATED = r"""So the answer is $\boxed{ANSWER}$.
Final Answer: The final answer is $ANSWER$. I hope it is correct.
#### ANSWER"""
INTEGER = re.compile(r"-?\d+")
ROUNDED = re.compile(r"\d\.\d|\d[eE]|10\^")
"""A number of which one more may be the same within its digits."""
FRACTION = re.compile(r"\\d?frac\{(\d+)\}\{(\d+)\}")


@dataclass(frozen=True)
class Completion:
    """One answer to one problem.

    Attributes:
        kind: how it was made from what was published; `sampled` where a model wrote it.
        told: what was changed, for people.
        family: the dialect in which it was asked for.
    """

    benchmark: str
    item_id: str
    kind: str
    text: str
    told: str = ""
    family: str = "instruct"
    finish_reason: FinishReason = FinishReason.STOP


@cache
def items(name: str) -> list[Item]:
    return benchmark(name).load(published((MATHEMATICS | CODE | CRUXEVAL)[name]))


def gold(item: Item) -> str:
    """The published answer of a problem in mathematics, without delimiters."""
    measured: Any = benchmark(item.benchmark)
    return str(measured.gold(item.fields)).strip().strip("$").strip()


# Mathematics


FORMS = (
    "as published",
    "plus zero",
    "thousands",
    "fraction",
    "sum",
    "slash",
    "expanded",
    "sized brackets",
    "display style",
)


def rewritten(answer: str) -> Iterator[tuple[str, str]]:
    """(form, answer) of the same value."""
    yield "as published", answer
    if INTEGER.fullmatch(answer):
        number = int(answer)
        yield "plus zero", f"{answer}.0"
        yield "thousands", f"{number:,}"
        yield "fraction", rf"\frac{{{2 * number}}}{{2}}"
        yield "sum", f"{number - 1}+1"
    if fraction := FRACTION.fullmatch(answer):
        over, under = map(int, fraction.groups())
        yield "slash", f"{over}/{under}"
        yield "expanded", rf"\dfrac{{{3 * over}}}{{{3 * under}}}"
    if re.fullmatch(r"\(.*\)|\[.*\]", answer):
        yield "sized brackets", rf"\left{answer[:-1]}\right{answer[-1]}"
    yield "display style", rf"\displaystyle {answer}"


def missed(answer: str) -> Iterator[tuple[str, str]]:
    """(fault, answer) of another value."""
    if INTEGER.fullmatch(answer):
        number = int(answer)
        yield "off by one", str(number + 1)
        if number:
            yield "sign", str(-number)
            yield "digit left out", answer[:-1] or "0"
            yield "ten times", f"{number}0"
        return
    numbers = [*re.finditer(r"(?<![\d.])\d+(?![\d.])", answer)]
    if numbers:
        last = numbers[-1]
        yield "off by one", f"{answer[: last.start()]}{int(last[0]) + 1}{answer[last.end() :]}"
    if answer.startswith("-"):
        yield "sign", answer[1:]
    elif "," not in answer and re.match(r"[\dA-Za-z\\]", answer):
        yield "sign", f"-({answer})"
    parts = re.fullmatch(r"\(([^,()]+),([^,()]+)\)", answer)
    if parts and parts[1].strip() != parts[2].strip():
        yield "order", f"({parts[2].strip()}, {parts[1].strip()})"
    yield "one more", f"{answer}+1"


def answered(item: Item) -> list[Completion]:
    """Every form and every near miss of the published answer, stated in every way that a grader looks for."""
    return [
        Completion(item.benchmark, item.item_id, kind, STATED.replace("ANSWER", text), text)
        for way in (rewritten, missed)
        for kind, text in way(gold(item))
    ]


# Code


def mutants(item: Item) -> list[tuple[str, Fault]]:
    """The published solution with one operator, constant or condition changed, each with what was changed."""
    source = reference(item)
    first = item.fields["prompt"].count("\n") if item.benchmark == "humaneval" else 0
    own = [fault for fault in faults(source, item.item_id) if fault.line > first]
    return [(text, fault) for fault in own if parses(text := planted(source, fault))]


def parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def one_mutant(item: Item, draw: random.Random) -> list[Completion]:
    """The solution with a drawn fault; nothing where it has no place for one."""
    found = mutants(item)
    if not found:
        return []
    text, fault = draw.choice(found)
    return [mutated(item, text, fault)]


def mutated(item: Item, text: str, fault: Fault) -> Completion:
    told = f"{fault.code}: {fault.before} -> {fault.after}"
    return Completion(item.benchmark, item.item_id, "mutant", fenced(text), told)


def reworded(item: Item) -> list[Completion]:
    """The published solution as it is, and as Python writes its tree."""
    source = reference(item)
    return [
        Completion(item.benchmark, item.item_id, "as published", fenced(source)),
        Completion(item.benchmark, item.item_id, "unparsed", fenced(ast.unparse(ast.parse(source)))),
    ]


# CRUXEval


def near_values(value: object) -> Iterator[Any]:
    """Values that are off by a sign, by one, by a character, or by the order of two neighbours."""
    match value:
        case bool():
            yield not value
        case None:
            yield False
        case int() | float():
            yield from (-value, value + 1, value - 1)
        case str():
            yield from (
                value + "a",
                value[1:],
                value[:-1] + "~",
                value[1:2] + value[:1] + value[2:],
                value[::-1],
            )
        case list() | tuple():
            kind: Any = type(value)
            yield from (kind(value[:-1]), kind([*value[1:2], *value[:1], *value[2:]]), kind(value[::-1]))
            for place, item in enumerate(value[:3]):
                yield from (kind([*value[:place], each, *value[place + 1 :]]) for each in near_values(item))
        case set():
            yield from (value | {"~"}, set(list(value)[1:]))
        case dict():
            yield {**value, "~": 0}
            for key, entry in [*value.items()][:3]:
                yield from ({**value, key: each} for each in near_values(entry))


def predicted(item: Item, draw: random.Random) -> list[Completion]:
    """The published output or input, as it is or as Python writes it, and one that is a little off."""
    output, asks_output = item.fields["output"], item.benchmark == "cruxeval_o"
    arguments = parse_arguments(item.fields["inputs"][0])

    def said(kind: str, text: str) -> Completion:
        return Completion(item.benchmark, item.item_id, kind, text, text, "assert")

    if asks_output:
        right = {"as published": output, "python's": repr(value := parse_literal(output))}
        wrong = [repr(near) for near in near_values(value)]
    else:
        right = {
            "as published": f"({item.fields['input']}) == {output}",
            "python's": called(arguments, output),
        }
        wrong = [
            called([*arguments[:place], near, *arguments[place + 1 :]], output)
            for place, value in enumerate(arguments)
            for near in near_values(value)
        ]
    kind = draw.choice([*right])
    return [said(kind, right[kind]), *(said("near", text) for text in draw.sample(wrong, min(1, len(wrong))))]


def called(arguments: Sequence[object], output: str) -> str:
    """The rest of an assertion behind `assert f`."""
    return f"({', '.join(map(repr, arguments))}) == {output}"


# All of them


def completions(seed: int = 0) -> list[Completion]:
    """What both sides judge: of each problem a right form, and a miss or a mutant, drawn.

    Of GSM8K two right forms more, since lm-eval's filter reads few, and near as many are to be right as wrong.
    """
    draw = random.Random(seed)
    found: list[Completion] = []
    for name in MATHEMATICS:
        for item in items(name):
            asked = answered(item)
            right = [each for each in asked if each.kind in FORMS]
            wrong = [each for each in asked if each.kind not in FORMS]
            found += [draw.choice(right), *draw.sample(wrong, min(1, len(wrong)))]
    for name in CODE:
        for item in items(name):
            found += [draw.choice(reworded(item)), *one_mutant(item, draw)]
    for name in CRUXEVAL:
        for item in items(name):
            found += predicted(item, draw)
    for item in items("gsm8k"):
        found += [each for each in answered(item) if each.kind in ("as published", "thousands")]
    return found
