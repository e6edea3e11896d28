"""Train: one generation is one flow run, one stage one task in it."""

from __future__ import annotations

import httpx
from prefect import flow

from populora_core.errors import PopuloraError
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
    """Run one generation as a flow in this process; Prefect starts a temporary server where none is configured.

    Raises:
        PopuloraError: Prefect's server cannot be reached or started.
    """
    try:
        generation(str(session.run.directory), session.run.name, number)
    except (RuntimeError, httpx.TransportError) as error:
        interruption = _interruption(error)
        if interruption is not None:
            raise interruption from None
        unreachable = ("Prefect API", "reach API")  # Prefect says so by RuntimeErrors alone
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in unreachable):
            raise
        raise PopuloraError(
            "Prefect's server cannot be reached",
            expected="the server of PREFECT_API_URL, or a temporary one in PREFECT_HOME",
            came=str(error),
            remedy="mend that setting, or add --plain to run without Prefect: the results are the same",
        ) from error


def _interruption(error: BaseException | None) -> BaseException | None:
    """The Ctrl-C or exit that Prefect was handling when its server, ended by the same signal, did not answer."""
    while error is not None and not isinstance(error, (KeyboardInterrupt, SystemExit)):
        error = error.__context__
    return error
