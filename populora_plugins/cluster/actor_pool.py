"""A pool of Ray actors that share calls: an idle actor takes the next call, and a lost call is repeated by another.

Ray places actors, tells which are lost, and ends a process however it hangs. Attempts and deadlines are counted
here; docs/decisions.md says why ("Ray places actors and ends them").
"""

from __future__ import annotations

import math
import os
import re
import socket
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self

import ray
from ray.exceptions import RayError, RayTaskError

from populora_core.support.errors import PopuloraError, WorkerLost, defect, first_line

MAX_ATTEMPTS = 4
MAX_FAILED_STARTS = 8
PAUSE_SECONDS = 0.5  # times the failures in a row: a dead machine is listed for some seconds
START_SECONDS = 300.0
POLL_SECONDS = 0.25
END_SECONDS = 10.0
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # which Ray puts into tracebacks


@dataclass(frozen=True, slots=True)
class Site:
    """The process that an actor runs in.

    Attributes:
        environment: what of it decides results, such as versions.
    """

    host: str
    pid: int
    environment: Mapping[str, str]

    @classmethod
    def here(cls, environment: Mapping[str, str]) -> Self:
        return cls(socket.gethostname(), os.getpid(), environment)


@dataclass(slots=True, eq=False)
class Call:
    """A call of an actor's `perform`.

    Attributes:
        arguments: of the actor's `perform`.
        attempts: how often it was started.
        items: how many of its items were reported.
        result: what `perform` returned, once it is done; its `items` says how many it stands for.
    """

    arguments: tuple[Any, ...]
    attempts: int = 0
    items: int = 0
    result: Any = None


@dataclass(slots=True, eq=False)
class Actor:
    """An actor of a pool: idle, asked whether it is ready, or at a call.

    Attributes:
        site: what its `ready` answered last.
        answer: reference to the answer that it owes; None if it is idle.
        deadline: of its call, on the monotonic clock.
    """

    handle: Any
    place: Hashable
    site: Site | None = None
    answer: Any = None
    call: Call | None = None
    deadline: float = math.inf

    @property
    def starts(self) -> bool:
        return self.answer is not None and self.call is None

    def rest(self) -> None:
        self.answer, self.call, self.deadline = None, None, math.inf


@contextmanager
def _own_exit_code() -> Iterator[None]:
    """Restore the intended exit code: Ray makes it 1 when a signal handler raises SystemExit while Ray waits."""
    try:
        yield
    except SystemExit as ending:
        meant = re.search(r"Exit code: (\d+)", str(getattr(ending, "ray_terminate_msg", "")))
        raise SystemExit(int(meant[1]) if meant else ending.code) from None


class ActorPool:
    """A pool of actors; see the module.

    An actor has the methods `ready`, which returns its `Site` once it can work, however often it is asked;
    `perform`; `items`, which tells how far that is; and `close`, which ends what the actor started.

    Args:
        name: what the actors are to a reader of an error.
        places: where there should be an actor each, now.
        start: starts the actor of a place.
        accept: sees where an actor runs, and may refuse it by raising.
    """

    def __init__(
        self,
        name: str,
        places: Callable[[], Iterable[Hashable]],
        start: Callable[[Any], Any],
        accept: Callable[[Site], None],
    ) -> None:
        self._name, self._places, self._start, self._accept = name, places, start, accept
        self._actors: dict[Hashable, Actor] = {}
        self._failed_starts, self._start_at, self._useful_at = 0, 0.0, 0.0
        self._last_loss = ""
        self._waiting: deque[Call] = deque()  # calls that no actor is at
        self._seconds = math.inf
        self._progress: Callable[[int], None] = _ignore

    @_own_exit_code()
    def ready(self) -> None:
        """Start actors, and return when all of them can work, or those that start in time.

        Raises:
            WorkerLost: none can be started.
            PopuloraError: why an actor cannot work, or is refused.
        """
        self._begin(deque(), math.inf, _ignore)
        deadline = time.monotonic() + START_SECONDS
        while self._stranded() or (time.monotonic() < deadline and self._incomplete()):
            self._step()

    @_own_exit_code()
    def run(self, calls: Sequence[Call], seconds: float, progress: Callable[[int], None]) -> None:
        """Have every call done.

        Args:
            seconds: after this long the actor at a call is ended, and the call done again by another.
            progress: called with the number of further items done.

        Raises:
            WorkerLost: a call was lost too often, or there is no actor to do it.
            PopuloraError: whatever an actor raised, as it raised it; a defect, if that is no error of ours.
        """
        self._begin(deque(calls), seconds, progress)
        try:
            while any(call.result is None for call in calls):
                self._step()
        finally:
            self._release(actor for actor in self._all() if actor.call is not None)

    def close(self) -> None:
        """End every actor, and what it started."""
        endings = [actor.handle.close.remote() for actor in self._all() if actor.answer is None]
        if endings:
            ray.wait(endings, num_returns=len(endings), timeout=END_SECONDS)
        self._release(self._all())

    @staticmethod
    def submit(actor: Actor, call: Call) -> Any:
        """Ask an actor to perform a call."""
        return actor.handle.perform.remote(*call.arguments)

    def _all(self) -> list[Actor]:
        return list(self._actors.values())

    def _begin(self, calls: deque[Call], seconds: float, progress: Callable[[int], None]) -> None:
        """Take up calls. Actors that were lost since they last worked, or hang, are found before they get one."""
        self._waiting, self._seconds, self._progress = calls, seconds, progress
        self._useful_at = time.monotonic()
        for actor in self._all():
            if actor.answer is None:
                actor.answer = actor.handle.ready.remote()

    def _step(self) -> None:
        """Start who is missing, hand out calls, and take what is answered within a moment."""
        self._fill()
        self._hand_out()
        answered = self._wait()
        if answered is not None:
            self._take(answered)
        else:
            self._report()
        self._end_overdue()
        self._require_actors()

    def _fill(self) -> None:
        if time.monotonic() >= self._start_at:
            for place in self._missing():
                handle = self._start(place)
                self._actors[place] = Actor(handle, place, answer=handle.ready.remote())

    def _missing(self) -> list[Hashable]:
        return [place for place in self._places() if place not in self._actors]

    def _incomplete(self) -> bool:
        return bool(self._missing()) or any(actor.starts for actor in self._all())

    def _hand_out(self) -> None:
        for actor in self._all():
            if self._waiting and actor.answer is None:
                call = self._waiting.popleft()
                if call.attempts == MAX_ATTEMPTS:
                    raise self._given_up(f"{MAX_ATTEMPTS} attempts were lost")
                call.attempts += 1
                actor.answer, actor.call = self.submit(actor, call), call
                actor.deadline = time.monotonic() + self._seconds

    def _wait(self) -> Actor | None:
        """An actor that has answered, within a moment."""
        asked = {actor.answer: actor for actor in self._all() if actor.answer is not None}
        if not asked:
            time.sleep(POLL_SECONDS)  # a machine may come, or take another start
            return None
        done, _ = ray.wait(list(asked), timeout=POLL_SECONDS)
        return asked[done[0]] if done else None

    def _take(self, actor: Actor) -> None:
        answer, call = actor.answer, actor.call
        actor.rest()
        try:
            value = ray.get(answer)
        except RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, PopuloraError):
                raise cause from None
            if isinstance(error, RayTaskError) or getattr(error, "actor_init_failed", False):
                raise self._defect(actor, error) from error
            return self._lose(actor, call, first_line(error))
        if call is None:
            self._accept(value)
            actor.site, self._failed_starts = value, 0
        else:
            call.result = value
            self._count(call, value.items)

    def _count(self, call: Call, items: int) -> None:
        """Report items not yet reported for a call; a further attempt counts from zero."""
        if items > call.items:
            self._progress(items - call.items)
            call.items = items

    def _report(self) -> None:
        """Ask every actor at work how far it is; who does not answer at once is left out."""
        asked = {actor.handle.items.remote(): actor.call for actor in self._all() if actor.call is not None}
        done = ray.wait(list(asked), num_returns=len(asked), timeout=POLL_SECONDS)[0] if asked else []
        for answer in done:
            with suppress(RayError):  # the call itself will tell
                self._count(asked[answer], ray.get(answer))

    def _end_overdue(self) -> None:
        for actor in self._all():
            if time.monotonic() > actor.deadline:
                self._lose(actor, actor.call, f"One took longer than {self._seconds:g} s.")

    def _lose(self, actor: Actor, call: Call | None, why: str) -> None:
        self._last_loss = f"{actor.site.host}: {why}" if actor.site is not None else why
        self._release([actor])
        if call is not None:
            self._waiting.append(call)
        else:
            self._failed_starts += 1
            self._start_at = time.monotonic() + PAUSE_SECONDS * self._failed_starts

    def _release(self, actors: Iterable[Actor]) -> None:
        for actor in actors:
            del self._actors[actor.place]
            ray.kill(actor.handle)  # unreachable is not dead: what is given up must not go on

    def _stranded(self) -> bool:
        """True if there is no actor that works or can."""
        return all(actor.starts for actor in self._all())

    def _require_actors(self) -> None:
        now = time.monotonic()
        if not self._stranded():
            self._useful_at = now
        elif self._failed_starts >= MAX_FAILED_STARTS:
            raise self._given_up(f"{MAX_FAILED_STARTS} did not start")
        elif now - self._useful_at > START_SECONDS:
            raise self._given_up(f"none could be started within {START_SECONDS:g} s")

    def _defect(self, actor: Actor, error: RayError) -> PopuloraError:
        self._release([actor])
        return defect(self._name, error, COLOURS.sub("", str(error)))

    def _given_up(self, why: str) -> WorkerLost:
        return WorkerLost(
            f"{self._name} could not do its part",
            got=f"{why}. {self._last_loss}".strip(),
            fix="look for memory shortage and at `ray status`, raise compute.shard_seconds if shards are that long, "
            "then resume: nothing committed was lost",
        )


def _ignore(more: int) -> None:
    """Ignore progress, for calls that want none."""
