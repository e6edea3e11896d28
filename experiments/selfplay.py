"""Did a run's teachers go deeper, or luckier, and are its solvers lifted? A line a run, and a table.

    populora evaluate RUN --suite configs/suites/frontier.toml --members solvers
    python -m experiments.selfplay RUN [RUN ...] --output bench/results/frontier-selfplay.jsonl

Problems of the first and of the last generations are compared: their level (statements that matter: the sandbox
leaves out each), the statements that they execute, chance, and how many of their attempts are right, by their
number of statements too. Generation 1 stands for the base, since its teachers have learnt nothing yet. Held-out
scores are greedy, on the reported half of the suite, paired by problem with the base; every level counts alike; and
again over the problems that a solver who stops early hardly ever gets right. Intervals are 95 %: 1.96 standard errors
over problems.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from base_model.steps.problems import there_early
from base_model.steps.suite import BEYOND, EDGE, read_suite
from base_model.steps.suite import rows as suite_rows
from experiments.lines import append_lines, parser_of
from populora_core.problems.grading import RunJobs
from populora_core.problems.model import Problem
from populora_core.problems.slack import slacks
from populora_core.report.text import markdown_table
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Job, Limits
from populora_core.sandbox.verify import verify_or_raise
from populora_core.store.catalogue import Catalogue
from populora_core.support.aliases import Row
from populora_core.support.revision import code_revision
from populora_plugins.study.steps import counting

WINDOW = 10  # generations at either end of a run
MEASURED = 400  # problems of a window whose slack and steps are measured
EARLY = 0.1  # a problem that more of its program's beginnings solve is left out of the second score
BANDS = {"edge": EDGE, "levels_2_5": (2, 3, *EDGE), "beyond": BEYOND}
PROBLEMS = """
    SELECT problem_id, problem_type, program, inputs, outputs, chance, solve_rate, lines_of_code
    FROM problems WHERE teacher_id <> 'anchor' AND generation BETWEEN $first AND $last ORDER BY problem_id
"""
SCORES = """
    WITH newest AS (
        SELECT max(generation) AS generation FROM evaluation_items WHERE suite = $suite AND part = 'test'
    )
    SELECT e.stratum, e.item_id, avg(e.correct::INT) FILTER (e.member_id <> 'base') AS solvers,
           avg(e.correct::INT) FILTER (e.member_id = 'base') AS base
    FROM evaluation_items e JOIN newest USING (generation)
    WHERE e.suite = $suite AND e.part = 'test' AND e.temperature = 0
    GROUP BY ALL ORDER BY ALL
"""


def result(run_dir: Path, suite: str, also: Sequence[str], run_jobs: RunJobs) -> Row:
    """Results of one run: every figure as [value, half-width of its interval], shares by level as they are."""
    catalogue = Catalogue(run_dir)
    last = catalogue.rows("SELECT max(generation) AS last FROM problems")[0]["last"]
    windows = {"base": (1, 1), "first": (1, WINDOW), "last": (last - WINDOW + 1, last)}
    found: Row = {
        "run": run_dir.name,
        "seed": json.loads((run_dir / "run.json").read_text())["config"]["run"]["seed"],
        "generations": last,
        "code": code_revision(),
    }
    rows = {
        name: catalogue.rows(PROBLEMS, {"first": first, "last": end})
        for name, (first, end) in windows.items()
    }
    for name, problems in rows.items():
        solved = np.array([row["solve_rate"] for row in problems if row["solve_rate"] is not None])
        chance = np.array([row["chance"] for row in problems])
        found[name] = {
            "problems": len(problems),
            "solve_rate": _mean(solved),
            "learnable": _mean((solved > 0.0) & (solved < 1.0)),
            "chance": _mean(chance),
            "guessable": _mean(chance > 0.2),
            "by_statements": by_statements(problems),
        }
    measured = {name: depth(_spread(rows[name]), run_jobs) for name in ("first", "last")}
    for what in ("level", "steps"):
        for name, values in measured.items():
            found[name][what] = _mean(values[what])
        found[f"{what}_rise"] = _difference(measured["first"][what], measured["last"][what])
    found["chance_rise"] = _difference(*([row["chance"] for row in rows[name]] for name in ("base", "last")))
    scores = catalogue.rows(SCORES, {"suite": suite})
    early = solved_early()
    found["held_out"] = held_out(scores)
    found["held_out_not_early"] = held_out([row for row in scores if row["item_id"] not in early])
    for other in also:
        found[f"held_out_{other}"] = held_out(catalogue.rows(SCORES, {"suite": other}))
    return found


def by_statements(rows: Sequence[Row]) -> Row:
    """Statements of a program -> [its share of the problems, how many of their attempts are right]."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row["solve_rate"] is not None:
            found.setdefault(row["lines_of_code"] - 2, []).append(row["solve_rate"])
    played = sum(map(len, found.values()))
    return {
        str(count): [round(len(rates) / played, 3), round(float(np.mean(rates)), 3)]
        for count, rates in sorted(found.items())
    }


def depth(rows: Sequence[Row], run_jobs: RunJobs) -> dict[str, list[float]]:
    """Statements of each problem that matter, and those that are executed."""
    problems = [
        Problem(
            row["problem_id"],
            row["problem_type"],
            row["program"],
            tuple(row["inputs"]),
            tuple(row["outputs"]),
            message="",
        )
        for row in rows
    ]
    unused = slacks(problems, run_jobs)
    jobs = [Job(one.problem_id, counting(one.program), one.inputs) for one in problems]
    counts = [list(map(int, done.outputs or ())) for done in run_jobs(jobs)]
    return {
        # as problems.level, whether or not the run measured slack
        "level": [
            (row["lines_of_code"] - 1) * (1 - slack) - 1
            for row, slack in zip(rows, unused, strict=True)
            if slack is not None
        ],
        "steps": [float(np.mean(each)) for each in counts if each],
    }


def held_out(rows: Sequence[Row]) -> Row:
    """Level -> [base, solvers]; band -> [gain, half-width]."""
    by_level: dict[int, NDArray[np.float64]] = {}
    for stratum in sorted({row["stratum"] for row in rows}):  # "level 2"
        pairs = [(row["base"], row["solvers"]) for row in rows if row["stratum"] == stratum]
        by_level[int(stratum.split()[-1])] = np.array(pairs, dtype=np.float64)
    found: Row = {
        str(level): [round(float(x), 3) for x in pairs.mean(0)] for level, pairs in by_level.items()
    }
    for band, levels in BANDS.items():
        gains = [by_level[level] @ [-1.0, 1.0] for level in levels]
        variance = sum(float(gain.var(ddof=1)) / len(gain) for gain in gains) / len(gains) ** 2
        mean = float(np.mean([gain.mean() for gain in gains]))
        found[band] = [round(mean, 4), round(1.96 * variance**0.5, 4)]
    return found


def solved_early() -> set[str]:
    """The suite's problems that who stops early often gets right, by their ids."""
    suite = read_suite()
    ids = (str(row["item_id"]) for row in suite_rows(suite))
    return {item_id for item_id, one in zip(ids, suite, strict=True) if there_early(one) > EARLY}


def _spread(rows: Sequence[Row]) -> list[Row]:
    """Every k-th row, so that all generations and teachers stay represented."""
    return list(rows[:: max(1, len(rows) // MEASURED)])


def _mean(values: Sequence[float] | NDArray) -> list[float]:
    taken = np.asarray(values, dtype=np.float64)
    return [round(float(taken.mean()), 4), round(1.96 * float(taken.std(ddof=1)) / len(taken) ** 0.5, 4)]


def _difference(before: Sequence[float], after: Sequence[float]) -> list[float]:
    (first, wide), (last, wider) = _mean(before), _mean(after)
    return [round(last - first, 4), round(float(np.hypot(wide, wider)), 4)]


def table(results: Sequence[Row]) -> str:
    """The results as Markdown."""
    heads = ("run", "level", "rise", "steps, rise", "chance, base's to last", "above .2", "solved, last")
    scores = (*BANDS, *(f"{band}, not early" for band in BANDS))
    lines = []
    for one in results:
        first, last = one["first"], one["last"]
        lines.append(
            (
                one["run"],
                f"{first['level'][0]:.2f} to {last['level'][0]:.2f}",
                *(f"{one[rise][0]:+.2f} ± {one[rise][1]:.2f}" for rise in ("level_rise", "steps_rise")),
                f"{one['base']['chance'][0]:.3f} to {last['chance'][0]:.3f}",
                f"{one['base']['guessable'][0]:.3f} to {last['guessable'][0]:.3f}",
                f"{last['solve_rate'][0]:.2f}",
                *(
                    f"{one[scores][band][0]:+.3f} ± {one[scores][band][1]:.3f}"
                    for scores in ("held_out", "held_out_not_early")
                    for band in BANDS
                ),
            )
        )
    return markdown_table((*heads, *scores), lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="run directories, evaluated on the suite")
    parser.add_argument("--suite", default="frontier", help="its name")
    parser.add_argument(
        "--also", nargs="*", default=(), help="names of other suites that they were evaluated on"
    )
    parser.add_argument("--output", type=Path, help="a file of JSON lines, to which the results are appended")
    given = parser.parse_args()
    with open_sandbox("auto", Limits(), workers=1) as sandbox:
        results = [
            result(
                run, given.suite, given.also, lambda jobs: verify_or_raise(sandbox, jobs, determinism=False)
            )
            for run in given.runs
        ]
    if given.output:
        append_lines(given.output, results)
    print(table(results))


if __name__ == "__main__":
    main()
