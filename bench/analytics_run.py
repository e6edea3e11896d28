"""A run directory of any size that no model played: real tables through the real stage writer, rows drawn at random.

32 teachers meet 32 students in every generation. Students get better over time, problems longer and less new, a
quarter of each role is replaced every tenth generation. Texts have the lengths of the bundled base's; a few
generations' worth of them is drawn once and used in turn, so that a generation takes a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.filled import Columns, commit_stage, first, joined, lists, numbers, repeat, texts, tokens
from populora_core.store.schema import to_table
from populora_core.store.tables import TABLES
from populora_core.support import ids

TYPES = ("code_f", "code_i", "code_o")
MEMBERS = 32  # of each role
PROPOSED, VALID, SAMPLES = 40, 26, 8  # of one teacher and type; of these valid; attempts at each
ATTEMPTS = MEMBERS * len(TYPES) * VALID * SAMPLES  # of one generation
EVERY = 10  # generations between evolutions
POOL = 4  # generations' worth of texts
WRITERS = 2  # threads that compress and write
REFUSED = ("trivial", "duplicate", "format_error", "runtime_error", "syntax_error", "forbidden")
LOST = ("wrong", "wrong", "wrong", "format_error", "runtime_error", "timeout", "infrastructure")


@dataclass(frozen=True, slots=True)
class Living:
    """One member: its id and where it comes from."""

    member_id: str
    slot: int
    born: int
    parents: tuple[str, ...]
    operator: str


class SyntheticRun:
    """Writes generation after generation into a run directory."""

    def __init__(self, run_dir: Path, seed: int = 0) -> None:
        self._run_dir = run_dir
        self._random = ids.generator(seed, "analytics")
        self._texts = [self._sampled() for _ in range(POOL)]
        self._living = {
            role: [Living(ids.member_id(role, slot, 0), slot, 0, (), "founder") for slot in range(MEMBERS)]
            for role in ("teacher", "student")
        }
        self._skill = {member.member_id: 0.0 for members in self._living.values() for member in members}
        self._pool = ThreadPoolExecutor(WRITERS)
        self._commits: list[Future[None]] = []

    def write(self, generations: int, say: Callable[[str], None] = lambda line: None) -> None:
        """Found the population and play the generations."""
        with self._pool:
            self._commit(0, "found", {"population": self._population(0), "adapters": self._adapters(0)})
            for generation in range(1, generations + 1):
                before, self._commits = self._commits, []
                self._generation(generation)
                for commit in before:
                    commit.result()
                if generation % 50 == 0:
                    say(f"wrote generation {generation} of {generations}")
            for commit in self._commits:
                commit.result()

    def _generation(self, generation: int) -> None:
        draw, g = self._random, f"g{generation:04d}"
        teachers, students = self._living["teacher"], self._living["student"]
        pairs = draw.permutation(MEMBERS)
        match_ids = [ids.match_id(generation, place) for place in range(MEMBERS)]
        student_ids = [students[place].member_id for place in pairs]
        matches = {
            "match_id": match_ids,
            "teacher_id": [member.member_id for member in teachers],
            "student_id": student_ids,
            "p_student_win": draw.beta(4, 4, MEMBERS),
            "weight": draw.beta(2, 20, MEMBERS),
        }
        self._commit(generation, "match", {"matches": matches})

        # Proposals lie by teacher, type and number; the first ones of each type are the valid ones.
        places = [f"t{member.slot:02d}-{kind}" for member in teachers for kind in TYPES]
        asked = joined(f"prop-{g}-", repeat(places, PROPOSED), "-", numbers(PROPOSED, len(places), 4))
        valid = np.arange(len(asked)) % PROPOSED < VALID
        kinds = repeat(list(TYPES) * MEMBERS, PROPOSED)
        per_teacher = len(TYPES) * PROPOSED
        proposals = first(self._texts[generation % POOL], len(asked)) | {
            "proposal_id": asked,
            "match_id": repeat(match_ids, per_teacher),
            "teacher_id": repeat(matches["teacher_id"], per_teacher),
            "problem_type": kinds,
            "reference_ids": pa.array([[]] * len(asked), pa.list_(pa.string())),
        }
        self._commit(generation, "propose", {"proposals": proposals})

        known = pa.array(valid)
        problem_ids = joined(f"prob-{g}-", pc.utf8_slice_codeunits(asked, 11))
        length = 2 + generation // 100
        lines = draw.poisson(length, len(asked)) + 1
        constants = pa.array(draw.integers(0, 10**9, len(asked))).cast(pa.string())
        rank = np.minimum(draw.zipf(1.3, len(asked)), 400)
        problems = {
            "problem_id": problem_ids,
            "proposal_id": asked,
            "teacher_id": proposals["teacher_id"],
            "problem_type": kinds,
            "program": joined(
                "def f(x):\n  y = x + ", constants, "\n  for i in range(3):\n    y = y * i\n  return y"
            ),
            "inputs": lists(constants, "(", ",)"),
            "outputs": lists(pc.utf8_slice_codeunits(constants, 0, 2), "", ""),
            "message": repeat([""], len(asked)),
            "ast_depth": 4 + lines // 2,
            "cyclomatic_complexity": 1 + lines // 3,
            "lines_of_code": lines,
            "variable_count": 1 + lines // 2,
            "cell": joined(texts(1 + lines // 4), "-0-1-0-set", texts(rank)),
            "novelty": draw.beta(8, 4 + generation / 50, len(asked)),
            "program_key": joined("key-", g, constants),
        }
        checks = {
            "proposal_id": asked,
            "verdict": pc.if_else(known, "valid", pa.array(draw.choice(REFUSED, len(asked)))),
            "detail": pc.if_else(known, pa.scalar(None, pa.string()), "the program is refused"),
            "problem_id": pc.if_else(known, problem_ids, pa.scalar(None, pa.string())),
        }
        all_problems = self._table("problems", generation, problems)
        tables = {
            "problems": all_problems.filter(known),
            "proposal_checks": checks,
        }
        self._commit(generation, "verify", tables)

        own = tables["problems"]["problem_id"].combine_chunks()
        repeated = repeat(own, SAMPLES)
        attempt_ids = joined(
            "att-", pc.utf8_slice_codeunits(repeated, 5), "-s", numbers(SAMPLES, len(own), 2)
        )
        per_match = len(TYPES) * VALID * SAMPLES
        attempts = self._texts[generation % POOL] | {
            "attempt_id": attempt_ids,
            "problem_id": repeated,
            "match_id": repeat(match_ids, per_match),
            "student_id": repeat(student_ids, per_match),
            "sample_index": np.tile(np.arange(SAMPLES), len(own)),
        }
        self._commit(generation, "solve", {"attempts": attempts})
        self._grade(generation, matches, attempt_ids, own, asked, valid)
        self._learn(generation, attempt_ids, asked)
        self._evolve(generation)

    def _grade(
        self,
        generation: int,
        matches: Columns,
        attempt_ids: pa.Array,
        problem_ids: pa.Array,
        asked: pa.Array,
        valid: np.ndarray,
    ) -> None:
        draw = self._random
        per_match = len(TYPES) * VALID
        skill = np.array([self._skill[student] for student in matches["student_id"]]).repeat(per_match)
        easy = draw.normal(0, 1.5, len(problem_ids))
        solved = draw.random((len(problem_ids), SAMPLES)) < (1 / (1 + np.exp(-(skill + easy))))[:, None]
        verdicts = np.where(solved, "correct", draw.choice(LOST, solved.shape))
        judged = verdicts != "infrastructure"
        rewards = np.select([solved, verdicts == "format_error"], [1.0, -1.0], -0.5)
        counts = judged.sum(axis=1)
        rates = np.divide(solved.sum(axis=1), counts, out=np.zeros(len(counts)), where=counts > 0)
        grades = {
            "attempt_id": attempt_ids,
            "answer": pa.array(draw.integers(0, 100, solved.size)).cast(pa.string()),
            "verdict": pa.array(verdicts.ravel()),
            "reward": pa.array(rewards.ravel(), mask=~judged.ravel()),
        }
        paid = np.full(len(asked), -1.0)
        paid[valid] = np.where(rates > 0, 1 - rates, 0.0)
        by_match = rates.reshape(MEMBERS, per_match)
        alive = by_match > 0
        ratings = [
            {
                "generation": generation,
                "member_id": member.member_id,
                "role": role,
                "mu": 25 + 5 * self._skill[member.member_id],
                "sigma": 1.5,
                "fitness": 20.5 + 5 * self._skill[member.member_id],
                "eligible": True,
                "productive_generation": generation,
            }
            for role, members in self._living.items()
            for member in members
        ]
        self._commit(
            generation,
            "grade",
            {
                "attempt_grades": grades,
                "proposal_grades": {"proposal_id": asked, "reward": paid},
                "problem_results": {
                    "problem_id": problem_ids,
                    "n_attempts": counts,
                    "solve_rate": pa.array(rates, mask=counts == 0),
                },
                "match_results": {
                    "match_id": matches["match_id"],
                    "outcome": draw.choice(("student", "teacher", "draw"), MEMBERS, p=(0.45, 0.45, 0.1)),
                    "solve_rate": by_match.sum(axis=1) / np.maximum(alive.sum(axis=1), 1),
                    "n_problems": alive.sum(axis=1),
                },
                "ratings": to_table("ratings", ratings),
            },
        )

    def _learn(self, generation: int, attempt_ids: pa.Array, asked: pa.Array) -> None:
        draw = self._random
        updates = []
        for role, members in self._living.items():
            for member in members:
                self._skill[member.member_id] += draw.normal(0.01, 0.05)
                updates.append(
                    {
                        "generation": generation,
                        "member_id": member.member_id,
                        "role": role,
                        "n_rows": len(TYPES) * VALID * SAMPLES,
                        "tokens": 20_000,
                        "loss": draw.normal(0, 0.05),
                        "grad_norm": draw.gamma(2, 0.2),
                        "entropy": draw.normal(0.9, 0.05),
                        "clip_fraction": 0.0,
                        "learning_rate": 1e-3,
                        "logprob_mismatch": 4e-7,
                        "largest_mismatch": 4e-6,
                    }
                )
        advantages = {
            f"{kind}_advantages": {f"{kind}_id": own, "advantage": draw.normal(0, 1, len(own))}
            for kind, own in (("attempt", attempt_ids), ("proposal", asked))
        }
        self._commit(
            generation,
            "update",
            {"updates": to_table("updates", updates), "adapters": self._adapters(generation), **advantages},
        )

    def _evolve(self, generation: int) -> None:
        draw = self._random
        evolutions = []
        for role, members in self._living.items() if generation % EVERY == 0 else ():
            ranked = sorted(members, key=lambda member: self._skill[member.member_id])
            leaving, staying = ranked[: MEMBERS // 4], ranked[MEMBERS // 4 :]
            for old in leaving:
                parents = [staying[place] for place in draw.choice(len(staying), draw.integers(1, 3), False)]
                operator = "full_gaussian" if len(parents) == 1 else "average"
                child = Living(
                    ids.member_id(role, old.slot, generation),
                    old.slot,
                    generation,
                    tuple(parent.member_id for parent in parents),
                    operator,
                )
                evolutions.append(
                    {
                        "generation": generation,
                        "role": role,
                        "removed_id": old.member_id,
                        "child_id": child.member_id,
                        "parent_ids": child.parents,
                        "operator": operator,
                        "operator_parameters": "{}",
                        "removed_fitness": 20.5 + 5 * self._skill[old.member_id],
                    }
                )
                self._skill[child.member_id] = float(np.mean([self._skill[name] for name in child.parents]))
                members[old.slot] = child
        empty = {name: to_table(name, []) for name in ("external_fitness", "evaluations", "evaluation_items")}
        self._commit(generation, "evaluate", empty)
        self._commit(
            generation,
            "evolve",
            {
                "population": self._population(generation),
                "evolutions": to_table("evolutions", evolutions),
                "adapters": self._adapters(generation) if evolutions else to_table("adapters", []),
            },
        )

    def _population(self, generation: int) -> pa.Table:
        rows = [
            {
                "generation": generation,
                "member_id": member.member_id,
                "role": role,
                "slot": member.slot,
                "born_generation": member.born,
                "parent_ids": member.parents,
                "operator": member.operator,
                "mu": 25 + 5 * self._skill[member.member_id],
                "sigma": 1.5,
                "productive_generation": generation,
                "adapter_sha256": "0" * 64,
                "moments_sha256": "0" * 64,
            }
            for role, members in self._living.items()
            for member in members
        ]
        return to_table("population", rows)

    def _adapters(self, generation: int) -> pa.Table:
        names = [member.member_id for members in self._living.values() for member in members]
        rows = [
            {
                "generation": generation,
                "member_id": name,
                "path": f"members/{name}/g{generation:04d}",
                "sha256": "0" * 64,
                "moments_sha256": "0" * 64,
            }
            for name in names
        ]
        return to_table("adapters", rows)

    def _sampled(self) -> Columns:
        """The texts of a generation's completions; the attempts at one problem share their prompt."""
        draw, rows = self._random, ATTEMPTS
        prompt_tokens = draw.integers(40, 90, rows // SAMPLES).repeat(SAMPLES)
        completion_tokens = np.clip(draw.gamma(3, 8, rows), 3, 100).astype(np.int32)
        words = np.array(["def f(x):", " return ", "x[0]", " + ", "sorted(x)", " for y in x", "1", "(2,)"])

        def written(lengths: np.ndarray) -> list[str]:
            return ["".join(words[draw.integers(0, len(words), count // 4 + 1)]) for count in lengths]

        return {
            "prompt": repeat(written(prompt_tokens[::SAMPLES]), SAMPLES),
            "completion": pa.array(written(completion_tokens)),
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "finish_reason": draw.choice(("stop", "length"), rows, p=(0.97, 0.03)),
            "prompt_ids": tokens(draw.integers(0, 512, prompt_tokens.sum(), np.int32), prompt_tokens),
            "completion_ids": tokens(
                draw.integers(0, 512, completion_tokens.sum(), np.int32), completion_tokens
            ),
            "logprobs": tokens(
                -draw.gamma(0.5, 1, completion_tokens.sum()).astype(np.float32), completion_tokens
            ),
        }

    def _table(self, name: str, generation: int, columns: Columns) -> pa.Table:
        """The declared table of columns in any order and of any type that casts."""
        rows = len(next(iter(columns.values())))
        columns = {"generation": np.full(rows, generation)} | columns
        arrays = []
        for column in TABLES[name]:
            array = columns[column.name]
            arrays.append((array if isinstance(array, pa.Array) else pa.array(array)).cast(column.type))
        return pa.Table.from_arrays(arrays, schema=TABLES[name].arrow)

    def _commit(self, generation: int, stage: str, tables: Mapping[str, pa.Table | Columns]) -> None:
        """Have a stage written; tables that are given as columns are made from them."""
        made = {
            name: table if isinstance(table, pa.Table) else self._table(name, generation, table)
            for name, table in tables.items()
        }
        extra = None
        if stage == "update":
            members = [member for living in self._living.values() for member in living]
            extra = {"member_seconds": {member.member_id: 0.5 for member in members}}
        self._commits.append(self._pool.submit(commit_stage, self._run_dir, generation, stage, made, extra))
