"""The models of an endpoint: a run's living members in one sampler, the bare base, and choices among members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from populora_core.benchmarks.metrics import voted
from populora_core.compute.work import Worker
from populora_core.lifecycle.naming import BEST, member_named
from populora_core.lifecycle.run_evaluation import chosen_members
from populora_core.lifecycle.standing import by_play
from populora_core.model.base import Vocabulary
from populora_core.problems.dialects import Dialect, dialect
from populora_core.problems.model import Problem
from populora_core.problems.parsing import FormatError, ProgramSyntaxError
from populora_core.problems.types import PROBLEM_TYPES, ballot
from populora_core.runs.run import Run
from populora_core.sampler.engines import choose_engine, scored_in
from populora_core.sampler.probe import serve
from populora_core.sampler.requests import Sampler, Served
from populora_core.sampler.spec import ModelSpec
from populora_core.stages.following import newest_generation
from populora_core.support.errors import RunDirectoryError
from populora_core.support.finish import FinishReason
from populora_plugins.serving.reply import MemberReply

BASE, VOTE, ROUTE = "base", "vote", "route"
Pick = Callable[[Sequence[MemberReply]], int]
"""A choice among several members' replies, in the members' order: the place of the one to give."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The models that an endpoint serves.

    Attributes:
        sampler: with all members resident.
        solvers: members that answer problems, of whom `vote` and `route` ask all; the fittest by play first.
        best: the fittest of them by play.
        context: tokens that a prompt with its completion may have.
        usual: tokens that a completion may have where nothing is said.
    """

    sampler: Sampler
    vocabulary: Vocabulary
    dialect: Dialect
    members: tuple[str, ...]
    solvers: tuple[str, ...]
    best: str
    context: int
    usual: int

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models."""
        return (*self.members, BEST, VOTE, ROUTE, BASE)

    def asked(self, model: str) -> tuple[tuple[str | None, ...], Pick]:
        """The members that answer for a model, None for the bare base, and the rule that picks one reply.

        Raises:
            RunDirectoryError: there is no such model, or its short name fits several.
        """
        match model:
            case "base":
                return (None,), first
            case "best":
                return (self.best,), first
            case "vote":
                return self.solvers, lambda replies: majority(self.dialect, replies)
            case "route":
                return self.solvers, surest
        return (member_named(model, self.members),), first


def open_fleet(run: Run, length: int) -> Fleet:
    """Load the members of a run's newest generation, with vLLM where that is installed, and prove each of them.

    Args:
        length: tokens that a prompt with its completion may have, where the base's own context is no shorter.

    Raises:
        RunDirectoryError: the run has no complete generation, or no one in it answers problems.
        AdapterNotServed: a member would answer with something else than its adapter.
    """
    config, newest = run.config, newest_generation(run)
    members = chosen_members(run, newest, "all")
    answering = chosen_members(run, newest, "solvers")
    solvers = tuple(name for name in by_play(run, newest) if name in answering)
    if not solvers:
        raise RunDirectoryError(f"no living member of {run.directory} answers problems")
    engine = choose_engine("auto", config.base, config.base.dtype)
    sampler = config.sampler.model_copy(update={"engine": engine})
    spec = ModelSpec(
        config.base, config.adapters, run.record["base_digest"], sampler, len(members), sleeps=False
    )
    worker = Worker(spec, config.compute.threads)
    adapters = [Served(name, run.adapter_folder(name, newest), sha256) for name, sha256 in members.items()]
    serve(worker.sampler, adapters, scored_in(worker.sampler.name, config.base.dtype))
    return Fleet(
        sampler=worker.sampler,
        vocabulary=worker.vocabulary,
        dialect=dialect(config.base.dialect, config.propose.inputs),
        members=tuple(sorted(members)),
        solvers=solvers,
        best=solvers[0],
        context=min(length, _context(run)),
        usual=max(config.propose.max_tokens, config.solve.max_tokens),
    )


def first(replies: Sequence[MemberReply]) -> int:
    return 0


def surest(replies: Sequence[MemberReply]) -> int:
    """The one that its own member gives the highest mean log-probability; of equal ones the first."""
    return max(range(len(replies)), key=lambda index: replies[index].sureness)


def majority(speech: Dialect, replies: Sequence[MemberReply]) -> int:
    """The reply that a vote gives (see `voted`); the first of all where none can be read."""
    read = [reading(speech, reply) for reply in replies]
    return voted([answer if any(answer) else None for answer in read]) or 0


def reading(speech: Dialect, reply: MemberReply) -> tuple[str | None, ...]:
    """The answer as each problem type would read it: the request does not say what was asked for.

    Two replies that are the same in every reading give the same answer, whatever was thought before it.
    """
    counts = sorted({1, speech.rules.inputs})
    return tuple(_read(speech, kind, inputs, reply) for kind in sorted(PROBLEM_TYPES) for inputs in counts)


def _read(speech: Dialect, kind: str, inputs: int, reply: MemberReply) -> str | None:
    """The answer to a problem of this type with so many inputs; None where it is none."""
    if reply.finish_reason is not FinishReason.STOP:
        return None
    try:
        asked = Problem("asked", kind, "", ("()",) * inputs, ("None",) * inputs, "")
        return ballot(kind, speech.parse_answer(asked, reply.text))
    except (FormatError, ProgramSyntaxError):
        return None


def _context(run: Run) -> int:
    from transformers import AutoConfig

    from populora_core.model.base import LOCAL, longest_sequence

    config = AutoConfig.from_pretrained(run.config.base.folder(), **LOCAL).get_text_config()
    return longest_sequence(config.to_dict())
