"""A run's side of Prefect's server: the key, proxies, a server that is gone or never answered, and signals."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from conftest import GENERATIONS, ran
from prefect.exceptions import TerminationSignal

from populora_core.runs.run import Run
from populora_core.runs.session import Session
from populora_core.support.errors import ServerUnreachable, WorkerLost

ROOT = Path(__file__).resolve().parent.parent


def test_the_key_is_kept_for_its_owner_and_taken_by_commands_on_this_machine(tmp_path: Path) -> None:
    from populora_core.support.keys import kept_key

    path = tmp_path / "home" / "populora.key"
    key = kept_key(path)
    assert (len(key) >= 32, path.stat().st_mode & 0o777, list(path.parent.iterdir())) == (True, 0o600, [path])
    path.chmod(0o644)
    assert (kept_key(path), path.stat().st_mode & 0o777) == (key, 0o600)

    def taken(**given: str) -> str:
        code = "import flows, os; print(os.environ.get('PREFECT_API_AUTH_STRING'))"
        environment = os.environ | {"PREFECT_HOME": str(path.parent)} | given
        done = ran([sys.executable, "-c", code], cwd=ROOT, env=environment)
        return done.stdout.strip()

    here = "http://127.0.0.1:4200/api"
    assert taken(PREFECT_API_URL=here) == key
    assert taken(PREFECT_API_URL=here, PREFECT_API_AUTH_STRING="another") == "another"
    assert taken(PREFECT_API_URL="https://far.example/api") == "None"


@pytest.mark.parametrize("given", [{}, {"NO_PROXY": "intranet"}, {"no_proxy": "intranet,127.0.0.1"}], ids=str)
def test_a_proxy_is_not_asked_for_a_server_of_this_machine(given: dict[str, str]) -> None:
    code = "import flows, urllib.request as r; print(*map(r.proxy_bypass, ('127.0.0.1', 'intranet', 'far')))"
    kept = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}
    environment = kept | {"http_proxy": "http://127.0.0.1:9"} | given
    said = ran([sys.executable, "-c", code], cwd=ROOT, env=environment)
    assert [word in ("True", "1") for word in said.stdout.split()] == [True, bool(given), False]


def test_the_environment_names_the_server_before_a_running_ui_and_that_before_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    import flows
    from flows.commands import server_url
    from flows.server import existing_server

    def asked() -> str:
        """The server that a run names on the screen, and the one that its flow runs go to."""
        named = server_url()
        with existing_server() as url:
            assert named == url == PREFECT_API_URL.value()
        return named

    monkeypatch.setattr(flows, "PREFECT_UI", tmp_path / "populora.address")
    monkeypatch.setattr(flows, "PREFECT_KEY", tmp_path / "populora.key")
    monkeypatch.setattr(flows, "quieten_prefect", lambda home: None)  # it would outlast the test
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    ui, production = "http://127.0.0.1:9/api", "https://production.example/api"
    with temporary_settings({PREFECT_API_URL: production}):
        assert asked() == production
        with flows.announced(ui):
            assert asked() == ui
            monkeypatch.setenv("PREFECT_API_URL", production)
            assert asked() == production


class Flaky:
    """Answers as it is told; runs generations where it does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from flows import observed

        self.up, self.lost, self.ran = True, False, list[str]()
        monkeypatch.setattr(observed, "answers", lambda: self.up)
        monkeypatch.setattr(observed, "crash_left_flow_runs", lambda directory: [])
        monkeypatch.setattr(observed, "forget_events", lambda: None)

    def run_one(self, session: Session, number: int) -> None:
        if self.lost:
            raise ServerUnreachable("gone", got="connection refused")
        self.ran.append(f"flow {number}")

    def run_alone(self, session: Session, number: int) -> None:
        self.ran.append(f"plain {number}")


def test_a_run_says_once_that_it_is_unobserved_and_once_that_it_is_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from types import SimpleNamespace

    from flows.observed import Observed

    server, said = Flaky(monkeypatch), list[str]()
    observed, session = (
        Observed(said.append, server.run_one, server.run_alone),
        SimpleNamespace(run=SimpleNamespace(directory=Path())),
    )
    for number, (up, lost) in enumerate([(True, False), (True, True), (False, False), (True, False)]):
        server.up, server.lost = up, lost
        observed(session, number)
    assert server.ran == ["flow 0", "plain 1", "plain 2", "flow 3"]
    assert ["gone" in said[0], "again" in said[1], len(said)] == [True, True, 2]


def test_a_server_that_never_answered_ends_the_run_before_its_first_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flows.observed import Observed

    server = Flaky(monkeypatch)
    server.up = False
    with pytest.raises(ServerUnreachable, match="cannot be reached"):
        Observed(lambda line: None, server.run_one)(None, 1)  # type: ignore[arg-type]
    assert server.ran == []


@pytest.mark.loop
@pytest.mark.sandbox
def test_the_page_of_a_run_that_is_further_than_it_is_to_go_says_all_of_it(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows import page

    shown = []

    def made(**given: Any) -> UUID:
        shown.append(given.get("progress"))
        return uuid4()

    for name in ("create_progress_artifact", "create_markdown_artifact"):
        monkeypatch.setattr(page, name, made)
    page.RunPage(Run.open(finished), GENERATIONS - 1)
    assert shown == [100.0, None]


@pytest.mark.parametrize(
    ("raised", "ends_by"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (SystemExit(143), SystemExit),
        (TerminationSignal(signal=signal.SIGTERM), SystemExit),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize(
    "failure", [httpx.ReadError("cut off"), WorkerLost("it ended")], ids=["request", "worker"]
)
def test_what_fails_because_of_a_signal_ends_the_run_by_that_signal(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException, ends_by: type[BaseException], failure: Exception
) -> None:
    from types import SimpleNamespace

    from flows import train
    from tasks.show import attempted

    def fail(*arguments: object) -> None:
        try:
            raise raised
        except BaseException:
            raise failure  # noqa: B904 as clean-up does

    monkeypatch.setattr(train, "generation", fail)
    session: Any = SimpleNamespace(run=SimpleNamespace(directory=Path(), name="run"))
    for meet in (lambda: train.run_generation(session, 1), lambda: attempted(fail)):
        with pytest.raises(ends_by) as caught:
            meet()
        assert not isinstance(caught.value, SystemExit) or caught.value.code == 128 + signal.SIGTERM
