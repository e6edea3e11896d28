"""Running generations as flows, and without Prefect once its server has gone: work does not depend on being watched."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from flows.server import answers, crash_left_flow_runs, forget_events
from flows.train import run_generation, unreachable
from populora_core.runs.session import Session
from populora_core.stages.engine import run_generation as run_plain
from populora_core.support.errors import ServerUnreachable


class Observed:
    """Run one generation as a flow, in place of the plain loop's `run_generation`.

    Args:
        say: called when the run becomes unobserved, and when it is observed again.
        run_one: runs one generation as a flow.
        run_alone: runs one without Prefect.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        run_one: Callable[[Session, int], None] = run_generation,
        run_alone: Callable[[Session, int], object] = run_plain,
    ) -> None:
        self._say, self._run_one, self._run_alone = say, run_one, run_alone
        self._seen = self._lost = False

    def __call__(self, session: Session, generation: int) -> None:
        """Run one generation.

        Raises:
            ServerUnreachable: the server has never answered.
        """
        if answers():
            try:
                if self._lost or not self._seen:
                    crash_left_flow_runs(session.run.directory)
                if self._lost:
                    self._say("Prefect's server answers again: the run is observed from here on")
                self._seen, self._lost = True, False
                return self._run_one(session, generation)
            except ServerUnreachable as error:
                self._lose(error.got)
            except httpx.HTTPError:  # another server, or one that is still starting
                if not self._lost:
                    raise
        elif not self._seen:
            raise unreachable("it does not answer")
        elif not self._lost:
            self._lose("it does not answer")
        self._run_alone(session, generation)  # what its flow had finished is found done

    def _lose(self, reason: str) -> None:
        self._lost = True
        forget_events()
        self._say(f"Prefect's server is gone ({reason}): the run goes on unobserved; results are the same")
