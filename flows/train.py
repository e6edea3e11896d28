"""Train: one generation is one flow run, one stage one task in it."""

from __future__ import annotations

import httpx
from prefect import flow
from prefect.exceptions import ObjectNotFound

from populora_core.errors import ServerUnreachable
from populora_core.session import Session, attach
from populora_core.stages.table import stages_of
from tasks.stages import TASKS


@flow(name="generation", flow_run_name="{run_name} g{generation:04d}", persist_result=False)
def generation(run_dir: str, run_name: str, generation: int) -> None:
    """Match, propose, verify, solve, grade, update, evaluate, evolve."""
    with attach(run_dir):
        for stage in stages_of(generation):
            TASKS[stage.name](run_dir, generation)


def run_generation(session: Session, number: int) -> None:
    """Run one generation as a flow in this process.

    Raises:
        ServerUnreachable: Prefect's server is not there, or went away; stages that were finished stay.
    """
    try:
        generation(str(session.run.directory), session.run.name, number)
    except (RuntimeError, httpx.HTTPError, ObjectNotFound) as error:
        interruption = _interruption(error)
        if interruption is not None:
            raise interruption from None
        silent = ("Prefect API", "reach API")  # Prefect says so by RuntimeErrors alone
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in silent):
            raise
        raise unreachable(str(error) or type(error).__name__) from error


def unreachable(came: str) -> ServerUnreachable:
    """What is said of a server that should be there."""
    return ServerUnreachable(
        "Prefect's server cannot be reached",
        expected="the server of PREFECT_API_URL, or a temporary one in PREFECT_HOME",
        came=came,
        remedy="mend that setting, or add --plain to run without Prefect: the results are the same",
    )


def _interruption(error: BaseException | None) -> BaseException | None:
    """The Ctrl-C or exit that Prefect was handling when its server, ended by the same signal, did not answer."""
    while error is not None and not isinstance(error, (KeyboardInterrupt, SystemExit)):
        error = error.__context__
    return error
