"""A run's configuration: strict TOML, one section a stage. It is checked against itself alone.

Whether it can run on this machine is another question: `runs/preflight.py` answers it.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError, model_validator

from populora_core.config.fields import Section
from populora_core.config.files import apply_override, read_config
from populora_core.config.machinery import (
    ComputeSection,
    SamplerSection,
    SandboxSection,
    StoreSection,
    TrackersSection,
)
from populora_core.config.measuring import EvaluateSection
from populora_core.config.pbt import PbtSection
from populora_core.config.sections import (
    AdapterSection,
    AnchorSection,
    BaseSection,
    EvolveSection,
    GradeSection,
    MatchSection,
    PopulationSection,
    ProposeSection,
    RatingSection,
    RunSection,
    SolveSection,
    UpdateSection,
    VerifySection,
)
from populora_core.support.errors import ConfigError


class Config(Section):
    """The whole configuration of a run."""

    run: RunSection = RunSection()
    base: BaseSection = BaseSection()
    population: PopulationSection = PopulationSection()
    adapters: AdapterSection = AdapterSection()
    rating: RatingSection = RatingSection()
    match: MatchSection = MatchSection()
    propose: ProposeSection = ProposeSection()
    verify: VerifySection = VerifySection()
    anchors: AnchorSection = AnchorSection()
    sandbox: SandboxSection = SandboxSection()
    solve: SolveSection = SolveSection()
    sampler: SamplerSection = SamplerSection()
    grade: GradeSection = GradeSection()
    update: UpdateSection = UpdateSection()
    evolve: EvolveSection = EvolveSection()
    pbt: PbtSection = PbtSection()
    evaluate: EvaluateSection = EvaluateSection()
    compute: ComputeSection = ComputeSection()
    store: StoreSection = StoreSection()
    trackers: TrackersSection = TrackersSection()

    @model_validator(mode="after")
    def _members_for_adapters(self) -> Config:
        for role in ("teachers", "students", "solo"):
            members, given = getattr(self.population, role), len(getattr(self.adapters.start_from, role))
            if given > members:
                raise ValueError(
                    f"adapters.start_from.{role} names {given} adapters, but population.{role} is {members}"
                )
        return self

    @model_validator(mode="after")
    def _islands_share_nothing(self) -> Config:
        shared = {
            "match.hall_of_fame": self.match.hall_of_fame,
            "grade.new_cell_bonus": self.grade.new_cell_bonus,
        }
        for setting in [name for name, value in shared.items() if value and self.population.islands > 1]:
            raise ValueError(
                f"{setting} looks at the whole population, which population.islands = {self.population.islands} keeps "
                "apart; set one of them off"
            )
        return self

    @model_validator(mode="after")
    def _a_reward_for_each_slot(self) -> Config:
        given = self.grade.teacher_reward
        if not isinstance(given, str) and len(given) != self.population.proposers:
            raise ValueError(
                f"grade.teacher_reward names {len(given)} rewards, but the population has "
                f"{self.population.proposers} teachers; name one for each, or one for all as a text"
            )
        return self

    @model_validator(mode="after")
    def _peers_there(self) -> Config:
        if self.anchors.share and self.anchors.source == "peers":
            if self.population.students < 2:
                raise ValueError(
                    'anchors.source "peers" asks a student what another solved, so population.students must be 2 or '
                    f"more; it is {self.population.students}. Take replay"
                )
            if self.match.hall_of_fame:
                raise ValueError(
                    'anchors.source "peers" asks students that learn, and match.hall_of_fame has others play in their '
                    "stead; set one of them off"
                )
        return self

    @model_validator(mode="after")
    def _somebody_to_average(self) -> Config:
        if self.evolve.average_every and max(self.population.teachers, self.population.students) < 2:
            raise ValueError(
                "evolve.average_every averages the members of a role, but no role has two; set it to 0, or "
                "population.teachers or population.students to 2 or more"
            )
        return self

    @model_validator(mode="after")
    def _something_to_inherit(self) -> Config:
        if self.pbt.teacher_reward and not isinstance(self.grade.teacher_reward, str):
            raise ValueError(
                "pbt.teacher_reward pays each teacher by what it inherits, and grade.teacher_reward by its slot; set "
                "one of them only"
            )
        if self.pbt.learning_rate and self.update.teacher_learning_rate:
            raise ValueError(
                "pbt.learning_rate gives each teacher its own, and update.teacher_learning_rate one to all; set one of "
                "them only"
            )
        for name in ("temperature", "teacher_reward"):
            if getattr(self.pbt, name) and self.match.hall_of_fame:
                raise ValueError(
                    f"pbt.{name} is known of the living alone, and match.hall_of_fame has past members play; set one "
                    "of them off"
                )
        replayed = self.anchors.share and self.anchors.source == "replay"
        if self.pbt.replay and not (replayed and self.population.students > 1):
            raise ValueError(
                "pbt.replay weighs students when repeated problems are dealt out: it needs anchors.source = "
                '"replay", an anchors.share above 0, and two students or more; or set pbt.replay=[]'
            )
        return self

    @model_validator(mode="after")
    def _one_engine(self) -> Config:
        together = self.compute.backend == "inline" or self.base.device == "cpu"
        if self.sampler.engine == "vllm" and self.compute.shards != 1 and together and self.compute.here:
            raise ValueError(
                "sampler.engine vllm holds every member in one engine, so compute.shards must be 1; "
                f"it is {self.compute.shards}. On GPUs with compute.backend local each shard has one"
            )
        return self

    @property
    def members(self) -> int:
        """Number of members in the whole population."""
        return self.population.proposers + self.population.students

    @property
    def proposals(self) -> int:
        """Proposals of one generation, without refills."""
        return self.population.proposers * len(self.propose.types) * self.propose.per_type

    @property
    def most_proposals(self) -> int:
        """Proposals of one generation at most: where none is a new problem, all are refilled every time."""
        return self.proposals * (1 + self.propose.refills)

    @property
    def attempts(self) -> int:
        """Attempts of one generation at most: where every proposal and anchor is valid, and none solved at once."""
        population = self.population
        # Each island rounds by itself, and so does each student that peers' problems are dealt to.
        groups = max(1, population.students) if self.anchors.source == "peers" else population.islands
        beside = self.anchors.beside(math.ceil(population.proposers * self.propose.per_type / groups))
        return (self.proposals + groups * len(self.propose.types) * beside) * self.solve.most_attempts

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


def load_config(path: str | Path, overrides: Iterable[str] = ()) -> Config:
    """Read a TOML file and what it extends, apply `section.key=value` overrides, refuse what cannot be meant.

    Raises:
        ConfigError: missing file, bad TOML, unknown key, wrong value, sections that contradict each other.
    """
    data = read_config(Path(path))
    for override in overrides:
        apply_override(data, override)
    return build_config(data, str(path))


def build_config(data: Mapping[str, Any], source: str) -> Config:
    """Validate plain data into a `Config` (see `load_config`)."""
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError(
            f"{source} cannot be used:\n" + "\n".join(f"  - {_explain(item)}" for item in error.errors()),
            fix="fix these keys; populora config shows every key and its default",
        ) from error


def apply_overrides(config: Config, overrides: Iterable[str]) -> Config:
    """The configuration with `section.key=value` settings in place of its own (see `load_config`)."""
    data = config.as_json()
    for override in overrides:
        apply_override(data, override)
    return build_config(data, "the settings given with --set")


def closest(name: str, known: Iterable[str]) -> str:
    """A hint for a person who wrote `name`."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1) or [each for each in names if each.startswith(name)]
    return f"Did you mean {close[0]}?" if close else "`populora config` lists every key"


def _explain(item: Mapping[str, Any]) -> str:
    location = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return f"{location}: unknown key (got {_short(item['input'])}). {closest(location, _all_keys())}"
    message = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] == "tuple_type":  # TOML has none, and a shell takes the quotes out of ["code_o"]
        message = f"""should be a list; in a shell quote the whole: --set '{location}=["..."]'"""
    if not location:  # what several sections decide together; the message names them
        return message
    return f"{location}: {message} (got {_short(item['input'])})"


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _all_keys(section: type[Section] = Config, prefix: str = "") -> list[str]:
    keys: list[str] = []
    for name, field in section.model_fields.items():
        keys.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            keys += _all_keys(field.annotation, f"{prefix}{name}.")
    return keys
