"""Students of runs that never met, as islands: each, their average, their vote and the best of them by validation.

    python -m experiments.islands runs/study-real/self-play-seed-000? --output bench/results/real-islands.jsonl
    python -m experiments.islands --output bench/results/real-islands.jsonl

All answer the same suite greedily beside their base. The best is chosen on one half of its problems and scored on the
other, both ways. Without runs it prints the table: every score, and its gain over the mean student, paired by problem.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.heldout import interval
from experiments.lines import append_lines, parser_of
from populora_core.benchmarks.metrics import voted
from populora_core.benchmarks.scores import BASE
from populora_core.benchmarks.suite import Part, Suite, load_suite
from populora_core.lifecycle.mixing import mixed
from populora_core.lifecycle.run_evaluation import SOLVERS, chosen_members
from populora_core.report.text import markdown_table
from populora_core.runs.run import Run, open_runs
from populora_core.runs.session import Session
from populora_core.stages.evaluation import BASE_PLAYER, Exam, Player, answers
from populora_core.stages.following import newest_generation
from populora_core.support.aliases import Row
from populora_core.support.errors import StudyError
from populora_core.support.ids import draw_seed
from populora_core.support.shipped import REPOSITORY

SUITE = REPOSITORY / "configs" / "suites" / "cruxeval-outputs.toml"
AVERAGE, VOTE, BEST = "average", "vote", "best by validation"


def students(runs: Sequence[Run]) -> list[Player]:
    """The last student of every run, by the run's name.

    Raises:
        StudyError: runs on different bases, or one with several students.
    """
    found = []
    for run in runs:
        generation = newest_generation(run)
        members = chosen_members(run, generation, SOLVERS)
        if len(members) != 1 or run.record["base_digest"] != runs[0].record["base_digest"]:
            raise StudyError(
                "islands are runs of one student each on one base",
                got=f"{run.directory.name}: {', '.join(members)}",
                fix="name such runs alone",
            )
        ((member, sha256),) = members.items()
        found.append(Player(run.directory.name, sha256, run.adapter_folder(member, generation)))
    return found


def measured(runs: Sequence[Run], suite: Suite) -> Row:
    """The answers of base, students, average and vote: player -> problem -> right or not.

    A problem of which an answer could not be judged is left out.
    """
    islands = students(runs)
    adapters = draw_seed(0, *(island.adapter_sha256 for island in islands))
    work, generation = runs[0].directory / f"islands-{adapters:x}", newest_generation(runs[0])
    with Session(runs[0]) as session:
        folders = {island.member_id: island.folder for island in islands if island.folder is not None}
        average, energy = mixed(session.shards(work.name, work), AVERAGE, folders, 0)
        exam = Exam(suite, Part.TEST, [BASE_PLAYER, *islands, average])
        rows = answers(session, exam, generation, work / Part.TEST).to_pylist()
    failed = {row["item_id"] for row in rows if row["correct"] is None}
    given: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["item_id"] not in failed:
            given.setdefault(row["member_id"], {})[row["item_id"]] = row
    right = {player: {item: row["correct"] for item, row in own.items()} for player, own in given.items()}
    right[VOTE] = vote([given[island.member_id] for island in islands])
    return {
        "suite": suite.suite,
        "updates": [newest_generation(run) for run in runs],
        "energy_kept": round(energy, 4),
        "right": right,
    }


def vote(given: Sequence[Mapping[str, Row]]) -> dict[str, bool]:
    """Problem -> right or not, of the answer that most students give; of equally frequent ones, that of the first."""
    found = {}
    for item in given[0]:
        rows = [own[item] for own in given]
        place = voted([row["answer"] for row in rows])
        found[item] = place is not None and rows[place]["correct"]
    return found


def best(right: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Right answers of the student that was best on the other half of the problems, problem by problem."""
    problems = len(next(iter(right.values())))
    halves = np.arange(problems) % 2 == 0  # neighbours have nothing in common
    found = np.empty(problems)
    for half in (halves, ~halves):
        chosen = max(sorted(right), key=lambda student: right[student][~half].mean())
        found[half] = right[chosen][half]
    return found


def table(row: Row) -> str:
    """Scores, and gains over the mean student with 95 % intervals of a bootstrap over problems."""
    rng = np.random.default_rng(0)
    items = sorted(row["right"][BASE])
    scores = {player: np.array([own[item] for item in items], float) for player, own in row["right"].items()}
    islands = {name: own for name, own in scores.items() if name not in (BASE, AVERAGE, VOTE)}
    mean = np.mean(list(islands.values()), axis=0)
    lines: Iterable[tuple[str, NDArray[np.float64]]] = (
        (BASE, scores[BASE]),
        *islands.items(),
        ("mean student", mean),
        (BEST, best(islands)),
        (VOTE, scores[VOTE]),
        (AVERAGE, scores[AVERAGE]),
    )
    return markdown_table(
        ("who", f"of {len(items)}", "over the mean student"),
        [
            (name, f"{own.mean():.3f}", "" if own is mean else interval(own - mean, rng))
            for name, own in lines
        ],
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("runs", type=Path, nargs="*", help="run directories")
    parser.add_argument(
        "--output", type=Path, required=True, help="JSON lines, to which the result is appended"
    )
    parser.add_argument("--suite", type=Path, default=SUITE)
    options = parser.parse_args()
    if options.runs:
        append_lines(options.output, [measured(list(open_runs(options.runs)), load_suite(options.suite))])
    for line in options.output.read_text().splitlines():
        print(table(json.loads(line)))


if __name__ == "__main__":
    main()
