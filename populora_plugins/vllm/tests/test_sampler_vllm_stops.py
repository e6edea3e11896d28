"""Pretrained models under vLLM and under the torch sampler: one end, one text and one verdict for the same tokens.

Their tokenizers join what they like: Qwen's writes `])` and the lines after it as one token, SmolLM2's `>.`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from test_real import weights
from vllm_members import needs_vllm

from populora_core.compute.work import Prompt, Worker
from populora_core.config.machinery import SamplerSection
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.model.base import base_digest
from populora_core.problems.dialects import dialect, stops_of
from populora_core.problems.grading import AttemptJudgement, CutAnswers, judge_attempts
from populora_core.problems.model import Problem
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.sampler.requests import Completion, Request, Sampler
from populora_core.sampler.spec import ModelSpec
from populora_core.sandbox.jobs import Sandbox
from populora_core.sandbox.verify import verify_or_raise
from populora_core.support.aliases import Row
from populora_core.support.finish import FinishReason
from populora_plugins.gguf_bases.named import NAMED

pytestmark = [pytest.mark.vllm, needs_vllm]

SPOKEN = dialect("assert")
SUMS = "".join(f"2 + {n} is <answer>[{2 + n}]</answer>.\n" for n in range(1, 6)) + "2 + 6 is <answer>["
PAIRS = "".join(f"f({n}, [{n + 1}, {n}])\n\n\n" for n in range(1, 6)) + "f(6, ["
INSIDE = {
    "a tag inside a line": (SUMS, "</answer>"),
    "a bracket before a tag": (SUMS, "]"),
    "empty lines after a bracket": (PAIRS, "\n\n"),
    "a bracket before empty lines": (PAIRS, ")"),
}
"""Prompts that a model goes on with, each with a stop text that a tokenizer joins with what stands around it."""


@dataclass(frozen=True)
class Both:
    """The same base under both samplers."""

    torch: Worker
    vllm: Worker

    def rows(self, asked: Sequence[tuple[str, tuple[str, ...], int]]) -> list[Row]:
        """What stages keep of a greedy completion of each (prompt, stop texts, max_tokens), equal by both samplers."""
        ours, theirs = (self._rows(worker, asked) for worker in (self.torch, self.vllm))
        for one, other in zip(ours, theirs, strict=True):
            assert one.pop("logprobs") == pytest.approx(other.pop("logprobs"), abs=1e-3)
            assert one == other
        return theirs

    def _rows(self, worker: Worker, asked: Sequence[tuple[str, tuple[str, ...], int]]) -> list[Row]:
        prompts = [Prompt(None, text, 0, 0.0, 1.0, most) for text, _, most in asked]
        requests = [
            replace(request, stop=stop)
            for request, (_, stop, _) in zip(worker.requests(prompts), asked, strict=True)
        ]
        completions = worker.sampler.generate(requests)
        return [worker.row(*each) for each in zip(prompts, requests, completions, strict=True)]

    def said(self, ids: Sequence[int]) -> str:
        return self.vllm.vocabulary.text(ids)


@pytest.fixture(scope="module", params=["smollm2-135m", "qwen2.5-coder-0.5b"])
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    path = NAMED[weights(request.param, fetch=request.param == "smollm2-135m")].path
    base = BaseSection(path=path, dialect=SPOKEN.name)
    spec = ModelSpec(base, AdapterSection(rank=8), base_digest(base.folder()))
    pair = Both(Worker(spec, 1), Worker(replace(spec, sampler=SamplerSection(engine="vllm")), 1))
    yield pair
    pair.torch.close()
    pair.vllm.close()


@pytest.mark.parametrize("name", INSIDE)
def test_a_completion_ends_with_the_token_in_which_its_stop_text_is_complete(both: Both, name: str) -> None:
    """Whatever else the token says is no text of the completion, and its id is kept."""
    prompt, stop = INSIDE[name]
    whole, ended = both.rows([(prompt, (), 24), (prompt, (stop,), 24)])
    ids = ended["completion_ids"]
    assert ids == whole["completion_ids"][: len(ids)] and len(ids) < 24
    assert stop in both.said(ids) and stop not in both.said(ids[:-1])
    assert ended["finish_reason"] == FinishReason.STOP
    assert ended["completion"] == both.said(ids).partition(stop)[0] + stop


def test_some_of_these_stop_texts_end_inside_of_a_token(both: Both) -> None:
    rows = both.rows([(prompt, (stop,), 24) for prompt, stop in INSIDE.values()])
    assert any(both.said(row["completion_ids"]) != row["completion"] for row in rows)


PROBLEMS = [
    Problem(f"{kind}-{number}", kind, program, (given,), (output,), "")
    for kind in ("code_o", "code_i")
    for number, (program, given, output) in enumerate(
        [
            ("def f(s):\n    return s", "('abc',)", "'abc'"),
            ("def f(xs):\n    return xs[::-1]", "([1, 2, 3],)", "[3, 2, 1]"),
            ("def f(text, n):\n    return text[:n]", "('noon', 2)", "'no'"),
            ("def f(n):\n    return n + 1", "(4,)", "5"),
            ("def f(d, key):\n    return d.get(key)", "({'a': 1}, 'a')", "1"),
        ]
    )
]


def judged(sandbox: Sandbox, rows: Sequence[Row], cut: CutAnswers = "refuse") -> list[AttemptJudgement]:
    return judge_attempts(
        SPOKEN,
        lambda jobs: verify_or_raise(sandbox, jobs, determinism=False),
        list(zip(PROBLEMS, rows, strict=True)),
        cut,
    )


@pytest.mark.sandbox
def test_an_answer_that_is_complete_but_cut_is_judged_where_a_setting_says_so(
    both: Both, sandbox: Sandbox
) -> None:
    """It is complete where the last token was the end of its line alone; `]` and that end may be one."""
    asked = [(text := SPOKEN.solve_prompt(problem), stops_of(SPOKEN, text), 48) for problem in PROBLEMS]
    whole = both.rows(asked)
    assert {row["finish_reason"] for row in whole} == {FinishReason.STOP}
    shorter = [
        (text, stop, row["completion_tokens"] - 1) for (text, stop, _), row in zip(asked, whole, strict=True)
    ]
    cut = both.rows(shorter)
    assert {row["finish_reason"] for row in cut} == {FinishReason.LENGTH}
    verdicts = [each.verdict for each in judged(sandbox, whole)]
    assert AttemptVerdict.CORRECT in verdicts
    assert {each.verdict for each in judged(sandbox, cut)} == {AttemptVerdict.FORMAT_ERROR}
    complete = [not both.said(row["completion_ids"][-1:]).strip() for row in whole]
    pairs = zip(complete, verdicts, judged(sandbox, cut, "judge"), strict=True)
    assert any(complete) and all(verdict is each.verdict for alone, verdict, each in pairs if alone)


def test_a_request_that_no_one_waits_for_ends_alone(both: Both) -> None:
    """The first is left after three tokens, the second ends by its stop text, and the third is as long as it may be."""
    requests = [
        Request(None, tuple(both.vllm.vocabulary.tokenizer(text)["input_ids"]), 0, 0.0, 1.0, 24, stop)
        for text, stop in ((PAIRS, ()), (SUMS, ("</answer>",)), (PAIRS, ()))
    ]
    for sampler in (both.torch.sampler, both.vllm.sampler):
        left, ended, longest = left_after_three(sampler, requests)
        alone = sampler.generate(requests[1:])
        assert [each.token_ids for each in alone] == [ended.token_ids, longest.token_ids]
        assert ended.finish_reason is FinishReason.STOP
        assert 3 <= len(left.token_ids) < 24 == len(longest.token_ids)
        assert left.token_ids == longest.token_ids[: len(left.token_ids)]
        assert left.finish_reason is FinishReason.LENGTH


def left_after_three(sampler: Sampler, requests: Sequence[Request]) -> list[Completion]:
    """The completions where no one waits for the first after its third token."""
    taken = Counter[int]()

    def drawn(places: Sequence[int], tokens: Sequence[int], logprobs: Sequence[float]) -> Collection[int]:
        taken.update(places)
        return [0] if taken[0] >= 3 else []

    return sampler.generate(requests, drawn=drawn)
