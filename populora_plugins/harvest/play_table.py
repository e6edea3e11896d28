"""A run's members at play with a person: a teacher asks, anyone answers, the sandbox decides.

The run stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from populora_core.compute.arena import Arena, SamplingRules
from populora_core.lifecycle.standing import named
from populora_core.model.adapter_files import read_state
from populora_core.population.member import Role
from populora_core.population.pbt import Hyperparameters, own_or
from populora_core.problems.model import Problem
from populora_core.problems.parsing import FormatError, read_arguments, read_output, read_program
from populora_core.problems.types import AnswerForm, problem_type
from populora_core.problems.types.rules import parts
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.runs.any_base import require_base
from populora_core.runs.run import Run, bases
from populora_core.sandbox.jobs import Sandbox
from populora_core.sandbox.verify import verify_or_raise
from populora_core.stages.following import newest_generation, population_folder
from populora_core.stages.history import PROBLEM
from populora_core.store.catalogue import Catalogue
from populora_core.store.rows import StageTables
from populora_core.support import ids
from populora_core.support.trust import require_trusted

TRIES = 12
"""Proposals at a time, of which the first valid one is posed."""
READERS = {
    AnswerForm.OUTPUT: read_output,
    AnswerForm.ARGUMENTS: read_arguments,
    AnswerForm.PROGRAM: read_program,
}
LIVING = "SELECT member_id, role FROM tables.population WHERE generation = ? ORDER BY 1"
SHOWN = (
    f"SELECT {', '.join(PROBLEM)} FROM problems WHERE problem_type = ? ORDER BY generation DESC, 1 LIMIT 100"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A problem, and the teacher that proposed it."""

    teacher_id: str
    problem: Problem


class PlayTable:
    """A run's living members, resident in this process.

    Args:
        teacher, student: who plays; None for another at each problem.
        seed: of every draw.

    Raises:
        RunDirectoryError: no such member lives, or the run has no complete generation.
        BaseModelError: the run's base is missing, or is not the one that the run began with.
        ConfigError: the run's base is in a folder that the user has not named.
    """

    def __init__(
        self, run: Run, sandbox: Sandbox, teacher: str | None, student: str | None, seed: int
    ) -> None:
        from populora_core.model.base import require_same

        self._run, self._sandbox = run, sandbox
        self._rng, self._draws = ids.generator(seed, "play"), seed
        newest = newest_generation(run)
        self._teachers = playing(run, Role.TEACHER, teacher)
        self._students = playing(run, Role.STUDENT, student)
        self._own = inherited(run, newest)
        for source in bases(run.config):
            require_trusted(source)
        base, adapters = run.config.base, run.config.adapters
        assert base.dtype != "auto", "a run has chosen"
        require_base(base)
        self._arena = Arena(
            base.folder(),
            base.dialect,
            sandbox,
            rank=adapters.rank,
            alpha=adapters.alpha,
            dtype=base.dtype,
            device=base.device,
            bits=base.bits,
            inputs=run.config.propose.inputs,
        )
        require_same(base.folder(), self._arena.worker.spec.digest, run.record["base_digest"])
        chosen = {*self._teachers, *self._students}
        self._arena.load({name: read_state(run.adapter_folder(name, newest)) for name in chosen})

    def ask(self, kind: str | None = None) -> Asked | None:
        """A teacher's next problem; None if it wrote nothing valid.

        Args:
            kind: a problem type; None for any of the run's.
        """
        settings = self._run.config.propose
        kind = kind or str(self._rng.choice(settings.types))
        teacher = str(self._rng.choice(self._teachers))
        with Catalogue(self._run.directory) as catalogue:
            known = [Problem.of(row) for row in catalogue.rows(SHOWN, [kind])]
        shown = min(settings.references[1], len(known))
        asked = [
            (kind, [known[i] for i in self._rng.choice(len(known), shown, replace=False)] if shown else [])
            for _ in range(TRIES)
        ]
        temperature = own_or(self._own, teacher, "temperature", settings.temperature)
        rules = SamplingRules(temperature, settings.top_p, proposal_tokens=settings.max_tokens)
        _, checks = self._arena.propose(teacher, asked, self._draw(), rules)
        for check in checks:
            if check.verdict is ProposalVerdict.VALID and check.draft is not None:
                return Asked(teacher, check.draft.problem("asked", check.outputs))
        return None

    def judge(self, problem: Problem, text: str) -> AttemptVerdict:
        """The verdict on a person's answer: of outputs or arguments a line for each input.

        Raises:
            FormatError: it cannot be read as an answer of this type.
            ProgramSyntaxError: it is a program that does not parse.
            SandboxUnavailable: the sandbox went down.
        """
        kind = problem_type(problem.problem_type)
        lines = (text,) if kind.answer_form is AnswerForm.PROGRAM else parts(text)
        if kind.answer_form is not AnswerForm.PROGRAM and len(lines) != len(problem.inputs):
            raise FormatError(f"expected {len(problem.inputs)} lines, got {len(lines)}")
        answer = "\n".join(map(READERS[kind.answer_form], lines))
        job = kind.answer_job(problem, answer, self._arena.dialect.rules)
        results = [] if job is None else verify_or_raise(self._sandbox, [job], determinism=False)
        return kind.judge(problem, answer, results[0] if results else None)

    def answer(self, problem: Problem) -> tuple[str, str, AttemptVerdict]:
        """A student's id, what it writes, and the verdict on it."""
        settings = self._run.config.solve
        student = str(self._rng.choice(self._students))
        temperature = own_or(self._own, student, "temperature", settings.temperature)
        rules = SamplingRules(temperature, settings.top_p, answer_tokens=settings.max_tokens)
        cut_answers = self._run.config.grade.cut_answers
        (row,), (judged,) = self._arena.solve(student, [problem], 1, self._draw(), rules, cut_answers)
        return student, row["completion"], judged.verdict

    def shown(self, problem: Problem) -> Sequence[int]:
        """The places of those inputs of the problem that whoever answers is shown."""
        return problem_type(problem.problem_type).shown(problem, self._arena.dialect.rules)

    def _draw(self) -> int:
        self._draws += 1
        return self._draws


def inherited(run: Run, generation: int) -> Mapping[str, Hyperparameters]:
    """Hyperparameters of the members at the end of a generation; empty where none are inherited."""
    if not run.config.pbt.on:
        return {}
    rows = StageTables(population_folder(run, generation)).rows("hyperparameters")
    return {row["member_id"]: Hyperparameters.of(row) for row in rows}


def playing(run: Run, role: Role, given: str | None) -> list[str]:
    """The living members that play a role, or the one that a person names.

    Raises:
        RunDirectoryError: no such member lives, or the run has no complete generation.
    """
    with Catalogue(run.directory) as catalogue:
        living = catalogue.rows(LIVING, [newest_generation(run)])
    own = [row["member_id"] for row in living if role in Role(row["role"]).plays]
    return own if given is None else [named(run, given, own, role=role)]
