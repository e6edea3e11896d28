"""Simulate the proof of a sampler from what was measured on two real bases: what it catches, refuses and leaves open.

    python -m experiments.proof --json bench/results/proof.json

Of two engines: `vllm` stands for one with a base of its own in bfloat16, which an update proves by the tokens that it
learns from; `torch` scores in float32, and every load proves it by the short text of a probe. Each proof is the
product's own, over figures of `experiments.proof_noise`: whole completions, or places in them, drawn with replacement.
A row's name ends with base, rate, and number of updates or planted fault:

- `effect`, `noise`: root mean square of member less base in float32, and of engine less learner, nats per token;
- `kept`: of that effect, what the member in bfloat16 has over the base, by regression, two standard errors either way;
- `refused`: updates that were refused although nothing was wrong;
- `open`: share of such updates where the proof cannot tell;
- `caught`: share of runs with a fault from the start on that are stopped by their fifth generation, whose proofs meet
  members of none to four updates. Those that were not measured stop no run, so the share is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bench.harness import BenchRow, as_json, print_table, single
from experiments.lines import parser_of
from populora_core.compute.proving import EARLIER, TOKENS
from populora_core.compute.work import PROBE_TOKENS
from populora_core.sampler.probe import BASE, REFUSE, WARN
from populora_core.sampler.proof import Logprobs, MismatchLimits, ProofResult, judge
from populora_core.support.durable import write_atomically
from populora_core.support.shipped import REPOSITORY
from populora_plugins.trial.trial import Measure

Passes = Mapping[str, Logprobs]
"""Column of `experiments.proof_noise` -> figures [completions, tokens], in nats."""

MEASURED = REPOSITORY / "bench" / "results" / "proof-noise.parquet"
MILLI = 1000.0
SEEN = {1e-6: (1, 4), 1e-5: (1, 4), 1e-4: (1, 2, 3, 4), 1e-3: (1, 4)}
"""Learning rate -> updates after which members are measured."""
UPDATES = 40_000
RUNS = 1000  # of each fault
OTHER_MEMBER = "another member"
KNOWN = {"base": BASE, "before": EARLIER, "other": OTHER_MEMBER}
"""Column -> policy that a member is held to, the other member in its turn."""
ROUNDED = MismatchLimits.of(WARN, REFUSE, "bfloat16")
EXACT = MismatchLimits.of(WARN, REFUSE, "float32")
TOLD_FROM, TOLD = 1e-4, 0.99
"""The rate from which on faults should be caught, and how often."""

SOUND = "own"
FAULTS = {"not_applied": "base", "stale": "before", "swapped": "other", "scaled": "half"}
"""Fault -> what is served in the member's place."""


def vllm(cell: Passes, served: str, rng: np.random.Generator) -> ProofResult:
    """One update's proof by what was sampled (`compute.proving`)."""
    completions, tokens = cell["exact_own"].shape
    chosen = rng.integers(completions, size=TOKENS // tokens)
    drawn = {name: figures[chosen].ravel() for name, figures in cell.items()}
    whole = {who: drawn[f"exact_{who}"] + drawn[f"whole_{who}"] for who in (SOUND, *KNOWN)}
    others = {name: whole[who] for who, name in KNOWN.items()}
    exact = {name: -drawn[f"exact_{who}"] for who, name in KNOWN.items()}
    return judge(
        drawn[f"exact_{served}"] + drawn[f"engine_{served}"], whole[SOUND], others, BASE, ROUNDED, exact
    ).told


def torch(cell: Passes, served: str, rng: np.random.Generator) -> ProofResult:
    """One load's proof by a probe, whole and without its last token (`sampler.probe`)."""
    completions, tokens = cell["exact_own"].shape

    def place() -> tuple[int, slice]:
        start = int(rng.integers(tokens - PROBE_TOKENS + 1))
        return int(rng.integers(completions)), slice(start, start + PROBE_TOKENS)

    at = place()
    policies = {
        who: _twice(cell[f"exact_{who}"][at], cell[f"exact_{who}"][at]) for who in (SOUND, *FAULTS.values())
    }
    noise = _twice(cell["float32"][place()], cell["float32"][place()])
    others = {name: policies[who] for who, name in KNOWN.items()}
    return judge(policies[served] + noise, policies[SOUND], others, BASE, EXACT).told


def _twice(whole: Logprobs, shorter: Logprobs) -> Logprobs:
    return np.concatenate([whole, shorter[:-1]])


ENGINES = {"vllm": vllm, "torch": torch}


def measured(path: Path = MEASURED) -> dict[tuple[str, float, int], Passes]:
    """Base, rate and updates -> what was measured there.

    The learner's pass over the other member was not: what bfloat16 rounds of the engine's on another completion stands
    for it, which has nothing in common with what is served.
    """
    table = pq.read_table(path)
    names = table.column_names[3:]
    found: dict[tuple[str, float, int], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        found.setdefault((row["base"], row["rate"], row["updates"]), []).append(row)
    cells = {
        key: {name: np.array([row[name] for row in rows], dtype=np.float64) / MILLI for name in names}
        for key, rows in found.items()
    }
    return {
        key: cell | {"whole_other": np.roll(cell["engine_other"], 1, axis=0)} for key, cell in cells.items()
    }


def run(
    cells: Mapping[tuple[str, float, int], Passes], updates: int = UPDATES, runs: int = RUNS
) -> Iterator[BenchRow]:
    """All figures; as many updates of each cell, and as many runs of each fault, base and rate."""
    for (base, rate, seen), cell in cells.items():
        at = f"{base}_{rate:g}_{seen}"
        yield single(f"effect_{at}", _size(cell["exact_base"]), "nats")
        yield single(f"noise_{at}", _size(cell["engine_own"] - cell["whole_own"]), "nats")
        yield kept(f"kept_{at}", cell)
    for engine, prove in ENGINES.items():
        refused = 0
        for number, ((base, rate, seen), cell) in enumerate(cells.items()):
            rng = np.random.default_rng([0, number])
            told = [prove(cell, SOUND, rng) for _ in range(updates // len(cells))]
            wrong, open_ = (told.count(each) for each in (ProofResult.WRONG, ProofResult.NOT_YET))
            yield _counted(f"refused_{engine}_{base}_{rate:g}_{seen}", wrong, len(told))
            yield _counted(f"open_{engine}_{base}_{rate:g}_{seen}", open_, len(told))
            refused += wrong
        yield BenchRow(f"refused_{engine}", refused, refused, refused, "updates", "<= 0", updates)
        places = dict.fromkeys((base, rate) for base, rate, _ in cells)
        for number, ((base, rate), (fault, served)) in enumerate(product(places, FAULTS.items())):
            rng = np.random.default_rng([1, number])
            caught = sum(
                any(prove(cells[base, rate, seen], served, rng) is ProofResult.WRONG for seen in SEEN[rate])
                for _ in range(runs)
            )
            goal = f">= {TOLD}" if rate >= TOLD_FROM else ""
            yield _counted(f"caught_{engine}_{base}_{rate:g}_{fault}", caught, runs, goal)


def kept(name: str, cell: Passes) -> BenchRow:
    """The share of a member's effect that is left in bfloat16, by the means of both passes."""
    way = -cell["exact_base"].ravel()
    rounded = (cell["whole_own"] + cell["engine_own"] - cell["whole_base"] - cell["engine_base"]).ravel() / 2
    share = 1.0 + float(rounded @ way) / float(way @ way)
    rest = rounded - (share - 1.0) * way
    error = float(np.sqrt((way**2) @ (rest**2))) / float(way @ way)
    return BenchRow(name, share, share - 2 * error, share + 2 * error, "share", "", way.size)


def _size(figures: Logprobs) -> float:
    return float(np.sqrt(np.mean(figures**2)))


def _counted(name: str, hits: int, total: int, goal: str = "") -> BenchRow:
    low, high = Measure(name, hits, total, 0.0).interval
    return BenchRow(name, hits / total, low, high, "share", goal, total)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    asked = parser.parse_args()
    rows = list(run(measured()))
    if asked.json:
        write_atomically(asked.json, as_json("proof", rows) + "\n")
    print_table("proof", rows)


if __name__ == "__main__":
    main()
