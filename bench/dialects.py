"""Dialects that a small pretrained base can answer in: the same problems in each, and as a chat.

    python -m bench.dialects --base qwen2.5-coder-0.5b --form assert --type code_o --problems 24 \\
        --data cruxeval.jsonl --output bench/results/dialects.jsonl

The problems are the first of CRUXEval's by the sha256 of their ids, those that a run may play. One answer to each:
an answer is read if it has a value, and right if the value is. `chat` asks by the model's own chat template, with the
dialect's two examples as turns before, and reads an answer as `assert` reads it, in backticks too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from populora_core.benchmarks import cruxeval
from populora_core.benchmarks.files import read_rows
from populora_core.benchmarks.items import in_order
from populora_core.compute.work import Worker
from populora_core.config.sections import AdapterSection, BaseSection
from populora_core.lifecycle.trial import Measure
from populora_core.model.base import base_digest
from populora_core.problems.dialects import dialect, stops_of
from populora_core.problems.dialects.notation import ASSERT
from populora_core.problems.dialects.seeds import SEEDS, SHOWN
from populora_core.problems.grading import judge_attempts
from populora_core.problems.model import Problem
from populora_core.problems.parsing import read_arguments, read_output, read_program
from populora_core.problems.verdicts import AttemptVerdict
from populora_core.runs.any_base import base_settings
from populora_core.sampler.requests import Request
from populora_core.sampler.spec import ModelSpec
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.sandbox.verify import verify_or_raise
from populora_core.support import ids
from populora_core.support.digest import file_sha256
from populora_core.support.revision import code_revision

CHAT = "chat"
CALL = "assert f"
"""The end of a prompt whose answer has one line."""
ASKED = {
    "code_o": "```python\n{program}\n```\nWhat does `{call}` return? Answer with the value alone, on one line.",
    "code_i": "```python\n{program}\n```\nWhich call of `f` returns `{output}`? Answer with the call alone.",
}
PLAYED = 200
"""Number of CRUXEval's problems, first by their hashes, that may be played and looked at."""


def problems(file: Path, kind: str, count: int) -> list[Problem]:
    """The first problems of the part that may be played."""
    rows = {str(row["id"]): row for row in read_rows(file, file_sha256(file)) if not cruxeval.refused(row)}
    return [
        Problem(
            name,
            kind,
            read_program(rows[name]["code"]),
            (read_arguments(rows[name]["input"]),),
            (read_output(rows[name]["output"]),),
            "",
        )
        for name in in_order(rows)[: min(count, PLAYED)]
    ]


def chat_turns(problem: Problem) -> list[dict[str, str]]:
    """The examples as turns, and the question."""
    shown = [seed.problem(problem.problem_type, 0, 1) for seed in SEEDS[:SHOWN]]
    turns = []
    for each in (*shown, problem):
        call = ASSERT.call(each.inputs[0]).removeprefix("assert ")
        asked = ASKED[each.problem_type].format(program=each.program, call=call, output=each.outputs[0])
        answer = each.outputs[0] if each.problem_type == "code_o" else call
        turns += [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    return turns[:-1]


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    """One row of the results."""
    settings = (
        base_settings(asked.base) | {"dtype": asked.dtype} if asked.dtype else base_settings(asked.base)
    )
    base = BaseSection.model_validate(settings)
    worker = Worker(ModelSpec(base, AdapterSection(), base_digest(base.folder())), asked.threads)
    worker.stacked.load({})
    tokenizer = worker.vocabulary.tokenizer
    spoken = dialect("assert" if asked.form == CHAT else asked.form)
    given = problems(asked.data, asked.type, asked.problems)

    def request(place: int, problem: Problem) -> Request:
        if asked.form == CHAT:
            text = tokenizer.apply_chat_template(
                chat_turns(problem), add_generation_prompt=True, tokenize=False
            )
            prompt, stop = tokenizer(text, add_special_tokens=False)["input_ids"], stops_of(spoken, CALL)
        else:
            text = spoken.solve_prompt(problem)
            prompt, stop = spoken.encode(tokenizer, text), stops_of(spoken, text)
        draw = ids.draw_seed(asked.seed, place)
        return Request(None, tuple(prompt), draw, asked.temperature, 1.0, asked.max_tokens, stop)

    requests = [request(place, problem) for place, problem in enumerate(given)]
    began = time.perf_counter()
    completions = worker.sampler.generate(requests)
    seconds = time.perf_counter() - began
    answers = []
    for problem, completion in zip(given, completions, strict=True):
        kept = [token for token in completion.token_ids if token not in worker.vocabulary.stop_ids]
        text = worker.vocabulary.text(tuple(kept))
        if asked.form == CHAT:
            text = f" {text.strip().strip('`')}\n"
            text = text.strip().removeprefix("f") if asked.type == "code_i" else text
        answers.append((problem, {"completion": text, "finish_reason": str(completion.finish_reason)}))
    with open_sandbox("auto", Limits(), workers=1) as sandbox:
        judged = judge_attempts(
            spoken, lambda jobs: verify_or_raise(sandbox, jobs, determinism=False), answers
        )
    unread = (AttemptVerdict.FORMAT_ERROR, AttemptVerdict.SYNTAX_ERROR)
    read = Measure("read", sum(each.verdict not in unread for each in judged), len(judged), 0.95)
    right = Measure(
        "right", sum(each.verdict is AttemptVerdict.CORRECT for each in judged), len(judged), 0.15
    )
    return {
        "base": base.path,
        "form": asked.form,
        "type": asked.type,
        "temperature": asked.temperature,
        "seed": asked.seed,
        "problems": len(given),
        "read": read.hits,
        "read_interval": [round(end, 3) for end in read.interval],
        "right": right.hits,
        "right_interval": [round(end, 3) for end in right.interval],
        "prompt_tokens": round(sum(len(each.prompt_ids) for each in requests) / len(requests)),
        "answer_tokens": round(sum(len(each.token_ids) for each in completions) / len(completions), 1),
        "seconds": round(seconds),
        "data_sha256": file_sha256(asked.data),
        "code_revision": code_revision(),
        "unread": [
            answer["completion"]
            for (_, answer), each in zip(answers, judged, strict=True)
            if each.verdict in unread
        ][:8],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and append a row."""
    parser = argparse.ArgumentParser(prog="python -m bench.dialects")
    parser.add_argument("--base", required=True)
    parser.add_argument("--form", required=True, help="a dialect, or chat")
    parser.add_argument("--type", default="code_o", choices=sorted(ASKED))
    parser.add_argument("--problems", type=int, default=24)
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="", choices=("", "float32", "bfloat16"))
    parser.add_argument("--data", type=Path, required=True, help="CRUXEval's rows")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args(arguments)
    row = measured(asked)
    with asked.output.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print({key: value for key, value in row.items() if key not in ("base", "data_sha256")})


if __name__ == "__main__":
    main()
