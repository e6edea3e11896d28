"""One generation of a population of any size, in which only models and sandbox are replaced by what they would give.

Every teacher proposes some problems of each type, of which some become problems; their programs, inputs and
outputs are those of the bundled suite, in turn. The matched student answers each `ATTEMPTS` times: rightly, as
another problem would have it, or without an end. Ids, ratings and token ids are drawn, matches and grades are the
project's own stages over these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from made_runs.filled import commit_stage, filled
from populora_core.benchmarks.files import read_rows
from populora_core.benchmarks.heldout import TINY
from populora_core.config.load import Config, build_config
from populora_core.problems.dialects.compact import compact_arguments, compact_output, input_lines
from populora_core.problems.model import Problem
from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.sandbox.jobs import Job, JobResult, Limits
from populora_core.sandbox.status import Status
from populora_core.stages.engine import run_stage
from populora_core.stages.table import LOOP, STAGES
from populora_core.store.artifacts import read_table
from populora_core.store.manifest import stage_dir
from populora_core.store.schema import to_table
from populora_core.support import ids
from populora_core.support.aliases import Row
from populora_core.support.errors import SandboxUnavailable

TYPES = ("code_f", "code_i", "code_o")
PER_TYPE, VALID, ATTEMPTS = 4, 3, 8
GENERATION = 1


Tables = dict[str, list[Row]]


class Known:
    """A sandbox that knows what each problem's own program gives, and takes anything else to give None."""

    name = identity = "known"
    limits = Limits()
    outage: SandboxUnavailable | None = None

    def __init__(self, problems: Sequence[Row]) -> None:
        self._outputs = {(row["program"], tuple(row["inputs"])): tuple(row["outputs"]) for row in problems}

    def run(
        self, jobs: Sequence[Job], progress: Callable[[int], None] | None = None, *, repeat: bool = False
    ) -> list[JobResult]:
        return [
            JobResult(
                job.job_id,
                Status.OK,
                self._outputs.get((job.program, job.inputs), ("None",) * len(job.inputs)),
            )
            for job in jobs
        ]

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...


class ScaledRun:
    """A run directory with a founded population and one generation of it.

    Args:
        members: half of them teachers, half students.
        per_type, valid: proposals of a teacher of each type, and how many of them become problems.

    Attributes:
        session: open on the run; close it with `close`.
        tables: stage -> table -> rows, of every stage of the generation.
    """

    def __init__(
        self, directory: Path, members: int, seed: int = 0, per_type: int = PER_TYPE, valid: int = VALID
    ) -> None:
        self._per_type, self._valid = per_type, valid
        self._draw = ids.generator(seed, "scale", members)
        self._suite = {
            kind: [row for row in read_rows(TINY) if row["problem_type"] == kind] for kind in TYPES
        }
        self.tables: dict[str, dict[str, pa.Table]] = {}
        self.run = Run.create(directory, _config(members // 2, per_type), "none")
        self.session = Session(self.run)
        self.session.__enter__()
        self._commit(0, "found", {"population": self._population(), "adapters": self._adapters(0)})
        run_stage(self.session, GENERATION, STAGES["match"])
        self._play()
        self._keep("match")
        self._keep("grade")
        self.tables = {stage.name: self.tables[stage.name] for stage in LOOP}

    def close(self) -> None:
        self.session.__exit__(None, None, None)

    def rows(self, stage: str, table: str) -> list[Any]:
        return self.tables[stage][table].to_pylist()

    def _play(self) -> None:
        proposals, checks, problems, attempts = self._written()
        self._commit(GENERATION, "propose", {"proposals": proposals})
        self._commit(GENERATION, "verify", {"problems": problems, "proposal_checks": checks})
        self._commit(GENERATION, "solve", {"attempts": attempts})
        self.session.sandbox = Known(problems)
        run_stage(self.session, GENERATION, STAGES["grade"])
        advantages = {
            f"{kind}_advantages": [
                filled(f"{kind}_advantages", **{f"{kind}_id": row[f"{kind}_id"]}, advantage=float(value))
                for row, value in zip(rows, self._draw.normal(0, 1, len(rows)), strict=True)
            ]
            for kind, rows in (("proposal", proposals), ("attempt", attempts))
        }
        members = self._living
        self._commit(
            GENERATION,
            "update",
            {"updates": list(map(_update, members)), "adapters": self._adapters(GENERATION), **advantages},
            {"member_seconds": {member["member_id"]: 0.5 for member in members}},
        )
        empty: Tables = {"external_fitness": [], "evaluations": [], "evaluation_items": []}
        self._commit(GENERATION, "evaluate", empty)
        later = [member | {"generation": GENERATION} for member in members]
        self._commit(GENERATION, "evolve", {"population": later, "evolutions": [], "adapters": []})

    def _population(self) -> list[Row]:
        """Founders whose ratings are spread as some generations of play spread them."""
        size = self.run.config.population.teachers
        self._living: list[Row] = [
            filled(
                "population",
                member_id=ids.member_id(role, slot, 0, ids.digits(size)),
                role=role,
                slot=slot,
                operator="founder",
                mu=float(self._draw.normal(25.0, 4.0)),
                sigma=float(self._draw.uniform(1.0, 4.0)),
                adapter_sha256=f"{slot:064x}",
                moments_sha256=f"{slot:064x}",
            )
            for role in ("student", "teacher")
            for slot in range(size)
        ]
        return self._living

    def _adapters(self, generation: int) -> list[Row]:
        return adapter_rows(self._living, generation)

    def _written(self) -> tuple[list[Row], list[Row], list[Row], list[Row]]:
        """Proposals, their checks, problems and attempts."""
        proposals: list[Row] = []
        checks: list[Row] = []
        problems: list[Row] = []
        attempts: list[Row] = []
        dialect, digits = self.session.dialect, ids.digits(self.run.config.population.teachers)
        matches = read_table(stage_dir(self.run.directory, GENERATION, "match"), "matches").to_pylist()
        for slot, match in enumerate(matches):
            for kind in TYPES:
                for index in range(self._per_type):
                    known = self._known(kind, len(proposals) // len(TYPES), len(proposals))
                    proposal_id = ids.proposal_id(GENERATION, "teacher", slot, kind, index, digits)
                    text = known["program"] + input_lines(known["inputs"])
                    proposals.append(
                        filled(
                            "proposals",
                            generation=GENERATION,
                            proposal_id=proposal_id,
                            match_id=match["match_id"],
                            teacher_id=match["teacher_id"],
                            problem_type=kind,
                            **self._sampled(dialect.propose_prompt(kind, ()), text, True),
                        )
                    )
                    valid = index < self._valid
                    problem_id = ids.problem_id(proposal_id) if valid else None
                    checks.append(
                        filled(
                            "proposal_checks",
                            proposal_id=proposal_id,
                            verdict="valid" if valid else "duplicate",
                            problem_id=problem_id,
                        )
                    )
                    if problem_id is None:
                        continue
                    problem = _problem(proposals[-1], known, problem_id)
                    problems.append(problem)
                    prompt = dialect.solve_prompt(Problem.of(problem))
                    chance = self._draw.beta(1.0, 1.0)
                    for sample in range(ATTEMPTS):
                        right = self._draw.random() < chance
                        answered = (
                            known if right else self._known(kind, int(self._draw.integers(1 << 30)), sample)
                        )
                        attempts.append(
                            filled(
                                "attempts",
                                generation=GENERATION,
                                attempt_id=ids.attempt_id(problem_id, sample),
                                problem_id=problem_id,
                                match_id=match["match_id"],
                                student_id=match["student_id"],
                                sample_index=sample,
                                **self._sampled(prompt, _answer(answered), self._draw.random() < 0.97),
                            )
                        )
        return proposals, checks, problems, attempts

    def _known(self, kind: str, place: int, number: int) -> Row:
        """A problem of the suite; a comment with a number makes its program a text of its own."""
        known = self._suite[kind][place % len(self._suite[kind])]
        return known | {"program": f"{known['program']}  # {number}-{place}"}

    def _sampled(self, prompt: str, completion: str, ended: bool) -> Row:
        """Texts with as many token ids as the bundled base's tokenizer gives, about one for two characters."""
        asked, wrote = len(prompt) // 2 + 1, len(completion) // 2 + 1
        return {
            "prompt": prompt,
            "completion": completion,
            "prompt_tokens": asked,
            "completion_tokens": wrote,
            "finish_reason": "stop" if ended else "length",
            "prompt_ids": self._draw.integers(0, 512, asked).tolist(),
            "completion_ids": self._draw.integers(0, 512, wrote).tolist(),
            "logprobs": (-self._draw.gamma(0.5, 1.0, wrote)).tolist(),
        }

    def _commit(
        self, generation: int, stage: str, tables: Mapping[str, Sequence[Row]], extra: Row | None = None
    ) -> None:
        made = {name: to_table(name, rows) for name, rows in tables.items()}
        commit_stage(self.run.directory, generation, stage, made, extra)
        if generation:
            self.tables[stage] = made

    def _keep(self, stage: str) -> None:
        """Take up the tables that a stage of the project itself has made."""
        folder = stage_dir(self.run.directory, GENERATION, stage)
        self.tables[stage] = {name: read_table(folder, name) for name in STAGES[stage].gives}


def _config(size: int, per_type: int) -> Config:
    return build_config(
        {
            "population": {"teachers": size, "students": size},
            "propose": {"types": TYPES, "per_type": per_type},
            "solve": {"attempts": ATTEMPTS},
            "evolve": {"every": 1, "minimum_age": 1},
            "compute": {"backend": "inline", "shards": 1},
        },
        "the benchmark's configuration",
    )


def _problem(proposal: Row, known: Row, problem_id: str) -> Row:
    """A row of `problems`; its measures are not what is timed."""
    return filled(
        "problems",
        **{name: proposal[name] for name in ("generation", "proposal_id", "teacher_id", "problem_type")},
        problem_id=problem_id,
        program=known["program"],
        inputs=known["inputs"],
        outputs=known["outputs"],
        ast_depth=6,
        cyclomatic_complexity=2,
        lines_of_code=3,
        variable_count=2,
        cell="2-1-1-0-loop",
        chance=0.05,
        novelty=0.5,
        program_key=f"key of {known['item_id']}",
    )


def _answer(known: Row) -> str:
    """The right answer to a problem of the suite, in the compact dialect."""
    match known["problem_type"]:
        case "code_o":
            return "\n=" + compact_output(known["outputs"][0])
        case "code_i":
            return compact_arguments(known["inputs"][0])
        case _:
            return known["program"]


def _update(member: Row) -> Row:
    return filled(
        "updates",
        generation=GENERATION,
        member_id=member["member_id"],
        role=member["role"],
        n_rows=len(TYPES) * VALID * ATTEMPTS,
        tokens=2_000,
        loss=0.01,
        grad_norm=0.3,
        entropy=0.9,
        steps=1,
        clip_fraction=0.0,
        learning_rate=1e-3,
        logprob_mismatch=4e-7,
        largest_mismatch=4e-6,
    )


def adapter_rows(living: Sequence[Row], generation: int) -> list[Row]:
    """The rows of `adapters` of a generation, from members' rows of `population`."""
    return [
        filled(
            "adapters",
            generation=generation,
            member_id=member["member_id"],
            path=f"members/{member['member_id']}/g{generation:04d}",
            sha256=member["adapter_sha256"],
            moments_sha256=member["moments_sha256"],
        )
        for member in living
    ]
