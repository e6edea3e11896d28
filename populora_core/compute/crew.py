"""Actors of a Ray cluster that share tasks: whoever is idle takes the next, and what is lost is done again elsewhere.

Ray itself re-runs nothing here (no retries, no restarts), since it would not do so for a machine that hangs, and
would start from zero what has been committed. So there is one place that counts attempts and one clock: a task
that is not answered in time is given to another actor as well, and the first answer counts.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError

from populora_core.support.errors import PopuloraError, WorkerLost, first_line

MAX_ATTEMPTS = 4
MAX_FAILED_STARTS = 8
PAUSE_SECONDS = 0.5  # times the failures in a row: a dead machine is listed for some seconds
START_SECONDS = 300.0
POLL_SECONDS = 0.25
END_SECONDS = 10.0
R = TypeVar("R")


@contextmanager
def _own_exit_code() -> Iterator[None]:
    """Pass an exit on as it was meant: where a signal's handler raises it while Ray waits, Ray puts 1 for its code."""
    try:
        yield
    except SystemExit as ending:
        meant = re.search(r"Exit code: (\d+)", str(getattr(ending, "ray_terminate_msg", "")))
        raise SystemExit(int(meant[1]) if meant else ending.code) from None


@dataclass(frozen=True, slots=True)
class Task(Generic[R]):
    """One thing to do.

    Attributes:
        start: asks an actor for it; the answer is ("result", value) or ("error", PopuloraError).
        items: how many items a value stands for in reports of progress.
        look_up: finds the value where an actor was lost after it had committed it.
        seconds: after this long another actor is asked too.
    """

    start: Callable[[Hand], Any]
    items: Callable[[R], int]
    seconds: float
    look_up: Callable[[], R | None] = lambda: None


@dataclass(slots=True)
class Hand:
    """An actor.

    Attributes:
        place: what it is counted under when places are filled, such as its node.
        met: what its `ready` answered.
    """

    actor: Any
    place: str
    met: Any = None


@dataclass(slots=True)
class Running:
    """A task that an actor was asked for.

    Attributes:
        deadline: on the monotonic clock; afterwards it is overdue, and somebody else is asked too.
    """

    task: int
    hand: Hand
    deadline: float
    overdue: bool = False


@dataclass(slots=True)
class Batch(Generic[R]):
    """Tasks on their way.

    Attributes:
        queue: tasks that nobody is at, by number.
        values: of those that are done; the first answer counts.
        attempts: how often each was started.
    """

    tasks: Sequence[Task[R]]
    progress: Callable[[int], None]
    queue: deque[int] = field(init=False)
    values: dict[int, R] = field(init=False, default_factory=dict)
    attempts: list[int] = field(init=False)
    _counted: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.queue = deque(range(len(self.tasks)))
        self.attempts, self._counted = [0] * len(self.tasks), [0] * len(self.tasks)

    @property
    def results(self) -> list[tuple[R, int]]:
        return [(self.values[number], self.attempts[number]) for number in range(len(self.tasks))]

    def keep(self, number: int, value: R) -> None:
        if number not in self.values:
            self.values[number] = value
            self.count(number, self.tasks[number].items(value))

    def count(self, number: int, items: int) -> None:
        """Report what is new of the items of a task; another attempt counts from the beginning."""
        if items > self._counted[number]:
            self.progress(items - self._counted[number])
            self._counted[number] = items

    def again(self, number: int) -> None:
        """Queue a task that was lost, unless it was committed before that."""
        if number in self.values or number in self.queue:
            return
        found = self.tasks[number].look_up()
        if found is None:
            self.queue.append(number)
        else:
            self.keep(number, found)


@dataclass(slots=True)
class Crew:
    """See the module.

    Args:
        name: what the actors are to a reader of an error.
        places: how many actors each place can hold now; what is gone from it is gone for good.
        hire: starts an actor at a place. Its method `ready` answers as tasks do, once it can work; `close` ends
            what it started.
        welcome: sees what `ready` answered, and may refuse by raising.
        watched: whether actors have a method `items`, which tells how far they are.
    """

    name: str
    places: Callable[[], Mapping[str, int]]
    hire: Callable[[str], Any]
    welcome: Callable[[Any], None] = lambda value: None
    watched: bool = False
    _idle: list[Hand] = field(default_factory=list)
    _joining: dict[Any, Hand] = field(default_factory=dict)
    _running: dict[Any, Running] = field(default_factory=dict)
    _failed_starts: int = 0
    _start_at: float = 0.0
    _last_loss: str = ""

    @_own_exit_code()
    def ready(self, wanted: int) -> None:
        """Start actors, and return when all of them can work, or those that start in time.

        Raises:
            WorkerLost: none can be started.
            PopuloraError: why an actor, or who welcomes it, refuses.
        """
        self._forget_gone()
        deadline = time.monotonic() + START_SECONDS
        self._fill(wanted)
        while self._joining or not self._idle:
            self._fill(wanted)
            if not self._joining:
                time.sleep(POLL_SECONDS)  # a machine may come, or take another start
            self._join(list(self._joining), deadline)
            if time.monotonic() > deadline:
                self._dismiss(list(self._joining.values()))
                self._joining = {}

    @_own_exit_code()
    def run(
        self, tasks: Sequence[Task[R]], wanted: int, progress: Callable[[int], None]
    ) -> list[tuple[R, int]]:
        """Have every task done; values and numbers of attempts, in the order of the tasks.

        Args:
            wanted: actors at most.
            progress: called with the number of further items done.

        Raises:
            WorkerLost: a task was lost too often, or nobody is left to do it.
            PopuloraError: whatever an actor answered with.
        """
        batch = Batch(tasks, progress)
        self._forget_gone()
        alone_until = time.monotonic() + START_SECONDS
        try:
            while len(batch.values) < len(tasks):
                self._fill(min(wanted, len(tasks)))
                self._hand_out(batch)
                if self._idle or self._running:
                    alone_until = time.monotonic() + START_SECONDS
                done = self._wait()
                self._join([ref for ref in done if ref in self._joining], alone_until)
                for ref in [ref for ref in done if ref in self._running]:
                    self._take(ref, batch)
                self._mark_overdue(batch)
                if self.watched and not done:
                    self._report(batch)
        finally:
            self._end_running()  # overdue ones, or all of them where the batch is given up
        return batch.results

    def close(self) -> None:
        """End every actor, and what it started."""
        self._end_running()
        self._dismiss(self._joining.values())
        endings = [hand.actor.close.remote() for hand in self._idle]
        if endings:
            ray.wait(endings, num_returns=len(endings), timeout=END_SECONDS)
        self._dismiss(self._idle)
        self._idle, self._joining = [], {}

    def _forget_gone(self) -> None:
        """Forget idle actors whose machines are gone."""
        places = self.places()
        self._idle = [hand for hand in self._idle if hand.place in places]

    def _fill(self, wanted: int) -> None:
        """Start actors where places are free, up to the number wanted."""
        hands = [*self._idle, *self._joining.values(), *(each.hand for each in self._running.values())]
        if len(hands) >= wanted or time.monotonic() < self._start_at:
            return
        places = dict(self.places())
        for hand in hands:
            places[hand.place] = places.get(hand.place, 0) - 1
        for _ in range(wanted - len(hands)):
            place = max(places, key=lambda name: places[name], default="")
            if not place or places[place] < 1:
                return
            actor = self.hire(place)
            self._joining[actor.ready.remote()] = Hand(actor, place)
            places[place] -= 1

    def _join(self, refs: list[Any], deadline: float) -> None:
        """Take in those of the actors that are ready; waits a moment for all of them."""
        done, _ = ray.wait(refs, num_returns=len(refs), timeout=POLL_SECONDS) if refs else ([], [])
        for ref in done:
            hand = self._joining.pop(ref)
            try:
                kind, value = ray.get(ref)
            except RayTaskError as error:
                raise self._defect(hand, error) from error
            except RayError as error:
                self._failed_starts += 1
                self._lose(hand, error)
                self._start_at = time.monotonic() + PAUSE_SECONDS * self._failed_starts
                if self._failed_starts >= MAX_FAILED_STARTS and not self._idle and not self._running:
                    raise self._given_up(f"{MAX_FAILED_STARTS} did not start. {self._last_loss}") from error
                continue
            if kind == "error":
                ray.kill(hand.actor)
                raise value
            hand.met = value
            try:
                self.welcome(value)
            except PopuloraError:
                ray.kill(hand.actor)
                raise
            self._failed_starts = 0
            self._idle.append(hand)
        if not self._idle and not self._running and time.monotonic() > deadline:
            raise self._given_up(f"none could be started within {START_SECONDS:g} s. {self._last_loss}")

    def _hand_out(self, batch: Batch[R]) -> None:
        """Give every idle actor a task; where all that work are overdue and none is idle, end those."""
        while batch.queue and self._idle:
            number = batch.queue.popleft()
            if number in batch.values:
                continue
            if batch.attempts[number] == MAX_ATTEMPTS:
                raise self._given_up(f"{MAX_ATTEMPTS} attempts were lost. {self._last_loss}")
            batch.attempts[number] += 1
            task, hand = batch.tasks[number], self._idle.pop(0)
            self._running[task.start(hand)] = Running(number, hand, time.monotonic() + task.seconds)
        if batch.queue and not self._idle and all(each.overdue for each in self._running.values()):
            self._end_running()  # their places are needed

    def _wait(self) -> list[Any]:
        """What has been answered, after a moment at most."""
        refs = [*self._running, *self._joining]
        if not refs:
            time.sleep(POLL_SECONDS)  # a machine may come
            return []
        return ray.wait(refs, num_returns=1, timeout=POLL_SECONDS)[0]

    def _take(self, ref: Any, batch: Batch[R]) -> None:
        each = self._running.pop(ref)
        try:
            kind, value = ray.get(ref)
        except RayTaskError as error:
            if self._needless(each, batch):
                return self._lose(each.hand, error)
            raise self._defect(each.hand, error) from error
        except RayError as error:
            self._lose(each.hand, error)
            if each.task not in {other.task for other in self._running.values() if not other.overdue}:
                batch.again(each.task)
            return
        if kind == "error" and self._needless(each, batch):
            return self._lose(each.hand, value)
        self._idle.append(each.hand)
        if kind == "error":
            raise value
        batch.keep(each.task, value)

    def _needless(self, each: Running, batch: Batch[R]) -> bool:
        """Whether an overdue actor's complaint can be passed over, since somebody else does the task or will."""
        others = any(other.task == each.task for other in self._running.values())
        untried = batch.attempts[each.task] < MAX_ATTEMPTS
        return each.overdue and (each.task in batch.values or others or untried)

    def _mark_overdue(self, batch: Batch[R]) -> None:
        now = time.monotonic()
        for each in self._running.values():
            if now > each.deadline and not each.overdue:
                each.overdue = True
                self._last_loss = f"One took longer than {batch.tasks[each.task].seconds:g} s."
                batch.again(each.task)

    def _report(self, batch: Batch[R]) -> None:
        """Ask every actor at work how far it is; who does not answer at once is left out."""
        polls = {each.hand.actor.items.remote(): each.task for each in self._running.values()}
        done, _ = ray.wait(list(polls), num_returns=len(polls), timeout=POLL_SECONDS) if polls else ([], [])
        for ref in done:
            with suppress(RayError):  # the task itself will tell
                items = ray.get(ref)
                if polls[ref] not in batch.values:
                    batch.count(polls[ref], items)

    def _lose(self, hand: Hand, error: Exception) -> None:
        self._last_loss = first_line(error)
        ray.kill(hand.actor)  # unreachable is not dead: what is given up must not go on

    def _end_running(self) -> None:
        self._dismiss([each.hand for each in self._running.values()])
        self._running = {}

    @staticmethod
    def _dismiss(hands: Iterable[Hand]) -> None:
        for hand in hands:
            ray.kill(hand.actor)

    def _defect(self, hand: Hand, error: RayTaskError) -> PopuloraError:
        ray.kill(hand.actor)
        return PopuloraError(
            f"a defect in {self.name}, please report it:\n{error}",
            remedy="nothing committed was lost; resume goes on",
        )

    def _given_up(self, why: str) -> WorkerLost:
        return WorkerLost(
            f"{self.name} could not do its part",
            came=why.strip(),
            remedy="look for memory shortage and at `ray status`, raise compute.shard_seconds if shards are that long, "
            "then resume: nothing committed was lost",
        )
