"""An open run: its lock, and the services that live as long as it is open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path

from populora_core.compute.backends import BACKENDS, HERE, ComputeBackend
from populora_core.compute.shards import Compute, Shards
from populora_core.problems.dialects import Dialect, dialect
from populora_core.runs.any_base import require_base
from populora_core.runs.gpus import engine_sleeps
from populora_core.runs.heartbeat import Heartbeat
from populora_core.runs.lock import lock
from populora_core.runs.machine import require_device
from populora_core.runs.observer import Observer
from populora_core.runs.precision import tell_of_precision
from populora_core.runs.preflight import check_names
from populora_core.runs.reap import clear
from populora_core.runs.run import Run, sources
from populora_core.runs.sharing import SharedStore
from populora_core.sampler.engines import VLLM, choose_engine
from populora_core.sampler.spec import ModelSpec
from populora_core.sandbox.backends import require_backend
from populora_core.sandbox.jobs import Limits, Sandbox
from populora_core.store.record import RECORD
from populora_core.support.children import refuse_while_imported
from populora_core.support.errors import RunDirectoryError
from populora_core.support.trust import require_trusted

_open: dict[Path, Session] = {}


class Session:
    """A run held open for writing. Workers and the sandbox start when a stage first needs them.

    Use it as a context manager; leaving it ends every process that it started.
    """

    def __init__(self, run: Run, observer: Observer | None = None) -> None:
        self.run = run
        self.observer = observer or Observer()
        self.heartbeat = Heartbeat(run.directory, self._workers)
        self.shared: SharedStore | None = None
        self.stage_ended: float | None = None
        self._entered, self._exit = False, ExitStack()

    def __enter__(self) -> Session:
        refuse_while_imported()
        directory = self.run.directory
        if self._entered:
            raise RunDirectoryError(
                "a session is entered once",
                got=f"a session on {directory} that was entered before",
                fix="with Session(run) as session: ... opens another, when this one is left",
            )
        check_names(self.run.config, str(directory / RECORD))
        for source in sources(self.run.config):
            require_trusted(source)
        # Here, before a stage has computed for hours what the next one cannot judge.
        if self.run.config.compute.backend in HERE:
            require_backend(self.run.config.sandbox.backend)
        tell_of_precision(self.run.config.base)
        with ExitStack() as stack:
            stack.enter_context(lock(directory))
            clear(directory)
            self.shared = self.run.shared()
            _open[directory] = self
            stack.callback(_open.pop, directory)
            stack.enter_context(self.heartbeat)
            self._entered, self._exit = True, stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._exit.close()

    def require_open(self) -> None:
        """Raise RunDirectoryError outside the `with` block: no lock keeps another writer away there."""
        if _open.get(self.run.directory) is not self:
            raise RunDirectoryError(
                "the session is not open",
                expected="work inside its block, which holds the run's lock",
                got=f"a session on {self.run.directory} that was not entered, or was left",
                fix="with Session(run) as session: ...; nothing was written",
            )

    def since_stage(self, started: float) -> dict[str, float]:
        """The time before a stage, as its manifest has it; nothing before the session's first."""
        return {} if self.stage_ended is None else {"seconds_before": max(0.0, started - self.stage_ended)}

    def _workers(self) -> Sequence[int]:
        """Process ids of the workers that have been started."""
        started = (self.__dict__.get(name) for name in ("backend", "compute"))
        return [pid for part in started if part is not None for pid in part.pids]

    @cached_property
    def dialect(self) -> Dialect:
        return dialect(self.run.config.base.dialect, self.run.config.propose.inputs)

    @cached_property
    def backend(self) -> ComputeBackend:
        """The machines that shards and sandbox run on; what is started for them ends with the session."""
        plan = self.run.config.compute
        backend: ComputeBackend = BACKENDS.make(plan.backend, plan)
        self._exit.callback(backend.close)
        return backend

    @cached_property
    def compute(self) -> Compute:
        require_device(self.run.config)
        if not self.backend.remote:
            require_base(self.run.config.base)
        compute = self.backend.compute(self.model_spec)
        self._exit.callback(compute.close)
        return compute

    def shards(self, key: str, folder: Path, files: Path | None = None) -> Shards:
        """The shards of a piece of work with the given key; see `Shards`."""
        url = self.run.config.store.url if self.backend.remote else ""
        return Shards(self.compute, key, folder, url, files)

    @cached_property
    def sandbox(self) -> Sandbox:
        sandbox = self.open_sandbox(self.run.limits, hash_seed=self.run.config.run.seed)
        self._exit.callback(sandbox.close)
        return sandbox

    def open_sandbox(self, limits: Limits, hash_seed: int) -> Sandbox:
        """A sandbox of the configured kind, on every machine where shards run; close it."""
        return self.backend.sandbox(self.run.config.sandbox, limits, hash_seed)

    @cached_property
    def model_spec(self) -> ModelSpec:
        config = self.run.config
        engine = choose_engine(config.sampler.engine, config.base, config.base.dtype)
        sampler = config.sampler.model_copy(update={"engine": engine})
        sleeps = engine == VLLM and engine_sleeps(config)
        digest = self.run.record["base_digest"]
        return ModelSpec(config.base, config.adapters, digest, sampler, config.members, sleeps)


@contextmanager
def attach(directory: str | Path) -> Iterator[Session]:
    """The session that this process holds on the directory, or a new one for as long as the block lasts."""
    held = _open.get(Path(directory).resolve())
    if held is not None:
        yield held
        return
    with Session(Run.open(directory)) as session:
        yield session
