"""The newest prompts as a benchmark: an answer is right where the verifier takes it for a valid proposal."""

from __future__ import annotations

import pytest

from populora_core.benchmarks.benchmark import Response
from populora_core.benchmarks.proposed import NewestPrompts
from populora_core.problems.dialects.instruct import fence
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits


@pytest.mark.sandbox
def test_a_proposal_of_several_inputs_is_read_as_it_was_asked_for() -> None:
    prompts, program = NewestPrompts(), fence("python", "def f(a):\n    return a * 7 + 1")
    inputs = [fence("input", str(number)) for number in range(3)]
    response = Response("\n".join(["</think>", "<answer>", program, *inputs, "</answer>"]))
    row = {"proposal_id": "p", "problem_type": "code_o", "prompt": "?"}
    with open_sandbox("auto", Limits(), workers=1) as sandbox:
        asked, other = (
            prompts.grade(prompts.load([row | named]), [response], "instruct", sandbox)
            for named in ({"inputs": 3}, {})
        )
    assert (asked[0].correct, other[0].correct) == (True, False)
