"""Faults of a run on a Ray cluster of two nodes: workers that are killed, and a node that is taken away."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from two_nodes import TwoNodes

from populora_core.runs.observer import Observer
from populora_plugins.cluster.actor_pool import Actor, ActorPool, Call

SHARED = ("propose", "verify", "solve", "update")


class Faults(Observer):
    """Kills a worker in each shared stage of one generation, and takes a node away in each of the next."""

    def __init__(self, nodes: TwoNodes, patch: pytest.MonkeyPatch) -> None:
        from populora_plugins.cluster import ray_sandbox

        self.nodes, self.position, self.struck = nodes, (0, ""), set()
        self.session: Any = None
        self.partial = 0
        patch.setattr(ActorPool, "submit", staticmethod(self._striking(ActorPool.submit)))
        patch.setattr(ray_sandbox, "JOBS", (4, 8))  # so that both machines get some

    def stage_started(self, generation: int, stage: str) -> None:
        self.position = generation, stage

    def stage_progress(self, done: int, total: int) -> None:
        self.partial += 0 < done < total

    def stage_ended(self, generation: int, stage: str, reused: bool, seconds: float) -> None:
        if (generation, stage) in self.struck and generation == 3:
            self.nodes.replace_second()
            for pool in (self.session.compute.pool, self.session.sandbox.pool):
                pool.ready()  # so that the new machine has its part in the next stage

    def _striking(self, submit: Callable) -> Callable:
        """Asks an actor for a shard, and does away with it or its machine while it is at it."""

        def asked(actor: Actor, call: Call) -> Any:
            answer = submit(actor, call)
            generation, stage = self.position
            if stage not in SHARED or generation < 2 or self.position in self.struck:
                return answer
            if generation == 2:
                self.struck.add(self.position)
                os.kill(actor.site.pid, signal.SIGKILL)
            elif self.nodes.on_second(actor.site.pid):
                self.struck.add(self.position)
                os.kill(actor.site.pid, signal.SIGSTOP)  # else it may answer before its machine is gone
                self.nodes.lose_second()
                with suppress(ProcessLookupError):
                    os.kill(actor.site.pid, signal.SIGKILL)
            return answer

        return asked
