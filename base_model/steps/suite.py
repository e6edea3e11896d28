"""Makes the held-out suite of the frontier base: ``python -m base_model.steps.suite``.

``--inputs 3 --out FOLDER`` makes one of three inputs a problem, for `configs/suites/frontier-3.toml`.

`code_o` problems of levels 2 to 8. The programs of level 2 to 5 are reserved ones (`grammar.reserved`), which the
corpus never shows; deeper programs are in no document at all.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from base_model.steps.grammar import SolvedProgram, read_input, read_statements, reserved, sample
from populora_core.benchmarks.suite import DATA
from populora_core.sandbox.literals import literal
from populora_core.support import ids

SEED = 30_260
MASTERED, EDGE, BEYOND = (2, 3), (4, 5), (6, 7, 8)
"""Levels that the documents hold well, rarely, and not at all."""
LEVELS = (*MASTERED, *EDGE, *BEYOND)
PROBLEMS_A_LEVEL = 200
SUITE = DATA / "frontier.parquet"


def make(seed: int = SEED, count: int = PROBLEMS_A_LEVEL, inputs: int = 1) -> list[SolvedProgram]:
    """Make `count` different reserved problems of each level, tight on their inputs; ordered in turns by level."""
    by_level = [_of_level(level, seed, count, inputs) for level in LEVELS]
    return [one for group in zip(*by_level, strict=True) for one in group]


def _of_level(level: int, seed: int, count: int, inputs: int) -> list[SolvedProgram]:
    rng = ids.generator(seed, "frontier", level)
    found: dict[SolvedProgram, None] = {}
    while len(found) < count:
        one = sample(rng, level, inputs, wanted=reserved)
        found[one] = None
    return list(found)


def rows(samples: list[SolvedProgram]) -> list[dict[str, object]]:
    """The suite's rows: columns as in the suite of the tiny base."""
    numbers: dict[int, int] = {}
    found = []
    for one in samples:
        number = numbers[one.level] = numbers.get(one.level, -1) + 1
        found.append(
            {
                "item_id": f"code_o-{one.level}-{number:03d}",
                "problem_type": "code_o",
                "level": one.level,
                "program": one.program,
                "inputs": [literal(state) for state in one.inputs],
                "outputs": [literal(list(output)) for output in one.outputs],
                "known_program": False,
            }
        )
    return found


def read_suite(path: Path = SUITE) -> list[SolvedProgram]:
    """The suite's problems as samples, in the order of the file."""
    table = pq.read_table(path, columns=["program", "inputs"]).to_pylist()
    return [SolvedProgram(read_statements(row["program"]), (read_input(row["inputs"][0]),)) for row in table]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=DATA)
    parser.add_argument("--inputs", type=int, default=1, help="of a problem")
    options = parser.parse_args()
    many = options.inputs
    if many > 1 and options.out == DATA:
        parser.error("the bundled suite has one input a problem: name another folder with --out")
    made = rows(make(inputs=many))
    name = "frontier" if many == 1 else "frontier_code_o"  # which `populora suite fetch --from` looks for
    options.out.mkdir(parents=True, exist_ok=True)
    target = options.out / f"{name}.parquet"
    pq.write_table(pa.Table.from_pylist(made), target, compression="zstd")
    recipe = {
        "made_by": "python -m base_model.steps.suite" + (f" --inputs {many}" if many > 1 else ""),
        "seed": SEED,
        "problems": {"code_o": {str(level): PROBLEMS_A_LEVEL for level in LEVELS}},
    }
    target.with_suffix(".json").write_text(json.dumps(recipe, indent=1) + "\n")
    print(f"{target}: {len(made)} problems")


if __name__ == "__main__":
    main()
