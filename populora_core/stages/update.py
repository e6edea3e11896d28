"""update: policy-gradient steps for every member in each role that it plays."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from populora_core.benchmarks.corpus import read_corpus
from populora_core.compute.members import CORPUS, Lesson, Update
from populora_core.compute.proving import in_turn
from populora_core.compute.shards import towards
from populora_core.config.sections import UpdateSection
from populora_core.learner.estimators import advantages, alike_by_type
from populora_core.learner.rows import CorpusText, MemberRules, UpdateRules, moving
from populora_core.population.member import Member, Role
from populora_core.population.pbt import Hyperparameters, own_or
from populora_core.sampler.engines import scored_in
from populora_core.stages.adapters import earlier_folders, member_folders
from populora_core.stages.average import average
from populora_core.stages.context import StageContext
from populora_core.stages.sampling import shares
from populora_core.store.adapters import WEIGHTS
from populora_core.store.manifest import read_manifest
from populora_core.store.rows import SampledRow
from populora_core.support.finish import FinishReason

SAMPLED = ("prompt_tokens", "completion_tokens", "finish_reason")


@dataclass(frozen=True, slots=True)
class _Completions:
    """The completions of a role, in stored order.

    Attributes:
        rows: those of `SAMPLED`.
        members: who wrote each.
        rewards: of each, None where infrastructure failed.
        groups, cohorts: as in `estimators.advantages`.
    """

    rows: Sequence[SampledRow]
    ids: list[str]
    members: list[str]
    rewards: list[float | None]
    groups: list[str]
    cohorts: list[str]


@dataclass(frozen=True, slots=True)
class _Plan:
    """All that a generation teaches.

    Attributes:
        played: the completions of each role.
        advantages: of each completion of a role, None where infrastructure failed.
        steps: one after another, the lessons of all members and the rules that they follow.
        texts: the corpus texts that lessons name.
        tokens: member_id -> the tokens that it learns from.
    """

    members: list[Member]
    played: Mapping[Role, _Completions]
    advantages: Mapping[Role, list[float | None]]
    steps: list[tuple[list[Lesson], UpdateRules]]
    texts: list[CorpusText]
    tokens: Mapping[str, float]


def run(ctx: StageContext) -> None:
    plan = _plan(ctx)
    _record(ctx, plan, _learn(ctx, plan))


def _plan(ctx: StageContext) -> _Plan:
    settings, members = ctx.config.update, ctx.members()
    played = {Role.TEACHER: _proposals(ctx), Role.STUDENT: _attempts(ctx)}
    found = {role: _advantages(ctx, role, own) for role, own in played.items()}
    lessons = {role: _lessons(ctx, role, own, found[role]) for role, own in played.items()}
    if settings.roles != "both":
        lessons = {role: own if settings.roles == f"{role}s" else [] for role, own in lessons.items()}
    steps = _steps(members, lessons, settings, ctx.hyperparameters())
    tokens = _tokens(steps, played)  # of what was sampled: a corpus text is none of it
    return _Plan(members, played, found, steps, _add_corpus(ctx, steps), tokens)


def _learn(ctx: StageContext, plan: _Plan) -> list[dict[str, Any]]:
    """The results of the shards, each of which updates its share of the members."""
    before, own = member_folders(ctx), ctx.hyperparameters()
    parts = [
        Update(
            members={member: before[member] for member in share},
            completions={
                Role.TEACHER: ctx.input_file("proposals"),
                Role.STUDENT: ctx.input_file("attempts"),
            },
            temperatures={
                Role.TEACHER: _temperature(ctx, "proposals", "propose"),
                Role.STUDENT: _temperature(ctx, "attempts", "solve"),
            },
            steps=[([row for row in step if row.member_id in share], rules) for step, rules in plan.steps],
            earlier=earlier_folders(ctx, share),
            texts=plan.texts,
            own_temperatures={
                member: temperature
                for member in share
                if member in own and (temperature := own[member].temperature) is not None
            },
            others=_others(ctx, share, before),
        )
        for share in shares(ctx, {member: plan.tokens[member] for member in before})
    ]
    learned = sum(len(moving(step, ctx.config.update.kl)) for step, _ in plan.steps)
    return ctx.shards.map(parts, towards(ctx.progress, learned))


def _others(
    ctx: StageContext, share: Iterable[str], before: Mapping[str, Path]
) -> dict[str, dict[str, Path]]:
    """member_id -> the weights of the members that its completions are held to, whichever shards these are in."""
    spec = ctx.session.model_spec
    if scored_in(spec.sampler.engine, spec.base.dtype) == "float32":
        return {}
    met = {member: in_turn(sorted(before), member, ctx.generation) for member in share}
    return {member: {other: before[other] / WEIGHTS for other in others} for member, others in met.items()}


def _temperature(ctx: StageContext, table: str, section: str) -> float:
    """The temperature that a table's completions were drawn at: in a fork maybe that of the run it comes from.

    It decides through the completions, which are inputs of this stage.
    """
    sampled = read_manifest(ctx.folders(table)[-1])
    settings = sampled.config if sampled else ctx.config.as_json()
    return float(settings[section]["temperature"])


def _record(ctx: StageContext, plan: _Plan, done: Sequence[Mapping[str, Any]]) -> None:
    """Write what each member learnt, and its new adapter."""
    ctx.extra["tokens"] = int(sum(plan.tokens.values()))
    if reached := [(part["mfu"], part["seconds"]) for part in done if part.get("mfu") is not None]:
        ctx.extra["mfu"] = fmean(*zip(*reached, strict=True))  # weighed by how long each took
    if plan.texts:
        ctx.extra["corpus_tokens"] = sum(part["corpus_tokens"] for part in done)
    ctx.extra["member_seconds"] = {member: part["seconds"] for part in done for member in part["stats"]}
    ctx.extra["proof"] = {member: told for part in done for member, told in part["proof"].items()}
    stats = {member: values for part in done for member, values in part["stats"].items()}
    ctx.write(
        "updates",
        [
            {"generation": ctx.generation, "member_id": member.member_id, "role": role, **values}
            for member in plan.members
            for role, values in zip(member.role.plays, stats[member.member_id], strict=False)
        ],
    )
    for role, name in ((Role.TEACHER, "proposal"), (Role.STUDENT, "attempt")):
        rows = zip(plan.played[role].ids, plan.advantages[role], strict=True)
        ctx.write(f"{name}_advantages", [{f"{name}_id": own, "advantage": value} for own, value in rows])
    hashes = {member: own for part in done for member, own in part["hashes"].items()}
    ctx.write_adapters(hashes | average(ctx, plan.members))


def _steps(
    members: Iterable[Member],
    lessons: Mapping[Role, Sequence[Lesson]],
    settings: UpdateSection,
    own: Mapping[str, Hyperparameters],
) -> list[tuple[list[Lesson], UpdateRules]]:
    """The lessons of every member's first role, then those of the second role of members that play two; with rules."""
    plays = {member.member_id: member.role.plays for member in members}
    usual = {Role.TEACHER: settings.teacher_learning_rate or None}

    def rules(member: str, role: Role) -> MemberRules:
        return MemberRules(learning_rate=own_or(own, member, "learning_rate", usual.get(role)))

    return [
        (
            [
                each
                for role, own in lessons.items()
                for each in own
                if each.member_id in plays
                and plays[each.member_id].index(role) == step  # the past does not learn
            ],
            UpdateRules(
                settings,
                {
                    member: rules(member, role)
                    for member, roles in plays.items()
                    for role in roles[step:][:1]
                    if role is Role.TEACHER or member in own
                },
            ),
        )
        for step in range(max(map(len, plays.values())))
    ]


def _add_corpus(ctx: StageContext, steps: Sequence[tuple[list[Lesson], UpdateRules]]) -> list[CorpusText]:
    """Give every member that learns texts of the corpus in each step, beside what it sampled; returns the texts.

    Their number is to that of its completions as s to 1 - s, at least 1, none twice in a step; what they weigh is the
    share s whatever their number and length (see `learner.update`).
    """
    settings, texts = ctx.config.update, list[CorpusText]()
    if not settings.corpus_share:
        return texts
    ctx.require_same("update", "corpus", "corpus")
    corpus = read_corpus(settings.corpus)
    odds = settings.corpus_share / (1.0 - settings.corpus_share)
    for number, (lessons, _) in enumerate(steps):
        own = Counter(each.member_id for each in lessons)
        for member in sorted({each.member_id for each in moving(lessons, settings.kl)}):
            count = min(max(1, round(odds * own[member])), len(corpus))
            chosen = ctx.rng("corpus", member, number).choice(len(corpus), size=count, replace=False)
            for place, drawn in enumerate(chosen.tolist()):
                lessons.append(Lesson(CORPUS, len(texts), member, 1.0, place))
                texts.append(corpus[drawn])
    return texts


def _tokens(
    steps: Iterable[tuple[Iterable[Lesson], UpdateRules]], played: Mapping[Role, _Completions]
) -> Mapping[str, float]:
    """member_id -> the tokens that it learns from."""
    found: dict[str, float] = defaultdict(float)
    for lessons, rules in steps:
        for each in moving(lessons, rules.settings.kl):
            row = played[Role(each.role)].rows[each.row]
            found[each.member_id] += row["prompt_tokens"] + row["completion_tokens"]
    return found


def _proposals(ctx: StageContext) -> _Completions:
    """The teachers' completions: each (teacher, type) is a cohort, and a group."""
    rows = ctx.rows("proposals", "proposal_id", "teacher_id", "problem_type", *SAMPLED)
    reward_of = {row["proposal_id"]: row["reward"] for row in ctx.rows("proposal_grades")}
    cohorts = [f"{row['teacher_id']} {row['problem_type']}" for row in rows]
    ids, members = [row["proposal_id"] for row in rows], [row["teacher_id"] for row in rows]
    return _Completions(rows, ids, members, [reward_of[name] for name in ids], cohorts, cohorts)


def _attempts(ctx: StageContext) -> _Completions:
    """The students' completions: each problem is a group, each (student, type) a cohort."""
    rows = ctx.rows("attempts", "attempt_id", "student_id", "problem_id", *SAMPLED)
    reward_of = {row["attempt_id"]: row["reward"] for row in ctx.rows("attempt_grades")}
    problems = ctx.rows("problems", "problem_id", "problem_type")
    type_of = {row["problem_id"]: row["problem_type"] for row in problems}
    ids, members = [row["attempt_id"] for row in rows], [row["student_id"] for row in rows]
    groups = [row["problem_id"] for row in rows]
    cohorts = [f"{row['student_id']} {type_of[row['problem_id']]}" for row in rows]
    return _Completions(rows, ids, members, [reward_of[name] for name in ids], groups, cohorts)


def _advantages(ctx: StageContext, role: Role, own: _Completions) -> list[float | None]:
    """The advantage of each completion.

    Rewards of cut completions count for nothing where these are masked; rewards are shuffled where that is set.
    """
    settings, rewards = ctx.config.update, own.rewards
    if settings.cut_completions == "mask":
        ended = [row["finish_reason"] == FinishReason.STOP for row in own.rows]
        rewards = [reward if kept else None for reward, kept in zip(rewards, ended, strict=True)]
    if settings.shuffle_rewards:
        rng = ctx.rng("shuffle", "proposal_grades" if role is Role.TEACHER else "attempt_grades")
        rewards = _shuffled(rewards, own.cohorts, rng)
    return advantages(
        settings.estimator,
        rewards,
        groups=own.groups,
        cohorts=own.cohorts,
        std_floor=settings.std_floor,
        clip=settings.advantage_clip,
    )


def _shuffled(
    rewards: Sequence[float | None], cohorts: Sequence[str], rng: np.random.Generator
) -> list[float | None]:
    """Each cohort's rewards, dealt out among its rows at random."""
    dealt = list(rewards)
    places: dict[str, list[int]] = defaultdict(list)
    for place, (reward, cohort) in enumerate(zip(rewards, cohorts, strict=True)):
        if reward is not None:
            places[cohort].append(place)
    for own in places.values():
        for place, source in zip(own, rng.permutation(own).tolist(), strict=True):
            dealt[place] = rewards[source]
    return dealt


def own_groups(members: Sequence[str], problem_ids: Sequence[str]) -> list[int]:
    """Number each attempt's problem among those of its member, in the order in which they come.

    Minibatches take turns over it, so that each has an even share of what a member was asked by its teacher, and of
    the anchors behind that. A number over all problems would not do: members are dealt anchors in turns too.
    """
    seen: dict[str, dict[str, int]] = defaultdict(dict)
    return [
        seen[member].setdefault(problem_id, len(seen[member]))
        for member, problem_id in zip(members, problem_ids, strict=True)
    ]


def _lessons(
    ctx: StageContext, role: Role, own: _Completions, advantages: Sequence[float | None]
) -> list[Lesson]:
    """Lessons from a role's completions, without those that infrastructure failed for.

    Advantages are weighed for the loss by `update.token_mean`.
    """
    if ctx.config.update.token_mean != "member":
        tokens = [row["completion_tokens"] for row in own.rows]
        advantages = alike_by_type(advantages, tokens, own.members, own.cohorts)
    groups = range(len(own.ids)) if role is Role.TEACHER else own_groups(own.members, own.groups)
    return [
        Lesson(role, number, member, advantage, group)
        for number, (member, advantage, group) in enumerate(zip(own.members, advantages, groups, strict=True))
        if advantage is not None
    ]
