"""The frontier base's gates, with the project's own sampler and verifier: ``python -m base_model.steps.measure``.

On the suite, by level: greedy answers, 8 attempts at temperature 1, whole thoughts, the chance of a blind guess.
Then proposals of every type at temperature 1. Intervals are 95 %: Wilson's for shares, bootstrap over problems for
means. Writes frontier_measured.json beside the base's folder and prints the card's tables.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from base_model.measure import cell, mean_interval, share_interval
from base_model.steps.documents import SEVERAL_INPUTS
from base_model.steps.grammar import BASE, SolvedProgram, output, read_input, read_statements, tight
from base_model.steps.problems import answer_cap, output_problem, steps_written, whole
from base_model.steps.suite import BEYOND, EDGE, LEVELS, MASTERED, SUITE, read_suite
from populora_core.compute.arena import Arena, SamplingRules
from populora_core.problems.grading import ProposalCheck
from populora_core.problems.normal import program_key
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.sandbox.backends import open_sandbox
from populora_core.sandbox.jobs import Limits
from populora_core.support import ids
from populora_core.support.digest import file_sha256
from populora_core.support.shipped import REPOSITORY

ATTEMPTS = 8
MEMBER = "base"
PROPOSAL_TYPES = ("code_o", "code_i", "code_f")
_Figures = dict[str, Any]


def weights_sha256(folder: Path) -> str:
    """The sha256 of the weights, by which the figures of a base are known."""
    return file_sha256(folder / "model.safetensors")


def solving(arena: Arena, problems: Sequence[SolvedProgram], seed: int) -> dict[str, _Figures]:
    """Level -> what the base does with the suite's problems of that level."""
    return {
        str(level): _level(arena, [one for one in problems if one.level == level], seed)
        for level in sorted({one.level for one in problems})
    }


def _level(arena: Arena, problems: Sequence[SolvedProgram], seed: int) -> _Figures:
    cap = answer_cap(8)
    greedy, texts = _answered(arena, problems, 1, 0.0, cap, seed)
    sampled, sampled_texts = _answered(arena, problems, ATTEMPTS, 1.0, cap, seed)
    rng = ids.generator(seed, "intervals")
    mixed = (sampled.any(1) & ~sampled.all(1)).sum()
    right_wholes = [whole(one, text) for one, text in zip(problems, texts, strict=True)]
    return {
        "problems": len(problems),
        "greedy": share_interval(int(greedy.sum()), len(problems)),
        "greedy_whole_thought": share_interval(sum(right_wholes), len(problems)),
        "mean_at_8": mean_interval(sampled.mean(1).tolist(), rng),
        "pass_at_8": share_interval(int(sampled.any(1).sum()), len(problems)),
        "mixed_groups": share_interval(int(mixed), len(problems)),
        "with_a_thought": share_interval(
            sum(steps_written(text) > 0 for text in sampled_texts), len(sampled_texts)
        ),
        "greedy_steps_written": round(float(np.mean([steps_written(text) for text in texts])), 2),
        "largest_chance": max(map(chance, problems)),
    }


def _answered(
    arena: Arena, problems: Sequence[SolvedProgram], attempts: int, temperature: float, cap: int, seed: int
) -> tuple[np.ndarray, list[str]]:
    """Answer the problems; return correctness as bools [problems, attempts], and the completions."""
    asked = [output_problem(one, str(index)) for index, one in enumerate(problems)]
    rows, judged = arena.solve(
        MEMBER, asked, attempts, ids.draw_seed(seed, "suite"), SamplingRules(temperature, answer_tokens=cap)
    )
    right = np.array([one.verdict is AttemptVerdict.CORRECT for one in judged])
    return right.reshape(-1, attempts), [row["completion"] for row in rows]


def chance(found: SolvedProgram) -> float:
    """Share of all inputs on which the program gives the same output."""
    outputs = [output(found.statements, (x, y)) for x, y in product(range(BASE), repeat=2)]
    return outputs.count(found.outputs[0]) / len(outputs)


def proposing(arena: Arena, kind: str, count: int, seed: int) -> _Figures:
    """Validity, variety, depth and tightness of proposals that saw no reference."""
    _, checks = arena.propose(MEMBER, [(kind, ())] * count, ids.draw_seed(seed, kind))
    valid = [c for c in checks if c.verdict in (ProposalVerdict.VALID, ProposalVerdict.TRIVIAL)]
    keys = {program_key(c.draft.program) for c in valid if c.draft is not None}
    inside = [found for c in valid if (found := _as_sample(c)) is not None]
    return {
        "problem_type": kind,
        "proposals": count,
        "valid": share_interval(len(valid), count),
        "trivial": sum(c.verdict is ProposalVerdict.TRIVIAL for c in checks),
        "distinct_programs": share_interval(len(keys), len(valid)),
        "in_the_grammar": share_interval(len(inside), len(valid)),
        "level_4_and_more": share_interval(sum(one.level >= 4 for one in inside), len(valid)),
        "tight": share_interval(sum(tight(one.statements, one.inputs[0]) for one in inside), len(inside)),
        "levels": {
            str(level): sum(one.level == level for one in inside)
            for level in sorted({one.level for one in inside})
        },
    }


def _as_sample(check: ProposalCheck) -> SolvedProgram | None:
    """The proposal as a sample of the grammar, or None where it is outside."""
    assert check.draft is not None
    try:
        statements = read_statements(check.draft.program)
        return SolvedProgram(statements, tuple(map(read_input, check.draft.inputs)))
    except ValueError:
        return None


def several_inputs(arena: Arena, count: int, seed: int) -> list[float]:
    """Share of `code_o` proposals for several inputs that write that many, all different."""
    from populora_core.compute.work import Prompt

    asked = "<po>" + "#" * SEVERAL_INPUTS + "<new>"
    rows = arena.complete(
        [Prompt(MEMBER, asked, ids.draw_seed(seed, "several", i), 1.0, 1.0, 160) for i in range(count)]
    )
    inputs = [row["completion"].removesuffix("<eos>").split("\n#")[1:] for row in rows]
    return share_interval(sum(len(own) == SEVERAL_INPUTS == len(set(own)) for own in inputs), count)


def gates(levels: dict[str, _Figures], proposals: Sequence[_Figures]) -> dict[str, bool]:
    """The gates, each decided on the point estimates."""

    def every(of: Sequence[int], name: str, holds: Callable[[float], bool]) -> bool:
        return all(holds(levels[str(level)][name][0]) for level in of)

    return {
        "a: greedy at least .6 at levels 2 and 3": every(MASTERED, "greedy", lambda v: v >= 0.6),
        "a: greedy .10 to .35 at levels 4 and 5": every(EDGE, "greedy", lambda v: 0.1 <= v <= 0.35),
        "a: greedy at most .10 at levels 6 to 8": every(BEYOND, "greedy", lambda v: v <= 0.1),
        "b: every answer has its thought (.99)": every(LEVELS, "with_a_thought", lambda v: v >= 0.99),
        "c: mixed groups at least .3 at levels 4 and 5": every(EDGE, "mixed_groups", lambda v: v >= 0.3),
        "no problem's chance above .1": every_chance(levels),
        "valid at least .85": all(row["valid"][0] >= 0.85 for row in proposals),
        "distinct at least .9": all(row["distinct_programs"][0] >= 0.9 for row in proposals),
        "level 4 and more at least .05": all(row["level_4_and_more"][0] >= 0.05 for row in proposals),
    }


def every_chance(levels: dict[str, _Figures]) -> bool:
    """True if no problem of the suite can be guessed in more than a tenth of cases."""
    return all(found["largest_chance"] <= 0.1 for found in levels.values())


def card_tables(result: _Figures) -> str:
    """The figures as Markdown."""
    solved = ("greedy", "greedy_whole_thought", "mean_at_8", "pass_at_8", "mixed_groups")
    lines = [
        "| level | greedy | greedy, whole thought right | temperature 1, mean@8 | pass@8 | mixed groups of 8 |",
        "| --- |" + " --- |" * 5,
    ]
    for level, found in result["levels"].items():
        lines.append(f"| {level} | " + " | ".join(cell(found[name]) for name in solved) + " |")
    names = ("valid", "distinct_programs", "level_4_and_more", "tight")
    lines += ["", "| type | valid | distinct programs | level 4 and more | tight |", "| --- |" + " --- |" * 4]
    for row in result["proposals"]:
        lines.append(f"| `{row['problem_type']}` | " + " | ".join(cell(row[name]) for name in names) + " |")
    lines += ["", *(f"- {'met' if met else 'NOT MET'}: {name}" for name, met in result["gates"].items())]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", type=Path, default=REPOSITORY / "base_model" / "frontier")
    parser.add_argument("--suite", type=Path, default=SUITE)
    parser.add_argument("--proposals", type=int, default=300)
    parser.add_argument("--problems", type=int, default=0, help="of each level; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    suite = read_suite(options.suite)
    part = suite[: options.problems * len({one.level for one in suite})] if options.problems else suite
    with open_sandbox("auto", Limits(), workers=1) as sandbox:
        arena = Arena(options.base, "compact", sandbox)
        arena.load({MEMBER: arena.newborn(options.seed)})
        levels = solving(arena, part, options.seed)
        proposals = [proposing(arena, kind, options.proposals, options.seed) for kind in PROPOSAL_TYPES]
        several = several_inputs(arena, options.proposals, options.seed)
    result = {
        "base_sha256": weights_sha256(options.base),
        "seed": options.seed,
        "attempts": ATTEMPTS,
        "levels": levels,
        "proposals": proposals,
        "three_inputs_where_asked": several,
        "gates": gates(levels, proposals),
    }
    target = options.base.parent / f"{options.base.name}_measured.json"
    target.write_text(json.dumps(result, indent=1) + "\n")
    print(card_tables(result))


if __name__ == "__main__":
    main()
