"""Checks that a configuration can run here: its names are known, its folders exist, its packages are installed.

The configuration was checked against itself when it was read (`config/load.py`); here it is checked against the
world.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from populora_core.benchmarks.anchors import DATASET, dataset, require_played
from populora_core.benchmarks.corpus import read_corpus
from populora_core.benchmarks.fetched import unfetched
from populora_core.benchmarks.heldout import kept_out, require_kept_out
from populora_core.benchmarks.suite import Entry, Part, Suite, load_suite, named_suite
from populora_core.config.fields import Setting
from populora_core.config.load import Config, closest, load_config
from populora_core.runs.any_base import require_base
from populora_core.runs.gpus import tell_of_card
from populora_core.runs.run import kept_sources, sources, suites
from populora_core.runs.warm_start import require_files, start_folders
from populora_core.support.errors import ConfigError, PopuloraError
from populora_core.support.registry import Registry, is_place, settings_of
from populora_core.support.trust import remember, require_trusted

LEAST_DRAWS = 1e-3
"""Share of draws between equals below which TrueSkill's arithmetic loses its digits."""


def load_runnable(path: str | Path, overrides: Iterable[str] = (), plan: bool = False) -> Config:
    """Read a configuration file, with `section.key=value` overrides, and refuse what cannot run here.

    Args:
        plan: nothing is started yet, so that the rows of its suite may be missing (see `rows_to_fetch`).

    Raises:
        ConfigError: it cannot be used (see `load_config`), or not on this machine (see `preflight`).
    """
    config = load_config(path, overrides)
    preflight(config, str(path), plan)
    return config


def preflight(config: Config, source: str, plan: bool = False) -> None:
    """Look for everything that a new run needs, before any work; for a `plan` see `load_runnable`.

    Raises:
        ConfigError: an unknown name, a missing folder or package, or a store that cannot be opened. It begins
            with `source`, where the configuration is from.
    """
    remember([*places(config), *sources(config)])
    _check_beginning(config, source)
    check_names(config, source)
    check_folders(config, source, plan)
    check_packages(config, source)
    tell_of_template(config)
    tell_of_groups(config)
    tell_of_card(config)


def check_changed(config: Config, before: Config, source: str) -> None:
    """Check a run's configuration in which the user changed settings: what they name is the user's.

    Base and adapters to start from are the run's, and stay.

    Raises:
        ConfigError: see `preflight`; or the run names code or a source that the user has not named (see `inherited`).
    """
    kept = inherited(config, before)
    remember({*places(config), *sources(config)} - {*kept})
    for name in kept:
        require_trusted(name)
    _check_beginning(config, source, before)
    check_names(config, source)
    if config.evaluate != before.evaluate:
        own = suites(config) != suites(before)
        _check_suite(config, source, read=named_suite if own else load_suite)
    if (config.anchors, config.propose) != (before.anchors, before.propose):
        _check_anchors(config, source)
    if config.update != before.update:
        _check_corpus(config, source)
    check_packages(config, source)
    tell_of_groups(config)


def check_folders(config: Config, source: str, plan: bool = False) -> None:
    """Raise ConfigError unless base model and suite are there, and every adapter to start from is whole."""
    with _said_of(f"{source}: base.path names no folder"):
        require_base(config.base)
    _check_suite(config, source, plan)
    _check_anchors(config, source)
    _check_corpus(config, source)
    for member, folder in start_folders(config).items():
        with _said_of(f"{source}: adapters.start_from gives {member} no adapter"):
            require_files(folder)
            from populora_core.model.adopt import plain_config

            plain_config(folder)


def _check_anchors(config: Config, source: str) -> None:
    """The data set of anchors can be read, and has problems of types that are played."""
    from populora_core.problems.dialects import dialect

    if config.anchors.share and config.anchors.source == DATASET:
        with _said_of(f"{source}: anchors.source cannot be used"):
            given = settings_of(DATASET, dataset, config.anchors.parameters)
            given.pop("again", None)
            spoken = dialect(config.base.dialect, config.propose.inputs)
            require_played(config.propose.types, spoken.rules, **given)


def _check_corpus(config: Config, source: str) -> None:
    """The corpus can be read."""
    if config.update.corpus_share:
        with _said_of(f"{source}: update.corpus cannot be used"):
            read_corpus(config.update.corpus)


class NoChatTemplate(UserWarning):
    """The warning that a base never tuned to take turns is prompted as if it had been."""


def tell_of_template(config: Config) -> None:
    """Warn where the dialect wants a chat template and the base brings none."""
    folder = config.base.folder()
    brought = (folder / "chat_template.jinja", folder / "chat_template.json")
    settings = folder / "tokenizer_config.json"
    if config.base.dialect != "instruct" or any(file.is_file() for file in brought):
        return
    if not settings.is_file() or '"chat_template"' not in settings.read_text():
        warnings.warn(
            f"the base in {folder} has no chat template: it is asked in plain User/Assistant text, which it was not "
            "tuned to follow, so expect few valid completions at first; one ends at </answer>, at an end token or at "
            "max_tokens. An Instruct variant of the base follows the format at once",
            NoChatTemplate,
            stacklevel=2,
        )


class GroupOfOne(UserWarning):
    """The warning that a role's rewards have nothing to be compared with, so that it does not learn."""


def tell_of_groups(config: Config) -> None:
    """Warn where an estimator of ours is given groups of one completion each, from which it learns nothing."""
    from populora_core.learner.estimators import ESTIMATORS

    estimator, learning = config.update.estimator, config.update.roles
    if estimator not in ESTIMATORS:
        return
    alone = {
        "propose.per_type": learning != "students" and config.propose.per_type == 1,
        "solve.attempts": learning != "teachers"
        and estimator != "trr_pp"
        and config.solve.most_attempts == 1,
    }
    for setting in [setting for setting, one in alone.items() if one]:
        warnings.warn(
            f"{setting} is 1: {estimator} compares a completion with others of its group, so nothing is learnt "
            "from it; set 2 or more",
            GroupOfOne,
            stacklevel=2,
        )


def check_packages(config: Config, source: str) -> None:
    """Raise ConfigError unless the extras that the configuration uses are installed, and the store can be opened."""
    from populora_core.compute.backends import BACKENDS
    from populora_core.runs.trackers import TRACKERS

    for name in config.trackers.use:
        _check_name(source, TRACKERS, name, {})
    _check_name(source, BACKENDS, config.compute.backend, {})
    if config.store.url:
        from populora_core.sharing.places import open_objects

        with _said_of(f"{source}: store.url cannot be used"):
            open_objects(config.store.url)


def _check_gpus(config: Config, source: str) -> None:
    """Raise ConfigError where shards on Ray compute on GPUs that they do not ask for."""
    if config.compute.backend != "ray" or config.base.device != "cuda":
        return
    given, engine = config.compute.shard_gpus, config.sampler.tensor_parallel
    if not given or given < engine > 1:
        raise ConfigError(
            f"{source}: base.device is cuda, but a shard on Ray is given {given:g} GPUs",
            expected=f"compute.shard_gpus of {engine} or more",
            fix=f"set it to {engine}",
        )


def _check_beginning(config: Config, source: str, before: Config | None = None) -> None:
    """Refuse what no run may begin with; older runs that began with it are read, and go on.

    Args:
        before: of a run that goes on with other settings; what it began with stays.
    """

    def chosen(section: str) -> bool:
        return before is None or getattr(config, section) != getattr(before, section)

    students, islands = config.population.students, config.population.islands
    peers = config.anchors.share and config.anchors.source == "peers"
    if peers and students < 2 * islands and chosen("anchors"):
        raise ConfigError(
            f'{source}: anchors.source "peers" asks a student what another on its island solved',
            expected=f"population.students = {2 * islands} or more on {islands} islands",
            got=f"population.students = {students}",
            fix='add students, or set anchors.source = "replay"',
        )
    on_ray = config.compute.backend == "ray" and config.base.device == "cuda"
    if on_ray and 0 < config.compute.shard_gpus < 1 and chosen("compute"):
        raise ConfigError(
            f"{source}: a shard takes all memory that it finds, so that two on one GPU run out of it",
            expected="compute.shard_gpus of 1 or more",
            got=str(config.compute.shard_gpus),
            fix="set compute.shard_gpus = 1",
        )
    if config.rating.draw_probability < LEAST_DRAWS and chosen("rating"):
        raise ConfigError(
            f"{source}: rating.draw_probability is so small that TrueSkill's arithmetic loses its digits: a draw "
            "would make both players less sure",
            expected=f"{LEAST_DRAWS} or more",
            got=str(config.rating.draw_probability),
            fix=f"set rating.draw_probability = {LEAST_DRAWS}",
        )


def rows_to_fetch(config: Config) -> list[Entry]:
    """The benchmarks of a run's suite that it needs, and whose rows are not on this machine."""
    suite = load_suite(config.evaluate.file()) if _scored(config) else kept_out(config)
    return unfetched(suite) if suite else []


def _scored(config: Config) -> bool:
    """True if the run takes its suite, and does not only keep its problems out of play."""
    return bool(config.evaluate.every or config.evaluate.report_every)


def _check_suite(
    config: Config, source: str, plan: bool = False, read: Callable[[Path], Suite] = named_suite
) -> None:
    """The suite of the loop can be read, its problems are there, and it holds back those that the loop asks.

    Args:
        read: `load_suite` for a suite that may be somebody else's.
    """
    from populora_core.benchmarks.items import require_problems, suite_items

    with _said_of(f"{source}: evaluate.suite cannot be used"):
        if plan and rows_to_fetch(config):
            return
        if not _scored(config):
            require_kept_out(config)
            return
        suite = read(config.evaluate.file())
        empty = [entry.benchmark for entry, items in suite_items(suite, Part.VALIDATION) if not items]
        if config.evaluate.report_every:
            require_problems(suite, Part.TEST, suite_items(suite, Part.TEST))
    if empty and config.evaluate.every:  # scores alone are of the other half
        raise ConfigError(
            f"{source}: the suite {suite.suite} holds no problem of {empty[0]} back for validation",
            expected="validation above 0 in the suite file: the loop never sees the half that is reported",
            got=f"validation = {suite.validation}",
            fix="set validation in a suite file of your own, for instance 0.5",
        )


def check_names(config: Config, source: str) -> None:
    """Names must be known to their registries, or be the place of a function that can be imported.

    Raises:
        ConfigError: one is not, or it has settings that nothing takes; or sections that cannot go together.
    """
    from populora_core.benchmarks.anchors import ANCHOR_SOURCES
    from populora_core.learner.estimators import ESTIMATORS
    from populora_core.population.fitness import FITNESS, NEEDS_EVALUATION
    from populora_core.population.matchmaking import SCHEMES
    from populora_core.population.replacement import REPLACEMENTS
    from populora_core.population.selection import SELECTIONS
    from populora_core.population.variation import CROSSOVERS, MUTATIONS
    from populora_core.problems.dialects import DIALECTS, dialect
    from populora_core.problems.rewards import TEACHER_REWARDS
    from populora_core.problems.types import PROBLEM_TYPES
    from populora_core.sampler.engines import AUTO, ENGINES

    evolve = config.evolve
    named: list[tuple[Registry, tuple[str, ...]]] = [
        (DIALECTS, (config.base.dialect,)),
        (SCHEMES, (config.match.scheme,)),
        (PROBLEM_TYPES, config.propose.types),
        (TEACHER_REWARDS, (*config.grade.teacher_rewards, *config.pbt.teacher_reward)),
        (ESTIMATORS, (config.update.estimator,)),
        (MUTATIONS, evolve.mutations),
        (CROSSOVERS, evolve.crossovers),
        (FITNESS, (evolve.fitness,)),
        (SELECTIONS, (evolve.selection,)),
        (REPLACEMENTS, (evolve.replacement,)),
    ]
    by_name: dict[str, dict[str, Setting]] = {**evolve.parameters}
    if config.match.parameters:
        by_name[config.match.scheme] = config.match.parameters
    if config.update.estimator not in ESTIMATORS:
        by_name[config.update.estimator] = {
            "std_floor": config.update.std_floor,
            "clip": config.update.advantage_clip,
        }
    if config.anchors.share:
        named.append((ANCHOR_SOURCES, (config.anchors.source,)))
        by_name[config.anchors.source] = config.anchors.parameters
    if config.sampler.engine != AUTO:
        named.append((ENGINES, (config.sampler.engine,)))
    for registry, names in named:
        for name in names:
            _check_name(source, registry, name, by_name.pop(name, {}))
    for name in by_name:
        raise ConfigError(
            f"{source}: evolve.parameters has settings of {name!r}, which evolve does not use",
            expected="a name that stands in evolve.mutations, crossovers, fitness, selection or replacement",
            got=repr(name),
            fix="take the settings out or name the function",
        )
    every = config.evaluate.every
    if evolve.fitness in NEEDS_EVALUATION and evolve.every and (not every or evolve.every % every):
        raise ConfigError(
            f"{source}: evolve.fitness is {evolve.fitness!r}, but not every evolution follows an evaluation",
            expected=f"evaluate.every = {evolve.every}, or a divisor of evolve.every",
            got=f"evaluate.every = {every}",
            fix='set it in [evaluate], or select by evolve.fitness = "internal"',
        )
    with _said_of(f"{source}: propose.inputs"):
        dialect(config.base.dialect, config.propose.inputs)
    _check_gpus(config, source)


def places(config: Config) -> list[str]:
    """Every name of the configuration that is the place of code, "package.module:name"."""
    evolve = config.evolve
    names = (
        *(config.base.dialect, config.match.scheme, *config.grade.teacher_rewards, config.update.estimator),
        *config.pbt.teacher_reward,
        *config.propose.types,
        *(*evolve.mutations, *evolve.crossovers, evolve.fitness, evolve.selection, evolve.replacement),
        *(config.anchors.source, config.sampler.engine, config.compute.backend, *config.trackers.use),
    )
    return [name for name in names if is_place(name)]


def inherited(config: Config, before: Config) -> list[str]:
    """Places of code and sources that a changed configuration has from its run, whose sender may have named them."""
    kept = {*places(before)}
    return [*(place for place in places(config) if place in kept), *kept_sources(config, before)]


def _check_name(source: str, registry: Registry, name: str, parameters: Mapping[str, Setting]) -> None:
    """Check that another package's contribution can be imported and is whole, and that a function has its settings."""
    if name in registry and not parameters:
        return  # ours, which need not be imported to be known
    if name not in registry.names() and not is_place(name):
        raise ConfigError(
            f"{source}: {registry.setting} names {name!r}, which is not registered",
            expected=f"one of {', '.join(registry.names())}",
            got=repr(name),
            fix=closest(name, registry.names()),
        )
    with _said_of(f"{source}: {registry.setting}"):
        found = registry.find(name)
        if callable(found):
            settings_of(name, found, parameters)


@contextmanager
def _said_of(where: str) -> Iterator[None]:
    """Turn what another part says into a ConfigError that begins with where it stands."""
    try:
        yield
    except PopuloraError as error:
        raise ConfigError(
            f"{where}: {error.problem}", expected=error.expected, got=error.got, fix=error.fix
        ) from error
