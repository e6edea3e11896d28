"""One model from many: best member, soup, vote or route, chosen on one half of a suite and reported on the other.

- best: the member with the highest validation score;
- soup: the exact mean of members' updates, cut to the rank; members join in the order of validation scores, each
  only if the soup's own score does not fall (greedy soups; Wortsman et al., arXiv 2203.05482);
- vote: the most frequent answer of all members; of equally many the one whose first voter stands higher;
- route: one member answers, known by the benchmark (the problem type) or by which is surest of its own answer (mean
  log-probability of its tokens), whichever does better on validation. No second model is used.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Final

import pyarrow as pa

from populora_core.benchmarks.metrics import Interval, voted
from populora_core.benchmarks.scores import (
    BASE,
    by_problem,
    difference,
    group_interval,
    headlines,
    shared_scores,
)
from populora_core.benchmarks.suite import Part, Suite
from populora_core.lifecycle.mixing import mixed
from populora_core.lifecycle.naming import BEST
from populora_core.lifecycle.run_evaluation import SOLVERS, chosen_members
from populora_core.runs.run import Run
from populora_core.stages.context import StageContext
from populora_core.stages.evaluation import ANSWERED, BASE_PLAYER, Evaluation, Exam, Player, players_of
from populora_core.store.rows import EvaluationItemRow, SampledRow
from populora_core.support.errors import BenchmarkError

SOUP, VOTE, ROUTE = "soup", "vote", "route"
HOWS = (BEST, SOUP, VOTE, ROUTE)
ANY, MEAN = "any member (pass@k)", "mean member"
BY_TYPE, BY_SURENESS = "problem type", "log-probability"
SURENESS: Final = "mean_logprob"


class SureRow(EvaluationItemRow):
    """An answer with how sure its player was of it."""

    mean_logprob: float


Choose = Callable[[Sequence[SureRow]], SureRow]
"""Every member's answer to one problem, in the order of validation scores -> the chosen one."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """The ways of assembling a run's members, with their scores.

    Attributes:
        adapters: member_id -> sha256 of its weights, the best by validation first.
        soup: the members that are in it, and where it lies; one alone where no other helped.
        energy_kept: share of the exact mean's squared norm that is left at the adapters' rank.
        by_type: benchmark -> the member that is best there on validation.
        validation: player -> score on the half that chose.
        items: every answer of the reported half, by the base, each member and each way of assembling.
    """

    run: Run
    generation: int
    suite: Suite
    adapters: Mapping[str, str]
    soup: tuple[str, ...]
    soup_folder: Path
    energy_kept: float
    router: str
    by_type: Mapping[str, str]
    validation: Mapping[str, float]
    items: Sequence[SureRow]

    @property
    def winner(self) -> str:
        """The way that is best on validation; of equals the one that costs least."""
        return max(HOWS, key=lambda how: (self.validation[how], -HOWS.index(how)))

    @property
    def told(self) -> str:
        """A line on what won, and on what soup and route came to."""
        return (
            f"on validation {self.winner} won; in the soup: {', '.join(self.soup)} ({self.energy_kept:.1%} of the"
            f" mean update's squared norm fits the rank); the route goes by {self.router}"
        )

    @property
    def groups(self) -> dict[str, list[str]]:
        """Lines of a comparison -> the players that each is the mean of."""
        members = list(self.adapters)
        alone = {member: [member] for member in members}
        return {name: [name] for name in (*HOWS, ANY)} | {MEAN: members, BASE: [BASE]} | alone


class _Sure(Evaluation):
    """An evaluation that also keeps how sure a member is of its answer."""

    kept = (*ANSWERED, "logprobs")

    def _table(self, rows: Sequence[EvaluationItemRow], completions: Sequence[SampledRow]) -> pa.Table:
        sure = [fmean(each["logprobs"] or (0.0,)) for each in completions]
        return super()._table(rows, completions).append_column(SURENESS, pa.array(sure, pa.float64()))


class Assembler:
    """A trial of every way on the members that answer after a generation.

    Args:
        say: called with a line on each step.

    Attributes:
        tokens: of what was sampled.
    """

    def __init__(self, ctx: StageContext, suite: Suite, say: Callable[[str], None]) -> None:
        self.ctx, self.suite, self._say = ctx, suite, say
        self._run, self.generation = ctx.session.run, ctx.generation
        self.adapters = chosen_members(self._run, self.generation, SOLVERS)
        self.tokens: Counter[str] = Counter()

    def run(self) -> Assembly:
        """Choose on validation, then answer the other half.

        Raises:
            SandboxUnavailable: the sandbox went down.
        """
        seen = self._answers(Part.VALIDATION, players_of(self.adapters), "the members choose by validation")
        scores = self._scores(seen, self.adapters)
        order = sorted(self.adapters, key=lambda member: (-scores[member], member))
        self.adapters = {member: self.adapters[member] for member in order}
        soup, player, energy, seen = self._stir(order, scores[order[0]], seen)
        by_type = _best_by_type(seen, order)
        routers = {BY_TYPE: _by_type(by_type), BY_SURENESS: _surest}
        tried = _assembled(seen, order, routers)
        router = max(routers, key=lambda name: self._scores(tried, routers)[name])
        ways = {BEST: _first, VOTE: _voted, ROUTE: routers[router], ANY: _any_right}
        ways |= {} if player else {SOUP: _first}
        validation = self._scores([*seen, *_assembled(seen, order, ways)], [*order, *HOWS, ANY])
        players = [*players_of(self.adapters), BASE_PLAYER, *([player] if player else [])]
        told = self._answers(Part.TEST, players, "the other half")
        return Assembly(
            run=self._run,
            generation=self.generation,
            suite=self.suite,
            adapters=self.adapters,
            soup=soup,
            soup_folder=self._folder(player or players_of({order[0]: self.adapters[order[0]]})[0]),
            energy_kept=energy,
            router=router,
            by_type=by_type,
            validation=validation,
            items=[*told, *_assembled(told, order, ways)],
        )

    def _stir(
        self, order: Sequence[str], best: float, seen: list[SureRow]
    ) -> tuple[tuple[str, ...], Player | None, float, list[SureRow]]:
        """The greedy soup: what is in it, its player (None for one member alone), energy kept, all rows seen."""
        chosen: tuple[str, ...] = (order[0],)
        player, energy, rows = None, 1.0, []
        for member in order[1:]:
            wanted = (*chosen, member)
            mixed, kept = self._mixed(wanted)
            own = self._answers(Part.VALIDATION, [mixed], f"a soup of {len(wanted)}")
            if (score := self._scores(own, [SOUP])[SOUP]) >= best:
                chosen, player, energy, best, rows = wanted, mixed, kept, score, own
        return chosen, player, energy, [*seen, *rows]

    def _mixed(self, members: Sequence[str]) -> tuple[Player, float]:
        """The mean of members as a player, and the share of its energy that the rank can hold."""
        folders = {member: self._run.adapter_folder(member, self.generation) for member in members}
        name = f"{SOUP}-{members[-1]}"  # each is mixed once, with whom joined before
        player, kept = mixed(self.ctx.shards, name, folders, self.suite.seed)
        return replace(player, member_id=SOUP), kept

    def _answers(self, part: Part, players: Sequence[Player], what: str) -> list[SureRow]:
        self._say(f"{what}: {len(players)} players answer the {part} half of {self.suite.suite} ...")
        exam = Exam(self.suite, part, players)
        evaluation = _Sure(self.ctx.session, exam, self.generation, self.ctx.shards)
        rows: list[SureRow] = evaluation.run(self.ctx.progress).to_pylist()
        self.tokens.update(evaluation.tokens)
        return rows

    def _scores(
        self, items: Sequence[SureRow], players: Sequence[str] | Mapping[str, object]
    ) -> dict[str, float]:
        scores = {}
        for name in players:
            interval = group_interval(items, self.suite, [name])
            if interval is None:
                raise BenchmarkError(
                    f"{name} has no score on {self.suite.suite}",
                    expected="judged answers to every benchmark of the suite",
                    got="nothing but infrastructure failures",
                    fix="fix the sandbox, then repeat this command",
                )
            scores[name] = interval.value
        return scores

    def _folder(self, player: Player) -> Path:
        return player.folder or self._run.adapter_folder(player.member_id, self.generation)


@dataclass(frozen=True, slots=True)
class Compared:
    """A group's mean score over problems, and by how much it is above the mean member and the base, None for itself."""

    player: str
    score: Interval
    over_mean: Interval | None
    over_base: Interval | None


def compared(items: Sequence[SureRow], suite: Suite, groups: Mapping[str, Sequence[str]]) -> list[Compared]:
    """Each group's mean score with its interval over problems, and paired against the mean member and the base.

    Args:
        items: of one half; several runs may stand in them, their players distinguished by name.
        groups: what is compared -> players; `MEAN` and `BASE` among them.
    """
    scored = [by_problem(items, metric) for metric in headlines(suite)]

    def over(against: str, name: str) -> Interval | None:
        if name == against:
            return None
        first, second = (
            [[own[player].scores for player in groups[who]] for own in scored] for who in (name, against)
        )
        pairs = [shared_scores(a, b) for a, b in zip(first, second, strict=True)]
        return difference(pairs, suite.seed, against)

    found = ((name, group_interval(items, suite, players)) for name, players in groups.items())
    return [Compared(name, score, over(MEAN, name), over(BASE, name)) for name, score in found if score]


def together(assemblies: Sequence[Assembly]) -> tuple[list[SureRow], dict[str, list[str]]]:
    """The answers and groups of several runs as one: a group is the mean over runs at every problem."""
    items: list[SureRow] = []
    groups: dict[str, list[str]] = defaultdict(list)
    for number, assembly in enumerate(assemblies):
        items += [row | {"member_id": f"{number} {row['member_id']}"} for row in assembly.items]
        for name in (*HOWS, ANY, MEAN, BASE):
            groups[name] += [f"{number} {player}" for player in assembly.groups[name]]
    return items, dict(groups)


def _assembled(items: Sequence[SureRow], order: Sequence[str], ways: Mapping[str, Choose]) -> list[SureRow]:
    """Answers of each way of assembling to each problem, as rows of a player of its name."""
    place = {member: number for number, member in enumerate(order)}
    asked: dict[tuple[object, ...], list[SureRow]] = defaultdict(list)
    for row in items:
        if row["member_id"] in place:
            asked[row["benchmark"], row["temperature"], row["item_id"], row["sample_index"]].append(row)
    given = [sorted(rows, key=lambda row: place[row["member_id"]]) for rows in asked.values()]
    return [choose(rows) | {"member_id": name} for name, choose in ways.items() for rows in given]


def _first(rows: Sequence[SureRow]) -> SureRow:
    return rows[0]


def _voted(rows: Sequence[SureRow]) -> SureRow:
    place = voted([row["answer"] if row["correct"] is not None else None for row in rows])
    return rows[place or 0]


def _surest(rows: Sequence[SureRow]) -> SureRow:
    return max(rows, key=lambda row: row[SURENESS])


def _any_right(rows: Sequence[SureRow]) -> SureRow:
    lost = (row for row in rows if row["correct"] is None)  # which may have been right
    return next((row for row in rows if row["correct"]), next(lost, rows[0]))


def _by_type(by_type: Mapping[str, str]) -> Choose:
    def choose(rows: Sequence[SureRow]) -> SureRow:
        return next(row for row in rows if row["member_id"] == by_type[row["benchmark"]])

    return choose


def _best_by_type(items: Sequence[SureRow], order: Sequence[str]) -> dict[str, str]:
    """benchmark -> the member with most of its judged answers right there, of equals the better one."""
    judged: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for row in items:
        if row["correct"] is not None:
            judged[row["benchmark"], row["member_id"]].append(row["correct"])
    benchmarks = sorted({row["benchmark"] for row in items})
    return {name: max(order, key=lambda member: _share(judged[name, member])) for name in benchmarks}


def _share(right: Sequence[bool]) -> float:
    return sum(right) / max(1, len(right))
