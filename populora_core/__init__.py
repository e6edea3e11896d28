"""PopuLoRA: co-evolving LoRA teachers and students on one frozen base model.

The names below are what the project promises to other people's code; examples/ uses no others. Each is imported when
it is first used, so that `import populora_core` brings no torch along, and each says itself what it takes, gives and
raises.

`open_run(DIR).query(sql)` answers questions about a run: `.df()` gives a pandas frame, `.arrow()` an Arrow table.
"""

from __future__ import annotations

import os
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from populora_core.support.version import VERSION

# Threads that wait in a loop for the next product keep the cores from those that have one: beside busy neighbours
# two threads then take ten times as long. OpenMP reads it when it is loaded, so it has to be said before torch comes.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:  # for editors and type checkers; tests/test_face.py holds it equal to _PUBLIC
    from populora_core.benchmarks.benchmark import Benchmark, Item, ItemScore, Response
    from populora_core.compute.arena import Arena, SamplingRules
    from populora_core.compute.backends import ComputeBackend
    from populora_core.compute.breeding import heir
    from populora_core.compute.shards import InlineCompute
    from populora_core.config.load import Config, load_config
    from populora_core.config.sections import GradeSection
    from populora_core.learner.estimators import advantages
    from populora_core.learner.rows import TrainingRow, UpdateRules
    from populora_core.learner.update import update_members
    from populora_core.lifecycle.loop import train
    from populora_core.model.base import load_base
    from populora_core.model.layout import AdapterLayout
    from populora_core.model.stacked import StackedAdapters
    from populora_core.model.state import MemberState
    from populora_core.population import rating
    from populora_core.population.matchmaking import draw_matches
    from populora_core.population.member import Member, Role
    from populora_core.population.replacement import plan_evolution
    from populora_core.population.variation import make_child
    from populora_core.problems.buffer import Buffer
    from populora_core.problems.dialects import dialect
    from populora_core.problems.dialects.dialect import Dialect
    from populora_core.problems.grading import check_proposals, judge_attempts
    from populora_core.problems.model import Draft, Problem
    from populora_core.problems.parsing import FormatError, ProgramSyntaxError, entry_function, parse_program
    from populora_core.problems.rewards import GradedProblem, ProblemReward, student_reward, teacher_reward
    from populora_core.problems.types import AnswerForm, ProblemType, TypeRules
    from populora_core.problems.types.rules import OneExample, job_for, judge_outputs
    from populora_core.problems.verdicts import AttemptVerdict, ProposalVerdict
    from populora_core.runs.run import Run, begin
    from populora_core.runs.session import Session
    from populora_core.runs.trackers import GenerationFigures, Tracker
    from populora_core.sampler.requests import Completion, Request, Sampler, Served, Text
    from populora_core.sampler.torch_sampler import TorchSampler
    from populora_core.sandbox.backends import open_sandbox
    from populora_core.sandbox.jobs import Job, JobResult, Limits, Sandbox
    from populora_core.sandbox.literals import literal, parse_arguments
    from populora_core.sandbox.verify import verify_or_raise
    from populora_core.sharing.objects import ObjectStore, Stored
    from populora_core.sharing.places import LocalObjects
    from populora_core.store.catalogue import Catalogue
    from populora_core.support import ids, trust
    from populora_core.support.errors import (
        AdapterError,
        BenchmarkError,
        DamagedObject,
        PopuloraError,
        RunDirectoryError,
        StoreUnavailable,
    )
    from populora_core.support.finish import FinishReason

__version__ = VERSION

_PUBLIC = {
    # Runs: configure, start, continue and question them
    "config.load": "Config load_config",
    "runs.run": "begin Run",
    "runs.session": "Session",
    "lifecycle.loop": "train",
    "store.catalogue": "Catalogue",
    # The frozen base and the adapters stacked on it
    "model.base": "load_base",
    "model.layout": "AdapterLayout",
    "model.stacked": "StackedAdapters",
    "model.state": "MemberState",
    # Sampling
    "sampler.requests": "Request Text Completion Served Sampler",
    "support.finish": "FinishReason",
    "sampler.torch_sampler": "TorchSampler",
    # Problems and their types
    "problems.model": "Draft Problem",
    "problems.buffer": "Buffer",
    "problems.dialects": "dialect",
    "problems.dialects.dialect": "Dialect",
    "problems.types": "ProblemType TypeRules AnswerForm",
    "problems.types.rules": "OneExample job_for judge_outputs",
    "problems.grading": "check_proposals judge_attempts",
    "problems.verdicts": "ProposalVerdict AttemptVerdict",
    "config.sections": "GradeSection",
    "problems.rewards": "teacher_reward student_reward GradedProblem ProblemReward",
    "problems.parsing": "parse_program entry_function FormatError ProgramSyntaxError",
    "sandbox.literals": "parse_arguments literal",
    # The sandbox
    "sandbox.backends": "open_sandbox",
    "sandbox.jobs": "Sandbox Limits Job JobResult",
    "sandbox.verify": "verify_or_raise",
    # Learning
    "learner.estimators": "advantages",
    "learner.rows": "TrainingRow UpdateRules",
    "learner.update": "update_members",
    # The population
    "population.member": "Member Role",
    "population.matchmaking": "draw_matches",
    "population.replacement": "plan_evolution",
    "population.variation": "make_child",
    "compute.breeding": "heir",
    "compute.arena": "Arena SamplingRules",
    # Benchmarks
    "benchmarks.benchmark": "Benchmark Item ItemScore Response",
    # Errors that a protocol asks for, or that a caller may meet
    "support.errors": "PopuloraError RunDirectoryError AdapterError BenchmarkError StoreUnavailable DamagedObject",
    # Packages that bring trackers, stores and machines
    "runs.trackers": "Tracker GenerationFigures",
    "sharing.objects": "ObjectStore Stored",
    "sharing.places": "LocalObjects",
    "compute.backends": "ComputeBackend",
    "compute.shards": "InlineCompute",
}
"""Module below this package -> its public names."""
PLACES = {
    "ids": f"{__name__}.support.ids",
    "rating": f"{__name__}.population.rating",
    "trust": f"{__name__}.support.trust",
    **{name: f"{__name__}.{module}:{name}" for module, names in _PUBLIC.items() for name in names.split()},
}

__all__ = sorted(["open_run", *PLACES])


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(PLACES[name])


def __dir__() -> list[str]:
    return __all__


def open_run(*directories: str | Path) -> Catalogue:
    """Open a run for questions, or several as one.

    Args:
        directories: run directories, folders of them, or patterns such as `runs/seed-*`.

    Raises:
        RunDirectoryError: one of them is no run and holds none.
    """
    from populora_core.runs.run import open_runs
    from populora_core.store.catalogue import Catalogue

    return Catalogue(*(run.directory for run in open_runs(directories)))
