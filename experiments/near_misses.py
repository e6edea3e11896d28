"""Measure whether the right output of a program is likelier to a student than its near misses, beside its base.

    python -m experiments.near_misses runs/study-real/self-play-seed-0000 --output bench/results/real-near-misses.jsonl
    python -m experiments.near_misses --output bench/results/real-near-misses.jsonl

Such a score needs no parser and no sampling. A near miss is the output of the program with one statement left out,
where that runs and gives another value; without its return a program gives None. Of those that differ the first three
count, in the order of the statements left out, outer blocks before those in them. Problems with fewer are left out and
counted. A student is right where the log-probability of the right answer, its tokens and the end of its line summed, is
above those of its three near misses. A line of the output is one student or base; one that is there is not made again.
Without runs it prints the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from experiments.heldout import interval
from experiments.lines import append_lines, parser_of, read_lines
from populora_core.benchmarks.bundled import problem_of
from populora_core.benchmarks.cruxeval import same_value
from populora_core.benchmarks.items import suite_items
from populora_core.benchmarks.scores import BASE
from populora_core.benchmarks.suite import Part, load_suite
from populora_core.compute.work import Worker
from populora_core.lifecycle.run_evaluation import SOLVERS, chosen_members
from populora_core.problems.dialects import dialect
from populora_core.problems.grading import RunJobs
from populora_core.problems.model import Problem
from populora_core.problems.slack import without_each
from populora_core.problems.variants import Trial, outputs_of
from populora_core.report.text import markdown_table
from populora_core.runs.run import Run, open_runs
from populora_core.sampler.requests import Served, Text
from populora_core.sampler.spec import ModelSpec
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.sandbox.literals import canonical_text
from populora_core.sandbox.verify import verify_or_raise
from populora_core.stages.following import newest_generation
from populora_core.support.aliases import Row
from populora_core.support.shipped import REPOSITORY

SUITE = REPOSITORY / "configs" / "suites" / "cruxeval-outputs.toml"
MISSES = 3
DIALECT = "assert"
"""The dialect whose prompts end with `assert f(ARGS) ==`, so that an answer is a blank, a value and the line's end."""


def near_misses(problems: Sequence[Problem], run_jobs: RunJobs) -> list[list[str]]:
    """Up to three outputs of each problem, all different, that its program gives with one statement left out."""
    variants = [list(without_each(problem.program)) for problem in problems]
    # One by one: a variant that never ends would take the others with it.
    trials = [
        Trial(problem.problem_id, [variant], [(0, problem.inputs[0])])
        for problem, own in zip(problems, variants, strict=True)
        for variant in own
    ]
    found = iter(outputs_of(trials, run_jobs))
    return [
        _unlike(problem.outputs[0], [output for _ in own for output in next(found) or ()])
        for problem, own in zip(problems, variants, strict=True)
    ]


def _unlike(right: str, found: Iterable[str | None]) -> list[str]:
    """The first few outputs of which no two are the same value, nor the right one."""
    chosen: list[str] = []
    for output in found:
        if output is not None and not any(same_value(output, other) for other in (right, *chosen)):
            chosen.append(output)
    return chosen[:MISSES]


def texts(worker: Worker, member: str | None, problem: Problem, misses: Sequence[str]) -> list[Text]:
    """The right answer and the near misses, each behind the prompt of an attempt."""
    spoken, tokenizer = dialect(DIALECT), worker.vocabulary.tokenizer
    prompt = tuple(spoken.encode(tokenizer, spoken.solve_prompt(problem)))
    # All in the canonical form: a data set may write a dictionary's entries in another order.
    answers = [f" {output}\n" for output in (canonical_text(problem.outputs[0]), *misses)]
    return [
        Text(member, prompt, tuple(tokenizer(each, add_special_tokens=False)["input_ids"]))
        for each in answers
    ]


def preferred(
    worker: Worker, member: str | None, asked: Sequence[tuple[Problem, Sequence[str]]]
) -> dict[str, bool]:
    """Problem -> whether its right output is likelier than its near misses."""
    every = [texts(worker, member, problem, misses) for problem, misses in asked]
    scored = iter([sum(each) for each in worker.sampler.score([text for own in every for text in own])])
    found = {}
    for (problem, _), own in zip(asked, every, strict=True):
        right, *others = [next(scored) for _ in own]
        found[problem.problem_id] = right > max(others)
    return found


def named(run: Run) -> Row:
    """The arm and seed by which runs of a study are named, and the updates that were taken."""
    arm, _, seed = run.directory.name.rpartition("-seed-")
    return {"arm": arm, "seed": int(seed), "updates": newest_generation(run)}


def measured(run: Run, asked: Sequence[tuple[Problem, Sequence[str]]], known: set[str]) -> Iterator[Row]:
    """A row for the base unless that is known, then one for the run's student."""
    base, generation = run.config.base, newest_generation(run)
    spec = ModelSpec(base, run.config.adapters, run.record["base_digest"])
    worker = Worker(spec, run.config.compute.threads)
    members = chosen_members(run, generation, SOLVERS)
    worker.sampler.load(
        [Served(member, run.adapter_folder(member, generation), sha) for member, sha in members.items()]
    )
    if BASE not in known:  # first: with the student's row the run is not opened again
        yield {"arm": BASE, "seed": 0, "updates": 0, "player": BASE, "right": preferred(worker, None, asked)}
    for member in members:
        yield {**named(run), "player": member, "right": preferred(worker, member, asked)}


def of_seeds(rows: Iterable[Row]) -> list[list[dict[str, bool]]]:
    """The preferences of each seed's students, after the newest updates at which it was asked."""
    seeds: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        seeds[row["seed"]].append(row)
    return [
        [row["right"] for row in own if row["updates"] == max(each["updates"] for each in own)]
        for own in seeds.values()
    ]


def table(rows: Sequence[Row]) -> str:
    """Share of each arm, and what it gains over the base: paired by problem, over all seeds.

    A seed counts once: the mean of its students.
    """
    rng = np.random.default_rng(0)
    (told,) = (row for row in rows if row["player"] == BASE)
    base, counted = told["right"], f"{len(told['right'])} problems ({told['left_out']} left out)"
    lines: list[tuple[object, ...]] = [(BASE, "", f"{np.mean(list(base.values())):.3f} of {counted}", "")]
    for arm in sorted({row["arm"] for row in rows} - {BASE}):
        seeds = of_seeds(row for row in rows if row["arm"] == arm)
        share = np.mean([[np.mean([right[name] for right in own]) for name in base] for own in seeds], axis=0)
        gain = interval(share - np.array(list(base.values()), dtype=float), rng)
        lines.append((arm, len(seeds), f"{share.mean():.3f}", gain))
    return markdown_table(("arm", "seeds", "right answer preferred", "over the base"), lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "runs", type=Path, nargs="*", help="run directories, named ARM-seed-N as a study names them"
    )
    parser.add_argument(
        "--output", type=Path, required=True, help="JSON lines, to which results are appended"
    )
    given = parser.parse_args()
    rows = read_lines(given.output)
    there = {(row["arm"], row["seed"], row["updates"]) for row in rows}
    runs = open_runs(given.runs) if given.runs else []
    left = [run for run in runs if tuple(named(run).values()) not in there]
    if left:
        asked, left_out = problems_with_misses()
        for run in left:
            for row in measured(run, asked, {row["player"] for row in rows}):
                row["left_out"] = left_out
                append_lines(given.output, [row])
                rows.append(row)
    print(table(rows))


def problems_with_misses() -> tuple[list[tuple[Problem, list[str]]], int]:
    """The suite's problems that have three near misses, with these, and how many have fewer."""
    ((_, items),) = suite_items(load_suite(SUITE), Part.TEST)
    problems = [problem_of(item) for item in items]
    with open_sandbox("auto", Limits(), workers=1) as sandbox:
        found = near_misses(problems, lambda jobs: verify_or_raise(sandbox, jobs, determinism=False))
    asked = [(problem, own) for problem, own in zip(problems, found, strict=True) if len(own) == MISSES]
    left_out = len(problems) - len(asked)
    told = f"{len(asked)} of {len(problems)} problems have {MISSES} near misses"
    print(f"{told}, {left_out} are left out", flush=True)
    return asked, left_out


if __name__ == "__main__":
    main()
