"""Share of a run's right answers whose whole thought is right: what is left is luck, whatever guessers reach.

    populora evaluate RUN --suite configs/suites/frontier.toml --members solvers
    python -m experiments.thoughts RUN [RUN ...] --output FILE

Answers are the students' attempts in the first and the last generations, and every player's greedy ones to the reported
half of the suites that the run was last evaluated on. On the frontier base a thought has a line a step, and the grammar
of its programs says what each line must be (base_model/frontier.md); no program is run for it. A thought is right if no
line is wrong, missing or too many. What is asked about other programs is counted apart. Intervals are 95 %, Wilson's,
which take answers to one problem for independent ones.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from base_model.measure import share_interval
from base_model.steps.grammar import SolvedProgram, output, read_input, read_statements
from base_model.steps.problems import whole
from experiments.lines import append_lines, parser_of
from populora_core.report.text import markdown_table
from populora_core.store.catalogue import Catalogue
from populora_core.support.aliases import Row
from populora_core.support.revision import code_revision

WINDOW = 10  # generations at either end of a run
ATTEMPTS = """
    SELECT prompt, completion FROM attempts
    WHERE verdict = 'correct' AND prompt LIKE '<so>%' AND generation BETWEEN $first AND $last
"""
EVALUATED = """
    SELECT suite, member_id, prompt, completion FROM evaluation_items
    WHERE correct AND prompt LIKE '<so>%' AND part = 'test' AND temperature = 0
    QUALIFY generation = max(generation) OVER (PARTITION BY suite) ORDER BY suite, member_id
"""
_PROMPT = re.compile(r"<so>(.*)\n#(\d+),(\d+)\n:", re.DOTALL)


def asked(prompt: str) -> SolvedProgram | None:
    """The program and the input that a prompt asks about; None for what the grammar does not write."""
    found = _PROMPT.fullmatch(prompt)
    if found is None:
        return None
    program, x, y = found.groups()
    try:
        read = SolvedProgram(read_statements(program), (read_input(f"({x}, {y})"),))
        output(read.statements, read.inputs[0])
    except (KeyError, ValueError):  # another variable, or another form
        return None
    return read


def figures(right: Iterable[Row]) -> Row:
    """The number of right answers, the share of them with a whole thought, and both by the program's statements.

    Args:
        right: prompt and completion of each.
    """
    levels, outside = defaultdict[int, list[bool]](list), 0
    for row in right:
        if (problem := asked(row["prompt"])) is None:
            outside += 1
        else:
            levels[problem.level].append(whole(problem, row["completion"]))
    every = [each for own in levels.values() for each in own]
    return {
        "right": len(every),
        "outside": outside,
        "whole": share_interval(sum(every), len(every)) if every else None,
        "by_level": {
            str(level): [len(own), *share_interval(sum(own), len(own))]
            for level, own in sorted(levels.items())
        },
    }


def result(run_dir: Path) -> Row:
    """The figures of one run: whose answers -> figures."""
    catalogue = Catalogue(run_dir)
    last = catalogue.rows("SELECT max(generation) AS last FROM attempts")[0]["last"]
    right = defaultdict[str, list[Row]](list)
    for first, end in ((1, min(WINDOW, last)), (max(1, last - WINDOW + 1), last)):
        right[f"generations {first} to {end}"] = catalogue.rows(ATTEMPTS, {"first": first, "last": end})
    for row in catalogue.rows(EVALUATED):
        right[f"{row['suite']}, {row['member_id']}"].append(row)
    return {
        "run": run_dir.name,
        "seed": json.loads((run_dir / "run.json").read_text())["config"]["run"]["seed"],
        "code": code_revision(),
        "answers": {name: figures(rows) for name, rows in right.items()},
    }


def table(results: Sequence[Row]) -> str:
    """The results as Markdown."""
    return markdown_table(
        ("run", "answers", "right", "whole thought", "of other programs"),
        [
            (
                one["run"],
                name,
                found["right"],
                "{:.3f} ({:.3f} to {:.3f})".format(*found["whole"]) if found["whole"] else "",
                found["outside"],
            )
            for one in results
            for name, found in one["answers"].items()
        ],
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="run directories")
    parser.add_argument("--output", type=Path, help="a file of JSON lines, to which the results are appended")
    given = parser.parse_args()
    results = [result(run) for run in given.runs]
    if given.output:
        append_lines(given.output, results)
    print(table(results))


if __name__ == "__main__":
    main()
