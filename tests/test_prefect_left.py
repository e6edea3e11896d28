"""Flow runs that no process ends or begins any more, and that the next start of `populora ui` settles."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from inspect import getsource
from pathlib import Path
from uuid import UUID

import pytest
from prefect_server import Server

from flows.deploy import NIGHTLY, remove_missed_nights
from populora_core.runs.lock import lock
from populora_core.store.record import RECORD

pytestmark = [pytest.mark.foreign, pytest.mark.thorough]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.close()


def test_flow_runs_that_a_power_cut_left_under_way_are_set_to_crashed_unless_somebody_works_on_their_run(
    server: Server, tmp_path: Path
) -> None:
    from prefect.client.orchestration import get_client
    from prefect.states import Pending, Running, Suspended

    from flows.server import crash_orphaned_flow_runs

    held, left = tmp_path / "held", tmp_path / "left"
    held.mkdir()
    left.mkdir()
    asked = {
        "held": (Running(), {"run_dir": str(held)}),
        "left": (Running(), {"run_dir": str(left)}),
        "not begun": (Pending(), {"run_dir": str(tmp_path / "absent")}),
        "nightly": (Running(), {"run_dirs": ["runs"]}),
        "waits": (Suspended(), {"run_dir": str(left)}),
    }
    with server.asked(), get_client(sync_client=True) as client:
        deployment = client.create_deployment(client.create_flow_from_name("power cut"), "power cut")
        ids = {}
        for name, (state, parameters) in asked.items():
            made = client.create_flow_run_from_deployment(deployment, parameters=parameters, name=name)
            client.set_flow_run_state(made.id, state, force=True)
            ids[name] = made.id
        with lock(held):
            said = crash_orphaned_flow_runs()
        states = {name: client.read_flow_run(number).state_name for name, number in ids.items()}
        for number in ids.values():
            client.delete_flow_run(number)
    crashed = dict.fromkeys(("left", "not begun", "nightly"), "Crashed")
    assert states == crashed | {"held": "Running", "waits": "Suspended"}
    assert sorted(line.split()[4] for line in said) == ["left", "nightly", "not"]


def test_generations_of_a_killed_terminal_run_are_set_to_crashed_where_their_lock_tells(
    server: Server, tmp_path: Path
) -> None:
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings
    from prefect.states import Running

    from flows.server import crash_orphaned_flow_runs
    from flows.train import generation

    ids: dict[str, UUID] = {}

    def states() -> dict[str, str | None]:
        return {name: client.read_flow_run(number).state_name for name, number in ids.items()}

    with server.asked(), get_client(sync_client=True) as client:
        for name in ("alive", "killed", "elsewhere"):
            folder = tmp_path / name
            given = {"run_dir": str(folder), "run_name": name, "generation": 3}
            ids[name] = client.create_flow_run(generation, name=name, parameters=given, state=Running()).id
            if name != "elsewhere":
                folder.mkdir()
                (folder / RECORD).touch()
        with lock(tmp_path / "alive"):
            shared = server.url.replace("127.0.0.1", "localhost")
            with temporary_settings({PREFECT_API_URL: shared}):
                crash_orphaned_flow_runs()
            assert states() == dict.fromkeys(ids, "Running"), "another machine may have the same path"
            crash_orphaned_flow_runs()
        assert states() == {"alive": "Running", "killed": "Crashed", "elsewhere": "Running"}
        for number in ids.values():
            client.delete_flow_run(number)


def test_of_nights_that_were_missed_the_newest_is_left(server: Server) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import CronSchedule
    from prefect.states import Scheduled

    now = datetime.now(UTC)
    far = CronSchedule(
        cron=f"{now.minute} {(now.hour + 12) % 24} * * *", timezone="UTC"
    )  # none is due meanwhile
    nights = DeploymentScheduleCreate(schedule=far)
    days = {
        "start_time": (now - timedelta(days=3)).isoformat(),
        "end_time": (now + timedelta(days=2)).isoformat(),
    }

    def times(deployment: UUID) -> set[datetime]:
        runs = server.found("flow_runs", deployments={"id": {"any_": [str(deployment)]}})
        return {datetime.fromisoformat(run["expected_start_time"]) for run in runs if run["auto_scheduled"]}

    with server.asked(), get_client(sync_client=True) as client:
        flow = client.create_flow_from_name("nights")
        made = [client.create_deployment(flow, name, schedules=[nights]) for name in (NIGHTLY, "of a user")]
        nightly, other = made
        by_hand = client.create_flow_run_from_deployment(
            nightly, state=Scheduled(scheduled_time=now - timedelta(days=2))
        )
        for deployment in made:
            server.ask(f"deployments/{deployment}/schedule", days | {"min_runs": 9})
        planned = times(nightly)
        past = sorted(time for time in planned if time < now)
        assert len(past) == 3
        remove_missed_nights()
        assert planned - times(nightly) == set(past[:2])
        assert times(other) >= planned
        assert client.read_flow_run(by_hand.id).state_name in ("Scheduled", "Late")
        for deployment in made:
            client.delete_deployment(deployment)


def test_a_review_that_no_one_answers_is_told_of_once(server: Server) -> None:
    from prefect.client.orchestration import get_client
    from prefect.server.services import pause_expirations
    from prefect.states import Failed, Suspended

    from flows.launch import resume
    from flows.server import EXPIRED, unanswered_reviews

    assert EXPIRED in getsource(pause_expirations)
    with server.asked(), get_client(sync_client=True) as client:
        run = client.create_flow_run(
            resume, parameters={"run_dir": "runs/a", "review": True}, state=Suspended()
        )
        assert [*unanswered_reviews()] == []
        client.set_flow_run_state(run.id, Failed(message=EXPIRED), force=True)  # as that service does
        ((flow, told, state),) = unanswered_reviews()
        assert (flow.name, told.id, state.name) == ("resume", run.id, "Failed")
        found = client.read_flow_run(run.id).state
        assert found is not None and found.message == state.message and "Retry" in str(state.message)
        assert [*unanswered_reviews()] == []
        client.delete_flow_run(run.id)
