"""Answers of runs' students, and of their base, to both halves of a suite: greedy, and the mean of several samples.

    python -m experiments.heldout runs/oracle-0 runs/oracle-1 --output bench/results/real-oracle.jsonl
    python -m experiments.heldout --output bench/results/real-oracle.jsonl

The first half of a suite chooses settings, the second is reported, so what only chooses is measured with `--part
validation`. A line of the output is one student or base on one half; a line that is there is not made again. Without
runs it prints the table: gains over the base by setting, and over shuffled rewards where there are some, paired by
problem, over all seeds, with 95 % intervals of a bootstrap over problems.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.lines import append_lines, parser_of, read_lines
from populora_core.benchmarks.scores import BASE
from populora_core.benchmarks.suite import Part, Suite, load_suite
from populora_core.lifecycle.run_evaluation import SOLVERS, chosen_members
from populora_core.runs.run import Run, open_runs
from populora_core.runs.session import Session
from populora_core.stages.evaluation import BASE_PLAYER, Exam, answers, players_of
from populora_core.stages.following import newest_generation
from populora_core.support.aliases import Row
from populora_core.support.shipped import REPOSITORY

SUITE = REPOSITORY / "configs" / "suites" / "cruxeval-held-out.toml"
GREEDY = "greedy"
BOTH = "both"
"""The name of both halves together in a table."""
RESAMPLES = 10_000


def settings(run: Run) -> Row:
    """Settings by which tries differ."""
    update = run.config.update
    return {
        "dialect": run.config.base.dialect,
        "problems": Path(str(run.config.anchors.parameters.get("path", ""))).stem,
        "temperature": run.config.solve.temperature,
        "learning_rate": update.learning_rate,
        "kl": update.kl,
        "shuffled": update.shuffle_rewards,
        "updates": newest_generation(run),
        "seed": run.config.run.seed,
    }


def asked(suite: Suite, attempts: int, temperature: float) -> Suite:
    """The suite with several samples of a problem in place of the greedy answer."""
    changed = {"attempts": attempts, "temperature": temperature}
    return suite.model_copy(
        update={"benchmarks": tuple(e.model_copy(update=changed) for e in suite.benchmarks)}
    )


def shares_right(run: Run, suite: Suite, part: Part, finished: Path) -> dict[str, dict[str, float]]:
    """Student or base -> problem -> share of its answers that are right."""
    generation = newest_generation(run)
    players = [*players_of(chosen_members(run, generation, SOLVERS)), BASE_PLAYER]
    with Session(run) as session:
        items = answers(session, Exam(suite, part, players), generation, finished).to_pylist()
    found: dict[str, dict[str, list[bool]]] = {}
    for row in items:
        if row["correct"] is None:  # infrastructure failed
            continue
        found.setdefault(row["member_id"], {}).setdefault(row["item_id"], []).append(bool(row["correct"]))
    return {
        player: {item: round(float(np.mean(right)), 4) for item, right in own.items()}
        for player, own in found.items()
    }


def key(row: Row) -> tuple[object, ...]:
    return row["player"], row["part"], row["measure"], *row["settings"].values()


def measured(run: Run, suite: Suite, part: Part, measure: str, finished: Path) -> Iterator[Row]:
    for player, right in shares_right(run, suite, part, finished).items():
        yield {
            "player": player,
            "part": str(part),
            "measure": measure,
            "settings": settings(run),
            "right": right,
        }


def interval(of_problem: NDArray[np.float64], rng: np.random.Generator) -> str:
    """The mean over problems, with the 95 % interval of a bootstrap."""
    drawn = of_problem[rng.integers(0, len(of_problem), (RESAMPLES, len(of_problem)))].mean(axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return f"{of_problem.mean():+.3f} ({low:+.3f} to {high:+.3f})"


def over_shuffled(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each setting that was played with shuffled rewards too: by how much the true ones end above them."""
    rng = np.random.default_rng(0)
    groups: dict[tuple[object, ...], dict[bool, dict[str, list[float]]]] = {}
    for row in rows:
        if row["player"] != BASE:
            setting = tuple(
                value for name, value in row["settings"].items() if name not in ("seed", "shuffled")
            )
            own = groups.setdefault((*setting, row["measure"]), {False: {}, True: {}})
            for item, right in row["right"].items():
                own[row["settings"]["shuffled"]].setdefault(item, []).append(right)
    for group, played in groups.items():
        if items := played[False].keys() & played[True].keys():
            pairs = [np.mean(played[False][item]) - np.mean(played[True][item]) for item in sorted(items)]
            yield f"{group}, over shuffled rewards: {len(pairs)} problems, {interval(np.array(pairs), rng)}"


def whole(rows: Iterable[Row]) -> bool:
    """True if the student and the base of every seed were measured on both halves."""
    parts: dict[tuple[object, ...], set[str]] = defaultdict(set)
    for row in rows:
        parts[row["player"], row["settings"]["seed"]].add(row["part"])
    return all(len(own) == len(Part) for own in parts.values())


def table(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each setting, half and measure, and for both halves where every seed has them."""
    rng = np.random.default_rng(0)
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        setting = tuple(value for name, value in row["settings"].items() if name != "seed")
        for part in (row["part"], BOTH):
            groups.setdefault((*setting, part, row["measure"]), []).append(row)
    for group, own in groups.items():
        if BOTH in group and not whole(own):
            continue
        gains: dict[str, list[float]] = {}
        scores: dict[bool, list[float]] = {True: [], False: []}
        for row in own:
            scores[row["player"] == BASE] += row["right"].values()
            bases = [
                each
                for each in own
                if each["player"] == BASE
                and (each["settings"], each["part"]) == (row["settings"], row["part"])
            ]
            for item, right in row["right"].items() if row["player"] != BASE else ():
                gains.setdefault(item, []).append(right - bases[0]["right"][item])
        of_problem = np.array([np.mean(each) for each in gains.values()])
        seeds = len({row["settings"]["seed"] for row in own})
        yield (
            f"{group}: {len(of_problem)} problems, {seeds} seeds, base {np.mean(scores[True]):.3f}, students "
            f"{np.mean(scores[False]):.3f}, gain {interval(of_problem, rng)}"
        )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("runs", nargs="*", help="run directories")
    parser.add_argument("--output", type=Path, required=True, help="JSON lines")
    parser.add_argument("--suite", type=Path, default=SUITE)
    parser.add_argument(
        "--part", nargs="+", choices=[str(part) for part in Part], default=[str(part) for part in Part]
    )
    parser.add_argument("--attempts", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.6, help="of several attempts")
    options = parser.parse_args()
    rows = read_lines(options.output)
    suite, measure = load_suite(options.suite), GREEDY
    if options.attempts > 1:
        suite = asked(suite, options.attempts, options.temperature)
        measure = f"mean of {options.attempts} at {options.temperature:g}"
    done = {key(row) for row in rows}
    for run in open_runs(options.runs) if options.runs else ():
        for part in map(Part, options.part):
            new = [
                row
                for row in measured(run, suite, part, measure, run.directory / "heldout")
                if key(row) not in done
            ]
            append_lines(options.output, new)
            rows += new
    for line in (*table(rows), *over_shuffled(rows)):
        print(line)


if __name__ == "__main__":
    main()
