"""update: policy-gradient steps for every member in each role that it plays."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean

import numpy as np

from populora_core.benchmarks.corpus import read_corpus
from populora_core.compute.members import CORPUS, Lesson, Update
from populora_core.compute.shards import towards
from populora_core.config.sections import UpdateSection
from populora_core.learner.estimators import advantages, alike_by_type
from populora_core.learner.rows import CorpusText, MemberRules, UpdateRules, moving
from populora_core.population.member import Member, Role
from populora_core.stages.average import average
from populora_core.stages.context import StageContext
from populora_core.support.aliases import Row
from populora_core.support.finish import FinishReason

LENGTH = ("prompt_tokens", "completion_tokens")
SAMPLED = (*LENGTH, "finish_reason")


def run(ctx: StageContext) -> None:
    proposals = ctx.rows("proposals", "proposal_id", "teacher_id", "problem_type", *SAMPLED)
    attempts = ctx.rows("attempts", "attempt_id", "student_id", "problem_id", *SAMPLED)
    types = ctx.rows("problems", "problem_id", "problem_type")
    type_of = {row["problem_id"]: row["problem_type"] for row in types}
    settings = ctx.config.update
    estimate = partial(
        advantages, settings.estimator, std_floor=settings.std_floor, clip=settings.advantage_clip
    )

    cohorts = [f"{row['teacher_id']} {row['problem_type']}" for row in proposals]
    proposal_advantages = estimate(
        _rewards(ctx, "proposal_grades", "proposal_id", proposals, cohorts),
        groups=cohorts,
        cohorts=cohorts,
    )
    weighed_proposals = _weighed(ctx, proposal_advantages, proposals, "teacher_id", cohorts)
    problem_ids = [row["problem_id"] for row in attempts]
    cohorts = [f"{row['student_id']} {type_of[row['problem_id']]}" for row in attempts]
    attempt_advantages = estimate(
        _rewards(ctx, "attempt_grades", "attempt_id", attempts, cohorts),
        groups=problem_ids,
        cohorts=cohorts,
    )
    weighed_attempts = _weighed(ctx, attempt_advantages, attempts, "student_id", cohorts)
    lessons = {
        Role.TEACHER: _lessons(
            Role.TEACHER, "teacher_id", proposals, weighed_proposals, range(len(proposals))
        ),
        Role.STUDENT: _lessons(
            Role.STUDENT,
            "student_id",
            attempts,
            weighed_attempts,
            own_groups([row["student_id"] for row in attempts], problem_ids),
        ),
    }
    if settings.roles != "both":
        lessons = {role: own if settings.roles == f"{role}s" else [] for role, own in lessons.items()}
    members = ctx.members()
    steps = _steps(members, lessons, settings)
    tokens = _tokens(steps, {Role.TEACHER: proposals, Role.STUDENT: attempts})
    texts = _add_corpus(ctx, steps)

    before = ctx.member_folders()
    parts = [
        Update(
            members={member: before[member] for member in share},
            completions={
                Role.TEACHER: ctx.input_file("proposals"),
                Role.STUDENT: ctx.input_file("attempts"),
            },
            # Temperatures decide through the completions that were drawn at them, which are inputs of this stage.
            temperatures={
                Role.TEACHER: ctx.config.propose.temperature,
                Role.STUDENT: ctx.config.solve.temperature,
            },
            steps=[([row for row in step if row.member_id in share], rules) for step, rules in steps],
            earlier=ctx.earlier_folders(share),
            texts=texts,
        )
        for share in ctx.shares({member: tokens[member] for member in before})
    ]
    learned = sum(len(moving(step, settings.kl)) for step, _ in steps)
    done = ctx.shards.map(parts, towards(ctx.progress, learned))

    stats = {member: values for part in done for member, values in part["stats"].items()}
    ctx.extra["tokens"] = int(sum(tokens.values()))
    if reached := [(part["mfu"], part["seconds"]) for part in done if part.get("mfu") is not None]:
        ctx.extra["mfu"] = fmean(*zip(*reached, strict=True))  # weighed by how long each took
    if texts:
        ctx.extra["corpus_tokens"] = sum(part["corpus_tokens"] for part in done)
    ctx.extra["member_seconds"] = {member: part["seconds"] for part in done for member in part["stats"]}
    ctx.extra["proof"] = {member: told for part in done for member, told in part["proof"].items()}
    ctx.write(
        "updates",
        [
            {"generation": ctx.generation, "member_id": member.member_id, "role": role, **values}
            for member in members
            for role, values in zip(member.role.plays, stats[member.member_id], strict=False)
        ],
    )
    ctx.write("proposal_advantages", _pairs("proposal_id", proposals, proposal_advantages))
    ctx.write("attempt_advantages", _pairs("attempt_id", attempts, attempt_advantages))
    hashes = {member: own for part in done for member, own in part["hashes"].items()}
    ctx.write_adapters(hashes | average(ctx, members))


def _steps(
    members: Iterable[Member], lessons: Mapping[Role, Sequence[Lesson]], settings: UpdateSection
) -> list[tuple[list[Lesson], UpdateRules]]:
    """The lessons of every member's first role, then those of the second role of members that play two; with rules."""
    plays = {member.member_id: member.role.plays for member in members}
    of_teachers = MemberRules(learning_rate=settings.teacher_learning_rate or None)
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
                    member: of_teachers
                    for member, roles in plays.items()
                    if roles[step:][:1] == (Role.TEACHER,)
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
    steps: Iterable[tuple[Iterable[Lesson], UpdateRules]], rows: Mapping[str, Sequence[Row]]
) -> Mapping[str, float]:
    """member_id -> the tokens that it learns from."""
    found: dict[str, float] = defaultdict(float)
    for lessons, rules in steps:
        for each in moving(lessons, rules.settings.kl):
            found[each.member_id] += sum(rows[each.role][each.row][name] for name in LENGTH)
    return found


def _rewards(
    ctx: StageContext, grades: str, key: str, rows: Sequence[Row], cohorts: Sequence[str]
) -> list[float | None]:
    """The rows' rewards, without those of cut completions where these are masked; shuffled where that is set."""
    found: Mapping[str, float | None] = {row[key]: row["reward"] for row in ctx.rows(grades)}
    rewards = [found[row[key]] for row in rows]
    if ctx.config.update.cut_completions == "mask":
        ended = [row["finish_reason"] == FinishReason.STOP for row in rows]
        rewards = [reward if kept else None for reward, kept in zip(rewards, ended, strict=True)]
    return (
        _shuffled(rewards, cohorts, ctx.rng("shuffle", grades))
        if ctx.config.update.shuffle_rewards
        else rewards
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


def _weighed(
    ctx: StageContext,
    advantages: Sequence[float | None],
    rows: Sequence[Row],
    owner: str,
    cohorts: Sequence[str],
) -> Sequence[float | None]:
    """Weigh advantages for the loss, by `update.token_mean`."""
    if ctx.config.update.token_mean == "member":
        return advantages
    tokens = [row["completion_tokens"] for row in rows]
    return alike_by_type(advantages, tokens, [row[owner] for row in rows], cohorts)


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
    role: Role,
    owner: str,
    rows: Iterable[Row],
    advantages: Iterable[float | None],
    groups: Iterable[int],
) -> list[Lesson]:
    """Lessons from the rows of a role, without those that infrastructure failed for."""
    return [
        Lesson(role, number, row[owner], advantage, group)
        for number, (row, advantage, group) in enumerate(zip(rows, advantages, groups, strict=True))
        if advantage is not None
    ]


def _pairs(key: str, rows: Iterable[Row], values: Iterable[float | None]) -> list[Row]:
    return [{key: row[key], "advantage": value} for row, value in zip(rows, values, strict=True)]
