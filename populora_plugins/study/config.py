"""A study's configuration: its arms, each an ordinary configuration with seeds of its own, and what is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from populora_core.config.fields import Count, DrawSeed, Natural, Positive, Section
from populora_core.config.files import merged, read_config
from populora_core.config.load import Config, build_config
from populora_core.runs.preflight import preflight
from populora_core.support.errors import ConfigError
from populora_core.support.received import wrong_keys

COMPARED = {
    "paper": ("solo",),
    "frontier": ("solo", "frozen", "pair"),
    "population": ("islands", "averaged", "teachers", "pair"),
    "real": ("format", "pool"),
}
"""Claims -> keys of the arms that the population is held against."""
COPIES_AFTER = 2  # generations in which copies learn before they are scored
ArmSettings = dict[str, dict[str, Any]]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+-]*$", description="also the name of a folder")]


class Arm(Section):
    """Runs that differ by their seeds alone."""

    name: Name
    config: str = Field(description="a configuration file, relative to the study's")
    seeds: Annotated[
        tuple[DrawSeed, ...], Field(min_length=1, max_length=12)
    ]  # of 13 each a test takes gigabytes
    generations: Count = 60
    core_seconds: Positive | None = Field(
        None, description="of a generation with its share of evaluations, for --dry-run"
    )
    settings: ArmSettings = Field({}, description="sections of the configuration, in place of the file's own")

    @model_validator(mode="after")
    def _seeds_differ(self) -> Arm:
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"the arm {self.name} names a seed twice")
        return self


class StudyConfig(Section):
    """The file of a study: its arms, its claims, and where its results go.

    Folders are relative to the working directory, configurations to the study's file.
    """

    name: Name
    runs: Path = Field(description="folder of the run directories, one a seed of an arm")
    results: Path = Field(description="folder of the summaries, the table of verdicts and the report")
    population: str = Field(description="the arm whose runs are held against ...")
    solo: str | None = Field(None, description="... those of this one, where claims are paper or frontier")
    claims: Literal["paper", "frontier", "population", "real"] = Field(
        "paper",
        description="what is judged: the paper's claims, or those of the second study, the third, or the one on "
        "a pretrained base",
    )
    frozen: str | None = Field(None, description="claims frontier: the arm whose teachers never learn")
    pair: str | None = Field(None, description="claims frontier, population: one teacher and one student")
    islands: str | None = Field(None, description="claims population: as many pairs that never meet")
    averaged: str | None = Field(None, description="claims population: members become their average")
    teachers: str | None = Field(None, description="claims population: many teachers and one student")
    format: str | None = Field(None, description="claims real: a teacher that is paid for any valid problem")
    pool: str | None = Field(None, description="claims real: no teacher, but the base's own problems")
    suite: str = Field("bundled:tiny", description="a suite file, or bundled:NAME of configs/suites/")
    evaluate_every: Count = Field(
        15, description="generations between evaluations on the suite's reported half"
    )
    members: Literal["all", "solvers"] = Field("all", description="who is evaluated")
    sampled: Natural = Field(
        0, description="problems of the suite answered eight times at the first and last evaluation"
    )
    average: bool = Field(False, description="the average of all who solve is evaluated beside them")
    copies_at: Natural = Field(
        0,
        description="generation of the population's runs whose students are copied in forks, with and without "
        "their optimisers, and score two generations later; 0: none, else above 2",
    )
    processes: Count = Field(
        2, description="runs that are made at the same time, each by a process of its own"
    )
    keep_runs: bool = Field(True, description="false: a run directory is removed once its summary is written")
    settings: ArmSettings = Field({}, description="sections of every arm's configuration")
    arms: Annotated[tuple[Arm, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _arms_named(self) -> StudyConfig:
        names = [arm.name for arm in self.arms]
        if len(set(names)) != len(names):
            raise ValueError("every arm needs a name of its own")
        if 0 < self.copies_at <= COPIES_AFTER:
            raise ValueError("copies_at must be above 2: copies are scored before evolution comes again")
        for most in (arm.generations for arm in self.arms if arm.name == self.population):
            if self.copies_at > most:
                raise ValueError(
                    f"copies_at is {self.copies_at}, but the runs of {self.population} end at {most}"
                )
        for arm in self.compared:
            if arm not in names:
                raise ValueError(f"there is no arm {arm!r} to compare; there are {', '.join(names)}")
        if len(set(self.compared)) < len(self.compared):
            raise ValueError("the claims must compare different arms")
        return self

    @property
    def compared(self) -> tuple[str, ...]:
        """The arms that decide claims; all others describe."""
        return (self.population, *(getattr(self, arm) or "" for arm in COMPARED[self.claims]))

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)


def load_study(path: str | Path) -> tuple[StudyConfig, dict[str, Config]]:
    """Read a study's file, and the resolved configuration of every arm (its seed is the arm's first).

    Raises:
        ConfigError: missing file, bad TOML, unknown key, wrong value, or an arm that cannot run.
    """
    path = Path(path)
    try:
        study = StudyConfig.model_validate(read_config(path))
    except ValidationError as error:
        lines = (f"  - {each}" for each in wrong_keys(error))
        raise ConfigError(
            f"{path} is no usable study:\n" + "\n".join(lines),
            fix="fix these keys; configs/study-tiny.toml is an example",
        ) from error
    return study, {arm.name: _resolved(path, study, arm) for arm in study.arms}


def _resolved(path: Path, study: StudyConfig, arm: Arm) -> Config:
    data = read_config(path.parent / arm.config)
    own = {"run": {"generations": arm.generations, "seed": arm.seeds[0]}}
    for settings in (study.settings, arm.settings, own):
        data = merged(data, settings)
    source = f"{path}, arm {arm.name}"
    config = build_config(data, source)
    preflight(config, source)
    if config.base.dtype == "auto":
        raise ConfigError(
            f"{source} leaves the precision of its base to the machine, so its runs may differ in it",
            expected='base.dtype = "float32" or "bfloat16"',
            got='"auto"',
            fix="set it in [settings.base]",
        )
    return config
