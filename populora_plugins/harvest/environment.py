"""Problems as an environment for other trainers: an installable package for the library `verifiers`.

    OUT/pyproject.toml, OUT/README.md
    OUT/NAME/__init__.py        load_environment(), and the taskset of verifiers
    OUT/NAME/settings.json      the dialect, the limits and the Python of the sandbox that found the problems valid,
                                and of a live one the run whose teachers write
    OUT/NAME/problems.parquet   the problems, where they are not written live

`populora_plugins.harvest` asks and grades: the package holds data and names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

import pyarrow.parquet as pq
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from populora_core.population.member import Role
from populora_core.report.text import markdown_text
from populora_core.runs.run import Run
from populora_core.support.durable import new_folder, require_free
from populora_core.support.errors import ConfigError
from populora_core.support.plain import read_plain
from populora_core.support.received import validated
from populora_plugins.harvest.curriculum import TESTED, Filters, curriculum_tables, limits_of
from populora_plugins.harvest.curriculum_card import judged_by

PROBLEMS, SETTINGS = "problems.parquet", "settings.json"
OURS = ("populora-core", "populora-plugins")
"""Names that no package may take: it would hide the code that grades it."""
PROJECT = Template("""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$distribution"
version = "0.1.0"
description = "Problems of a population, graded in a sandbox, as an environment for verifiers"
requires-python = ">=3.11"
dependencies = ["populora-core", "verifiers>=0.4"]
readme = "README.md"

[tool.hatch.build.targets.wheel]
packages = ["$package"]
""")
MODULE = Template('''\
"""Problems of a population, as an environment; README.md says whose."""

from pathlib import Path

from populora_plugins.harvest.taskset import ProblemHarness, ProblemTaskset, environment_of

HERE = Path(__file__).parent

__all__ = ["ProblemHarness", "Problems", "load_environment"]


class Problems(ProblemTaskset):
    FOLDER = HERE
    INFINITE = $live


def load_environment(**settings):
    return environment_of(__name__, **settings)
''')
README = Template("""\
# $distribution

$title

```
pip install -e .        # beside populora-core, whose sandbox judges every program
vf-eval $distribution --no-push --env.agent.runtime.type subprocess -n 16 -m MODEL \\
  --client.base-url URL --client.api-key-var NAME
```

```python
from $package import load_environment

environment = load_environment()                     # or dialect="instruct", for chat models
```

An answer is worth 1 if it is correct, -0.5 if it is wrong, crashes, or is refused by the sandbox, and -1 if it
has no answer by the grammar. `correct` counts the first alone. Where the sandbox fails, the rollout does: that is no
wrong answer.

$judged Another Python is refused.$split
""")


SPLIT = """

All problems are here. The column `split` of `problems.parquet` says which of them `populora problems` puts into its
split `test`; `load_environment(split="train")` leaves these out; use it if you test on such a data set."""


class LiveSettings(TypedDict):
    """The teachers of a live environment, and the seed of its draws."""

    run: str
    teacher: str | None
    seed: int


class LimitSettings(TypedDict):
    """Limits of a program: those by which the problems were verified."""

    cpu_seconds: float
    wall_seconds: float
    memory_bytes: int
    output_bytes: int


class EnvironmentSettings(TypedDict):
    """Settings of an environment's package.

    Attributes:
        python: version whose outputs the problems have, such as 3.13; None where it is not known, or does not matter,
            as with problems that are written live.
    """

    dialect: str
    live: LiveSettings | None
    limits: LimitSettings
    python: str | None


SETTLED = TypeAdapter(EnvironmentSettings)


@dataclass(frozen=True, slots=True)
class WrittenEnvironment:
    """A package: where it lies, what Python calls it, and how many problems it holds; None where it is live."""

    folder: Path
    package: str
    problems: int | None


def write_environment(
    runs: Sequence[Run],
    to: Path,
    filters: Filters,
    *,
    live: bool = False,
    teacher: str | None = None,
    seed: int = 0,
) -> WrittenEnvironment:
    """Write the problems of runs, or a teacher of one, as a package in a new folder: whole, or not at all.

    Args:
        filters: which problems are taken; of no effect on a live one.
        teacher: who writes in a live one; None for another each time.
        seed: of a live one's draws.

    Raises:
        RunDirectoryError: no problem passes the filters, or no such teacher lives.
        ConfigError: a live one of several runs, or runs of several dialects or Pythons.
        ArtifactError: `to` is not free, or could not be written.
    """
    require_free(to)
    speech = _one_dialect(runs, live)
    distribution = _distribution(to)
    package = distribution.replace("-", "_")
    origin = ", ".join(markdown_text(run.name) for run in runs)
    words = {
        "distribution": distribution,
        "package": package,
        "live": str(live),
        "title": f"Problems that the teachers of {origin} {'write as they are asked for' if live else 'wrote'}.",
    }
    written: LiveSettings | None = None
    if live:
        from populora_plugins.harvest.play_table import playing  # torch

        playing(runs[0], Role.TEACHER, teacher)
        written = {"run": str(runs[0].directory), "teacher": teacher, "seed": seed}
    folders = [run.directory for run in runs]
    problems = None if live else curriculum_tables(folders, filters, TESTED)[0]["problems"]
    limits = limits_of(folders)
    pythons = [] if problems is None else problems["python"].to_pylist()
    words["judged"] = judged_by(pythons, limits)
    words["split"] = "" if live else SPLIT
    settings: EnvironmentSettings = {
        "dialect": speech,
        "live": written,
        "limits": {
            "cpu_seconds": limits.cpu_seconds,
            "wall_seconds": limits.wall_seconds,
            "memory_bytes": limits.memory_bytes,
            "output_bytes": limits.output_bytes,
        },
        "python": _one_python(pythons),
    }
    with new_folder(to) as new:
        inner = new / package
        inner.mkdir()
        (new / "pyproject.toml").write_text(PROJECT.substitute(words), encoding="utf-8")
        (new / "README.md").write_text(README.substitute(words), encoding="utf-8")
        (inner / "__init__.py").write_text(MODULE.substitute(words), encoding="utf-8")
        (inner / SETTINGS).write_bytes(SETTLED.dump_json(settings))
        if problems is not None:
            pq.write_table(problems, inner / PROBLEMS, compression="zstd")
    return WrittenEnvironment(to, package, None if problems is None else problems.num_rows)


def read_settings(folder: Path) -> EnvironmentSettings:
    """The settings of a package; DamagedText where they are not ours."""
    return validated(SETTLED, read_plain(folder / SETTINGS), folder / SETTINGS)


def _distribution(to: Path) -> str:
    """The name that a package is installed by, after its folder: two of one run can be installed side by side."""
    name = "populora-" + (re.sub(r"[^a-z0-9]+", "-", to.resolve().name.lower()).strip("-") or "run")
    return f"{name}-run" if name in OURS else name


def _one_dialect(runs: Sequence[Run], live: bool) -> str:
    found = {run.config.base.dialect for run in runs}
    if len(found) > 1 or (live and len(runs) > 1):
        raise ConfigError(
            "these runs do not make one environment",
            expected="one run" if live else "runs of one dialect",
            got=", ".join(run.name for run in runs) if live else ", ".join(sorted(found)),
            fix="write one for each",
        )
    return found.pop()


def _one_python(versions: Iterable[str | None]) -> str | None:
    """The version without its last number, which outputs do not follow from; None where none was recorded."""
    found = {version.rpartition(".")[0] for version in versions if version}
    if len(found) > 1:
        raise ConfigError(
            "these runs do not make one environment",
            expected="outputs of one version of Python",
            got=", ".join(sorted(found)),
            fix="write one for each",
        )
    return next(iter(found), None)
