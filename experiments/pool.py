"""Make a pool of the base's own problems, drawn by p(1 - p): the control of configs/study-real.toml without a teacher.

    populora run --config configs/real.toml --run-dir runs/real-pool --set run.seed=100 --set run.generations=5 \
        --set propose.per_type=96 --set anchors.share=0.0 --set update.roles=students --set update.learning_rate=1e-12 \
        --set compute.threads=1
    python -m experiments.pool runs/real-pool --output bench/results/study-real/pool.jsonl

No one learns in such a run: the learning rate is too small to move anything. A problem that k of n attempts solve is
written k (n - k) times, so that who draws any row draws problems by the variance of an attempt.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from experiments.lines import parser_of
from populora_core.store.catalogue import Catalogue
from populora_core.support.aliases import Row
from populora_core.support.durable import write_atomically

PLAYED = """
    SELECT problem_type, program, inputs, message, solve_rate, n_attempts
    FROM problems WHERE solve_rate IS NOT NULL ORDER BY problem_id
"""
WRITTEN = ("problem_type", "program", "inputs", "message")


def pool(problems: Iterable[Row]) -> Iterator[Row]:
    """Rows of a data set of anchors: each problem k (n - k) times."""
    for row in problems:
        solved = round(row["solve_rate"] * row["n_attempts"])
        yield from [{key: row[key] for key in WRITTEN}] * (solved * (row["n_attempts"] - solved))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("run", type=Path, help="a run in which no one learns")
    parser.add_argument("--output", type=Path, required=True, help="a .jsonl file")
    given = parser.parse_args()
    problems = Catalogue(given.run).rows(PLAYED)
    rows = list(pool(problems))
    write_atomically(given.output, "".join(json.dumps(row) + "\n" for row in rows))
    unlike = len({json.dumps(row) for row in rows})
    print(f"{given.output}: {unlike} of {len(problems)} problems, in {len(rows)} rows")


if __name__ == "__main__":
    main()
