"""A base on trial: whether it can play, from what it proposes and answers before any training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count

import numpy as np

from populora_core.compute.arena import Arena, SamplingRules
from populora_core.problems.dialects import seeds_of
from populora_core.problems.grading import AttemptJudgement, ProposalCheck
from populora_core.problems.model import Problem
from populora_core.problems.normal import program_key
from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
from populora_core.store.rows import SampledRow
from populora_core.support import ids

LEAST = 16
"""Proposals, and attempts, of a round; a trial has at least one of each."""
GROUP = 8
"""Attempts at a problem, none of them greedy."""
HOPELESS = 64
"""Proposals of which none is valid, after which sampling stops: the share is below 6 %."""
OPENINGS = ("def f", "assert f", ">>> f")
"""Beginnings of lines that a completion may go on with."""
REFERENCES = 3
"""Seed problems that a teacher is shown."""
ANSWER_ERRORS = frozenset({AttemptVerdict.FORMAT_ERROR, AttemptVerdict.SYNTAX_ERROR})


class Ability(StrEnum):
    """Conclusion of a trial about a base."""

    CAN = "can play"
    CANNOT = "cannot"
    TOO_FEW = "too few to tell"


@dataclass(frozen=True, slots=True)
class Measure:
    """A share that was measured, and the range that it should be in.

    Attributes:
        design_effect: how many of the total tell as much as a single independent one.
    """

    name: str
    hits: int
    total: int
    least: float
    most: float = 1.0
    design_effect: float = 1.0

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's, 95 %, of as many as tell something new; everything where nothing was counted."""
        if not self.total:
            return 0.0, 1.0
        z, p, n = 1.96, self.hits / self.total, self.total / self.design_effect
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5 / (1 + z * z / n)
        return max(0.0, middle - half), min(1.0, middle + half)

    @property
    def ability(self) -> Ability:
        """The conclusion, by the interval alone: within the range, outside of it, or across its end."""
        low, high = self.interval
        if high < self.least or low > self.most:
            return Ability.CANNOT
        return Ability.CAN if self.least <= low and high <= self.most else Ability.TOO_FEW


def design_effect(hits: Sequence[int], totals: Sequence[int]) -> float:
    """The number of attempts that tell as much as a single independent one: those at one problem are alike.

    It is the variance of their share over problems by that of independent attempts (Kish 1965), at least 1. A problem
    with half a group of hits joins, since a few problems that seem alike hide others.

    Args:
        hits, totals: of the attempts at each problem.
    """
    groups = [*zip(hits, totals, strict=True), (GROUP / 2, GROUP)]
    total = sum(of for _, of in groups)
    share = sum(own for own, _ in groups) / total
    apart = sum((own - share * of) ** 2 for own, of in groups)
    unbiased = len(groups) / max(1, len(groups) - 1)
    return max(1.0, unbiased * apart / (total * share * (1 - share)))


@dataclass(slots=True)
class TypeTrial:
    """Results of a base on one problem type.

    Attributes:
        attempted: problems of which a group was drawn.
        groups: verdicts on the attempts at each of them, but those that the sandbox failed at.
        tokens, seconds: drawn, and what sampling took.
        proposal, answer: one completion of each, the proposal a valid one where there is any.
    """

    problem_type: str
    proposals: int = 0
    problems: list[Problem] = field(default_factory=list)
    valid: int = 0
    attempted: int = 0
    groups: list[list[AttemptVerdict]] = field(default_factory=list)
    greedy: int = 0
    greedily_asked: int = 0
    tokens: int = 0
    seconds: float = 0.0
    proposal: str = ""
    answer: str = ""

    @property
    def answers(self) -> int:
        """The number of attempts that were judged."""
        return sum(map(len, self.groups))

    def shares(self) -> list[Measure]:
        """Every measure with what a base needs to be able to play.

        Attempts at one problem are alike, so the interval of `answers readable` is over problems.
        """
        read = [sum(verdict not in ANSWER_ERRORS for verdict in group) for group in self.groups]
        effect = design_effect(read, [*map(len, self.groups)])
        rates = [group.count(AttemptVerdict.CORRECT) for group in self.groups if len(group) == GROUP]
        mixed = sum(0 < right < GROUP for right in rates)
        return [
            Measure("proposals valid", self.valid, self.proposals, 0.35),
            Measure("answers readable", sum(read), self.answers, 0.95, design_effect=effect),
            Measure("own problems solved greedily", self.greedy, self.greedily_asked, 0.15, 0.6),
            Measure(f"groups of {GROUP} mixed", mixed, len(rates), 0.3),
        ]

    def ability(self) -> Ability:
        """The worst that a share says."""
        said = {share.ability for share in self.shares()}
        return next(each for each in (Ability.CANNOT, Ability.TOO_FEW, Ability.CAN) if each in said)


@dataclass(frozen=True, slots=True)
class Trying:
    """The procedure of a trial.

    Attributes:
        enough: called with the number of completions of one kind so far and the seconds they took; True stops there.
        told: called with a line on what is under way.
    """

    arena: Arena
    proposing: SamplingRules
    answering: SamplingRules
    seed: int
    enough: Callable[[int, float], bool]
    told: Callable[[str], None] = lambda line: None

    def type(self, problem_type: str) -> TypeTrial:
        """Let the bare base propose, then answer its own new problems, sampled and greedily."""
        trial = TypeTrial(problem_type)
        self._propose(trial)
        self._solve(trial)
        self._solve_greedily(trial)
        return trial

    def _propose(self, trial: TypeTrial) -> None:
        seeds = seeds_of(self.arena.dialect, trial.problem_type)
        known = {program_key(each.program) for each in seeds}
        rng, began = ids.generator(self.seed, trial.problem_type, "references"), time.monotonic()
        for turn in count():
            drawn = turn * LEAST  # by these it ends, also where the sandbox judges none
            hopeless = drawn >= HOPELESS and not trial.valid
            if turn and (hopeless or self.enough(drawn, time.monotonic() - began)):
                return
            self.told(f"{trial.problem_type}: {trial.proposals} proposals ...")
            asked = [(trial.problem_type, _drawn(seeds, rng)) for _ in range(LEAST)]
            with _timing(trial) as drew:
                draws = ids.draw_seed(self.seed, "propose", trial.problem_type, turn)
                rows, checks = self.arena.propose(None, asked, draws, self.proposing)
                drew(rows)
            for row, check in zip(rows, checks, strict=True):
                _admit(trial, known, row, check)

    def _solve(self, trial: TypeTrial) -> None:
        """Groups of attempts, two problems at a time."""
        began, step = time.monotonic(), LEAST // GROUP
        for start in range(0, len(trial.problems), step):
            if start and self.enough(trial.attempted * GROUP, time.monotonic() - began):
                return
            self.told(f"{trial.problem_type}: {trial.answers} attempts ...")
            problems = trial.problems[start : start + step]
            with _timing(trial) as drew:
                draws = ids.draw_seed(self.seed, "solve", trial.problem_type, start)
                rows, judged = self.arena.solve(None, problems, GROUP, draws, self.answering)
                drew(rows)
            trial.answer = trial.answer or _shown(rows[0])
            trial.attempted += len(problems)
            for at in range(0, len(judged), GROUP):
                trial.groups.append([each.verdict for each in _judged(judged[at : at + GROUP])])

    def _solve_greedily(self, trial: TypeTrial) -> None:
        """One greedy attempt at each problem that was attempted."""
        asked = trial.problems[: trial.attempted]
        if asked:
            self.told(f"{trial.problem_type}: {len(asked)} greedy attempts ...")
            with _timing(trial) as drew:
                rows, judged = self.arena.solve(
                    None, asked, 1, self.seed, replace(self.answering, temperature=0.0)
                )
                drew(rows)
            verdicts = [each.verdict for each in _judged(judged)]
            trial.greedily_asked, trial.greedy = len(verdicts), verdicts.count(AttemptVerdict.CORRECT)


def _judged(attempts: Sequence[AttemptJudgement]) -> list[AttemptJudgement]:
    """The attempts that the sandbox did not fail at."""
    return [each for each in attempts if each.verdict is not AttemptVerdict.INFRASTRUCTURE]


def _admit(trial: TypeTrial, known: set[str], row: SampledRow, check: ProposalCheck) -> None:
    """Count a proposal that was judged; a copy of a known program is no new problem, as in a run."""
    if check.verdict is ProposalVerdict.INFRASTRUCTURE:
        return
    trial.proposals += 1
    if check.verdict is not ProposalVerdict.VALID or check.draft is None:
        trial.proposal = trial.proposal or _shown(row)
        return
    key = program_key(check.draft.program)
    if key in known:
        return
    known.add(key)
    trial.proposal = trial.proposal if trial.valid else _shown(row)
    trial.valid += 1
    trial.problems.append(check.draft.problem(f"tried-{len(trial.problems)}", check.outputs))


def _shown(row: SampledRow) -> str:
    """A completion with the line that it goes on with; a prompt that ends with its line has none."""
    line = row["prompt"].rpartition("\n")[2]
    return f"{line if line.startswith(OPENINGS) else ''}{row['completion']}"


def _drawn(seeds: Sequence[Problem], rng: np.random.Generator) -> list[Problem]:
    """Draw reference problems from the seeds, in random order."""
    return [seeds[place] for place in rng.permutation(len(seeds))[:REFERENCES]]


@contextmanager
def _timing(trial: TypeTrial) -> Iterator[Callable[[Sequence[SampledRow]], None]]:
    """Add to the trial the time of the block, and the tokens of the rows passed to the function that it yields."""
    began = time.monotonic()

    def drew(rows: Sequence[SampledRow]) -> None:
        trial.tokens += sum(row["completion_tokens"] for row in rows)

    yield drew
    trial.seconds += time.monotonic() - began
