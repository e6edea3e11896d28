"""The base by its prompt: none, two or four examples before a question.

    populora run --config configs/real-arms/oracle.toml --run-dir runs/shown-4 --set run.generations=1 \\
        --set base.dialect=experiments.shown:four
    python -m experiments.by_prompt runs/shown-0 runs/shown-2 runs/shown-4 --output bench/results/real-shown.jsonl
    python -m experiments.by_prompt --output bench/results/real-shown.jsonl

The base of each run answers a suite greedily, and eight times at temperature 0.6: by the mean of the eight answers, and
by the most frequent one. What is there of a dialect is not made again. Without runs it prints the table, with 95 %
intervals over problems.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from experiments.heldout import GREEDY, asked, interval
from experiments.lines import append_lines, parser_of, read_lines
from populora_core.benchmarks.metrics import maj_at_k, mean_interval
from populora_core.benchmarks.suite import Part, load_suite
from populora_core.report.text import markdown_table
from populora_core.runs.run import Run, open_runs
from populora_core.runs.session import Session
from populora_core.stages.evaluation import BASE_PLAYER, Exam, answers
from populora_core.stages.following import newest_generation
from populora_core.store.rows import EvaluationItemRow
from populora_core.support.aliases import Row
from populora_core.support.shipped import REPOSITORY

SUITE = REPOSITORY / "configs" / "suites" / "cruxeval-outputs.toml"
ATTEMPTS, TEMPERATURE = 8, 0.6
MEAN, MAJORITY = f"mean of {ATTEMPTS}", f"maj@{ATTEMPTS}"
AS_PLAYED, GAIN = "assert", "greedy over `assert`"


def answered(run: Run, suite: Path, attempts: int) -> dict[str, list[EvaluationItemRow]]:
    """Problem -> the base's answers in the run's dialect; problems that infrastructure failed are left out."""
    exam = Exam(asked(load_suite(suite), attempts, TEMPERATURE * (attempts > 1)), Part.TEST, [BASE_PLAYER])
    with Session(run) as session:
        items = answers(session, exam, newest_generation(run), run.directory / "shown").to_pylist()
    found: dict[str, list[EvaluationItemRow]] = defaultdict(list)
    for item in items:
        found[item["item_id"]].append(item)
    return {name: own for name, own in found.items() if all(item["correct"] is not None for item in own)}


def measured(run: Run, suite: Path) -> Iterator[Row]:
    """A row for each measure: problem -> its score."""
    greedy, several = answered(run, suite, 1), answered(run, suite, ATTEMPTS)
    correct = {name: [bool(item["correct"]) for item in own] for name, own in several.items()}
    found = {
        GREEDY: {name: float(bool(own[0]["correct"])) for name, own in greedy.items()},
        MEAN: {name: float(np.mean(right)) for name, right in correct.items()},
        MAJORITY: {
            name: round(maj_at_k([item["answer"] for item in own], correct[name], ATTEMPTS), 4)
            for name, own in several.items()
        },
    }
    for measure, scores in found.items():
        yield {"dialect": run.config.base.dialect, "measure": measure, "scores": scores}


def table(rows: Sequence[Row]) -> str:
    """A line for each dialect: its measures, and the greedy one over that of `assert`, paired by problem."""
    cells: dict[str, dict[str, str]] = defaultdict(dict)
    greedy = {row["dialect"]: row["scores"] for row in rows if row["measure"] == GREEDY}
    for row in rows:
        mean = mean_interval([[*row["scores"].values()]], np.random.default_rng(0))
        cells[row["dialect"]][row["measure"]] = f"{mean.value:.3f} ({mean.low:.3f} to {mean.high:.3f})"
    for name in greedy.keys() - {AS_PLAYED} if AS_PLAYED in greedy else ():
        both = greedy[name].keys() & greedy[AS_PLAYED].keys()
        gains = [greedy[name][item] - greedy[AS_PLAYED][item] for item in sorted(both)]
        cells[name][GAIN] = interval(np.array(gains), np.random.default_rng(0))
    measures = (GREEDY, MEAN, MAJORITY, GAIN)
    return markdown_table(
        ("dialect", *measures),
        [(name, *(own.get(each, "") for each in measures)) for name, own in cells.items()],
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("runs", nargs="*", help="run directories")
    parser.add_argument("--output", type=Path, required=True, help="JSON lines")
    parser.add_argument("--suite", type=Path, default=SUITE)
    options = parser.parse_args()
    rows = read_lines(options.output)
    done = {row["dialect"] for row in rows}
    runs = open_runs(options.runs) if options.runs else []
    for run in (run for run in runs if run.config.base.dialect not in done):
        new = [*measured(run, options.suite)]
        append_lines(options.output, new)
        rows += new
    print(table(rows))


if __name__ == "__main__":
    main()
