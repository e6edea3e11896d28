"""Right answers whose thought is right from the first step to the last are told from lucky ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.thoughts import asked, figures, result, table

PROMPT = "<so>def f(x,y):\n x=(x+y)%5\n y=(y+1)%5\n return [x,y]\n#3,2\n:"
WHOLE = "\n x+y:320\n y+1:213\n=[0,3]"
LUCKY = {
    "a wrong operand": "\n x+y:310\n y+1:213\n=[0,3]",
    "a wrong value": "\n x+y:321\n y+1:213\n=[0,3]",
    "a line too few": "\n y+1:213\n=[0,3]",
    "a line too many": "\n x+y:320\n y+1:213\n y+1:213\n=[0,3]",
    "no thought": "\n=[0,3]",
}
OTHERS = {
    "a value": PROMPT.replace("#3,2", "#3,[2]"),
    "a statement": PROMPT.replace("x=(x+y)%5", "x=max(x,y)"),
    "a variable": PROMPT.replace("y=(y+1)%5", "z=(z+1)%5"),
    "two inputs": PROMPT.replace("#3,2", "#3,2\n#1,1"),
    "another role": PROMPT.replace("<so>", "<si>"),
}


def of(*completions: str, prompt: str = PROMPT) -> list[dict[str, str]]:
    return [{"prompt": prompt, "completion": completion} for completion in completions]


@pytest.mark.parametrize("completion", [WHOLE, f"{WHOLE}<eos>"])
def test_a_whole_thought_is_what_the_grammar_says(completion: str) -> None:
    assert figures(of(completion))["by_level"]["2"][:2] == [1, 1.0]


@pytest.mark.parametrize("completion", LUCKY.values(), ids=LUCKY)
def test_a_right_answer_after_a_wrong_step_is_luck(completion: str) -> None:
    assert figures(of(completion))["whole"][0] == 0.0


@pytest.mark.parametrize("prompt", OTHERS.values(), ids=OTHERS)
def test_other_programs_are_counted_apart(prompt: str) -> None:
    assert asked(prompt) is None
    assert figures(of(WHOLE, prompt=prompt)) == {"right": 0, "outside": 1, "whole": None, "by_level": {}}


def test_shares_are_told_in_all_and_by_the_number_of_statements() -> None:
    shorter = PROMPT.replace("\n y=(y+1)%5", "")
    found = figures([*of(WHOLE, *LUCKY.values()), *of("\n x+y:320\n=[0,2]", prompt=shorter)])
    assert found["right"] == 7 and found["whole"][0] == pytest.approx(2 / 7, abs=1e-3)
    assert {level: own[:2] for level, own in found["by_level"].items()} == {"1": [1, 1.0], "2": [6, 0.167]}


def test_the_answers_of_a_run_are_read(finished: Path) -> None:
    one = result(finished)
    found = one["answers"]["generations 1 to 3"]
    assert found["right"] == 0 < found["outside"], "the tiny base's programs are others"
    assert f"| {finished.name} | generations 1 to 3 | 0 |  | {found['outside']} |" in table([one])
