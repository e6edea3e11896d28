"""The base model's rates at temperature 1, with the project's own sampler and verifier.

    python -m base_model.measure [--base base_model/tiny] [--proposals 300]

For each problem type, without references: the share of proposals that are valid before duplicate and trivial
checks, the share of distinct programs among them, and the solve rate of the base on its own proposals. Then, with
one and two references, the validity and the shares that copy a reference or share a line of its body. Last, the
solve rate on fresh problems of every level of the grammar. Intervals are 95 %: Wilson's for shares, bootstrap over
problems for solve rates. Writes measured.json beside the base's folder and prints the card's tables.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from base_model.grammar import LEVEL_WEIGHTS, sample_problem
from populora_core.compute.arena import Arena
from populora_core.problems.grading import AttemptJudgement, ProposalCheck
from populora_core.problems.model import Problem
from populora_core.problems.normal import program_key
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.sandbox.literals import literal
from populora_core.support import ids
from populora_core.support.shipped import REPOSITORY

TYPES = ("code_o", "code_i", "code_f")
ATTEMPTS = 8
LEVEL_PROBLEMS = 60
_Figures = dict[str, Any]


def measure(arena: Arena, proposals: int, seed: int) -> list[_Figures]:
    """The figures of every problem type."""
    arena.load({"base": arena.newborn(seed)})
    rows = []
    for kind in TYPES:
        asked: list[tuple[str, Sequence[Problem]]] = [(kind, ())] * proposals
        _, checks = arena.propose("base", asked, ids.draw_seed(seed, kind))
        problems = _problems(checks, kind)
        _, judged = arena.solve("base", problems, ATTEMPTS, ids.draw_seed(seed, kind))
        rates = [rate for rate in solve_rates(judged, ATTEMPTS) if rate is not None]
        with_references = {}
        for shown in (1, 2):
            rng = ids.generator(seed, kind, shown)
            asked = [
                (kind, [problems[i] for i in rng.choice(len(problems), shown, replace=False)])
                for _ in range(proposals)
            ]
            _, referring = arena.propose("base", asked, ids.draw_seed(seed, kind, shown))
            pairs = [
                (check.draft.program, [reference.program for reference in references])
                for check, (_, references) in zip(referring, asked, strict=True)
                if check.draft is not None and _valid(check)
            ]
            copied = sum(program_key(own) in map(program_key, shown_ones) for own, shown_ones in pairs)
            shared = sum(bool(_body(own) & set().union(*map(_body, theirs))) for own, theirs in pairs)
            with_references[str(shown)] = {
                "valid": share_interval(len(pairs), proposals),
                "copies_of_a_reference": share_interval(copied, len(pairs)),
                "shares_a_line": share_interval(shared, len(pairs)),
            }
        valid = sum(map(_valid, checks))
        distinct = len({program_key(c.draft.program) for c in checks if _valid(c) and c.draft is not None})
        rows.append(
            {
                "problem_type": kind,
                "proposals": proposals,
                "valid": share_interval(valid, proposals),
                "trivial": sum(c.verdict is ProposalVerdict.TRIVIAL for c in checks),
                "distinct_programs": share_interval(distinct, valid),
                "solve_rate": mean_interval(rates, ids.generator(seed, kind, "bootstrap")),
                "never_solved": sum(rate == 0.0 for rate in rates) / len(rates),
                "always_solved": sum(rate == 1.0 for rate in rates) / len(rates),
                "with_references": with_references,
                "solve_rate_by_level": _by_level(arena, kind, seed),
            }
        )
    return rows


def solve_rates(judged: Sequence[AttemptJudgement], attempts: int) -> list[float | None]:
    """The share of correct attempts at each problem; None where infrastructure failed them all."""
    rates: list[float | None] = []
    for start in range(0, len(judged), attempts):
        verdicts = [j.verdict for j in judged[start : start + attempts]]
        counted = [v for v in verdicts if v is not AttemptVerdict.INFRASTRUCTURE]
        rates.append(sum(v is AttemptVerdict.CORRECT for v in counted) / len(counted) if counted else None)
    return rates


def _by_level(arena: Arena, kind: str, seed: int) -> dict[str, float]:
    """Level of the grammar -> mean solve rate of fresh problems."""
    found = {}
    for level in LEVEL_WEIGHTS[kind]:
        rng = ids.generator(seed, kind, "level", level)
        problems = []
        for index in range(LEVEL_PROBLEMS):
            program, inputs, outputs = sample_problem(rng, kind, level)
            literals = tuple(literal(tuple(arguments)) for arguments in inputs)
            problem_id = f"{kind}-{level}-{index:03d}"
            problems.append(Problem(problem_id, kind, program, literals, tuple(map(literal, outputs)), ""))
        _, judged = arena.solve("base", problems, ATTEMPTS, ids.draw_seed(seed, kind, level))
        rates = [rate for rate in solve_rates(judged, ATTEMPTS) if rate is not None]
        found[str(level)] = round(float(np.mean(rates)), 3)
    return found


def _body(program: str) -> set[str]:
    return {line.strip() for line in program.splitlines()[1:]}


def _valid(check: ProposalCheck) -> bool:
    """Valid before the duplicate and trivial checks."""
    return check.verdict in (ProposalVerdict.VALID, ProposalVerdict.TRIVIAL)


def _problems(checks: Sequence[ProposalCheck], kind: str) -> list[Problem]:
    return [
        check.draft.problem(f"{kind}-{index:04d}", check.outputs)
        for index, check in enumerate(checks)
        if check.verdict is ProposalVerdict.VALID and check.draft is not None
    ]


def share_interval(count: int, total: int) -> list[float]:
    """[share, low, high] with Wilson's interval."""
    z, p = 1.96, count / total
    middle = (p + z * z / (2 * total)) / (1 + z * z / total)
    half = z * np.sqrt(p * (1 - p) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return [round(float(value), 3) for value in (p, middle - half, middle + half)]


def mean_interval(rates: Sequence[float], rng: np.random.Generator) -> list[float]:
    """[mean, low, high], resampling problems."""
    values = np.array(rates)
    means = rng.choice(values, (2000, len(values))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return [round(float(value), 3) for value in (values.mean(), low, high)]


def cell(values: Sequence[float]) -> str:
    """An interval as a cell of a card's table."""
    return f"{values[0]:.2f} ({values[1]:.2f} to {values[2]:.2f})"


def _card_tables(rows: Sequence[_Figures]) -> str:
    lines = [
        "| type | valid | distinct programs | solved on own proposals | never / always solved "
        "| valid with 1 / 2 references | a line of theirs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        references = row["with_references"]
        lines.append(
            f"| `{row['problem_type']}` | {cell(row['valid'])} | {cell(row['distinct_programs'])} "
            f"| {cell(row['solve_rate'])} | {row['never_solved']:.2f} / {row['always_solved']:.2f} "
            f"| {references['1']['valid'][0]:.2f} / {references['2']['valid'][0]:.2f} "
            f"| {references['1']['shares_a_line'][0]:.2f} / {references['2']['shares_a_line'][0]:.2f} |"
        )
    levels = [str(level) for level in LEVEL_WEIGHTS["code_o"]]
    lines += ["", f"| level | {' | '.join(levels)} |", f"| --- |{' --- |' * len(levels)}"]
    for row in rows:
        rates = [row["solve_rate_by_level"].get(level) for level in levels]
        cells = " | ".join("" if rate is None else f"{rate:.2f}" for rate in rates)
        lines.append(f"| `{row['problem_type']}` | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", type=Path, default=REPOSITORY / "base_model" / "tiny")
    parser.add_argument("--proposals", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with open_sandbox("auto", Limits(), workers=2) as sandbox:
        arena = Arena(options.base, "compact", sandbox, threads=2)
        rows = measure(arena, options.proposals, options.seed)
    result = {
        "base_digest": arena.worker.spec.digest,
        "seed": options.seed,
        "attempts": ATTEMPTS,
        "types": rows,
    }
    (options.base.parent / "measured.json").write_text(json.dumps(result, indent=1) + "\n")
    print(_card_tables(rows))


if __name__ == "__main__":
    main()
