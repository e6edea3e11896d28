"""Plans of stages: what one would be made from, as it stands committed, and the key that follows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from populora_core.problems.types import problem_type
from populora_core.runs.run import Run
from populora_core.stages.decisive import arithmetic, decisive
from populora_core.stages.table import FOUND, STAGES, Stage, When, as_configured, file_name, giver, stages_of
from populora_core.store.manifest import intact, read_manifest, stage_dir
from populora_core.support import ids
from populora_core.support.errors import ArtifactError
from populora_core.support.typed import shown

if TYPE_CHECKING:
    from populora_core.runs.session import Session


MADE_WITH = ("base", "dialect", "sandbox", "sampler")


@dataclass(frozen=True, slots=True)
class Source:
    """One needed artifact of one generation: the stage folder that holds it, and its content hash.

    The hash is empty where the stage was made before it gave this artifact; of the past that is left out.
    """

    folder: Path
    content: str


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage of one generation, as it follows from what is committed.

    Attributes:
        stage: as configured.
        sources: artifact name -> the stage folders that hold it, oldest first (one, but for the past).
        decides: everything that decides the content, and nothing else; what that was for a committed stage, its
            manifest keeps.
        key: sha256 over `decides`.
    """

    generation: int
    stage: Stage
    sources: Mapping[str, Sequence[Path]]
    decides: Mapping[str, Any]
    key: str

    @property
    def inputs(self) -> Mapping[str, str]:
        """Artifact name -> content hash."""
        return self.decides["inputs"]

    @property
    def seed(self) -> int:
        """The stage's own; every random stream derives from it."""
        return self.decides["seed"]

    @property
    def settings(self) -> Mapping[str, Any]:
        """The sections of the configuration that decide the result."""
        return self.decides["config"]

    @property
    def made_with(self) -> dict[str, Any]:
        """The part of `decides` that is neither the stage's, nor a setting or an input."""
        return {name: self.decides[name] for name in MADE_WITH if self.decides[name] is not None}


@dataclass(slots=True)
class Past:
    """Artifacts of earlier generations, each read once per walk over a whole run.

    A walk over n generations asks for the past of each; looking at all of it every time would take n * n reads.
    """

    run: Run
    _found: dict[str, list[Source]] = field(default_factory=dict)

    def upto(self, artifact: str, last: int) -> list[Source]:
        """The artifact of generations 1 to `last`, in order."""
        found = self._found.setdefault(artifact, [])
        while len(found) < last:
            number = len(found) + 1
            found.append(_source(self.run, number, giver(artifact, stages_of(number)), artifact))
        return [source for source in found[:last] if source.content]

    def forget(self, generation: int) -> None:
        """Look again at a generation that was made meanwhile, and at later ones."""
        for found in self._found.values():
            del found[max(0, generation - 1) :]


def plan_stage(
    session: Session, generation: int, stage: Stage, redraw: int | None = None, past: Past | None = None
) -> StagePlan:
    """Find a stage's inputs, its seed and its key.

    Args:
        redraw: a seed to draw with instead of the run's.
        past: of a walk over generations; None looks at every earlier generation now.

    Raises:
        ArtifactError: an input is missing or damaged.
    """
    run = session.run
    stage = as_configured(stage, run.config)
    sources = stage_sources(run, generation, stage, past)
    decides = deciding(
        session, stage, stage_seed(run, generation, stage, redraw), stage_inputs(run, stage, sources)
    )
    return StagePlan(
        generation=generation,
        stage=stage,
        sources={artifact: [source.folder for source in found] for artifact, found in sources.items()},
        decides=decides,
        key=key_of(decides),
    )


def stage_sources(
    run: Run, generation: int, stage: Stage, past: Past | None = None
) -> dict[str, list[Source]]:
    """Artifact name -> where it lies, in order.

    Args:
        stage: as configured.

    Raises:
        ArtifactError: one is missing or damaged.
    """
    past, own = past or Past(run), stages_of(generation)
    before = tuple(takewhile(lambda other: other.name != stage.name, own))
    found: dict[str, list[Source]] = {}
    for artifact, when in stage.needs.items():
        if when is When.NOW:
            found[artifact] = [_source(run, generation, giver(artifact, before), artifact)]
        elif when is When.BEFORE:
            stages = tuple(as_configured(other, run.config) for other in stages_of(generation - 1))
            last = giver(artifact, stages)
            found[artifact] = [_source(run, generation - 1, last, artifact)]
        else:
            found[artifact] = past.upto(artifact, generation if when is When.SO_FAR else generation - 1)
    return found


def stage_inputs(run: Run, stage: Stage, sources: Mapping[str, Sequence[Source]]) -> dict[str, str]:
    """Input -> content hash, over all generations that it comes from."""
    found = {} if stage is not FOUND else {f"start_from {m}": sha for m, sha in run.start_digests.items()}
    for artifact, parts in sources.items():
        found[artifact] = input_hash(part.content for part in parts)
    return found


def made_of(
    run: Run,
    generation: int,
    stage: str,
    inputs: Mapping[str, str],
    recorded: Mapping[str, str],
    past: Past | None = None,
) -> bool:
    """True if a stage was made of what lies there now, also where a fork's settings would have it read otherwise.

    Args:
        inputs: input -> content hash now, as one form of the settings has it.
        recorded: the same, as the stage's manifest has it; an input that it lacks is passed over.
        past: of a walk over generations.

    Raises:
        ArtifactError: a table of an earlier generation is damaged.
    """
    for name, content in inputs.items():
        read = recorded.get(name, content)
        if read == content:
            continue
        if STAGES[stage].needs.get(name) is not When.NOW:
            return False
        # Grades that pay for new cells read problems of every generation so far, others of their own.
        so_far = [source.content for source in (past or Past(run)).upto(name, generation)]
        if read not in (input_hash(so_far), input_hash(so_far[-1:])):
            return False
    return True


def input_hash(contents: Iterable[str]) -> str:
    """The content hash of an input that comes from tables with these."""
    return hashlib.sha256("".join(contents).encode()).hexdigest()


def _source(run: Run, generation: int, stage: Stage, artifact: str) -> Source:
    folder = stage_dir(run.directory, generation, stage.name)
    manifest = read_manifest(folder)
    if manifest is None or not intact(folder, manifest):
        raise ArtifactError(
            f"{artifact} of generation {generation} is needed and not there whole",
            expected=f"a committed {stage.name} of generation {generation}",
            got="damaged files" if manifest else "nothing",
            fix=f"populora resume {shown(run.directory)} makes what is missing",
        )
    return Source(folder, manifest.contents.get(file_name(artifact), ""))


def stage_seed(run: Run, generation: int, stage: Stage, redraw: int | None = None) -> int:
    """The stage's seed: its own, or drawn from the run's, or from the one that `rerun --seed` gave it."""
    if stage.own:
        return stage.own_seed
    redrawn = run.redrawn(generation, stage.name) if redraw is None else redraw
    return ids.draw_seed(run.config.run.seed if redrawn is None else redrawn, generation, stage.name)


def deciding(session: Session, stage: Stage, seed: int, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that decides the content of a stage, as configured, and nothing else."""
    spec, config = session.model_spec, session.run.config
    return {
        "stage": stage.name,
        "version": stage.version,
        "seed": seed,
        "config": decisive(config, stage.config)
        | (arithmetic(config) if stage.base else {})
        | dict(stage.own),
        "inputs": inputs,
        "base": [spec.digest, spec.base.numbers, spec.base.device] if stage.base else None,
        "dialect": _language(session, stage) if stage.dialect else None,
        "sandbox": session.sandbox.identity if stage.sandbox else None,
        "sampler": spec.sampler.engine if stage.sampler else None,
    }


def key_of(decides: Mapping[str, Any]) -> str:
    """sha256 over what decides a stage's content."""
    text = json.dumps(decides, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _language(session: Session, stage: Stage) -> str:
    """The dialect's digest; with problem types that bring templates, or stop texts, a digest over those too.

    Where no stop text ends a completion, every evaluation is as it was before they were looked for in the text; so
    `evaluate` counts them here, in place of the higher version that `propose` and `solve` have.
    """
    config = session.run.config
    kinds = {name: problem_type(name) for name in config.propose.types}
    brought = [
        (name, kind.version, sorted(kind.templates.items())) for name, kind in kinds.items() if kind.templates
    ]
    spoken = session.dialect.digest
    stop = session.dialect.stop if stage.name == "evaluate" and config.evaluate.every else ()
    decides = (spoken, brought, *stop)
    return hashlib.sha256(repr(decides).encode()).hexdigest() if brought or stop else spoken
