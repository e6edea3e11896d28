"""Prefect's server comes and goes: a run outlives it, and what a killed run left on it is set right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPConnection
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from urllib.parse import urlsplit

import httpx
import pytest
from conftest import GENERATIONS, PATIENCE, contents, ran, wait_for
from prefect_key import PrefectKey
from prefect_server import ROOT, Server

import flows
from flows.ui import pause_pool
from populora_core.lifecycle.loop import fork
from populora_core.report.write import token_of
from populora_core.runs.heartbeat import Beat
from populora_core.runs.run import Run
from populora_core.stages.table import LOOP

pytestmark = [pytest.mark.foreign, pytest.mark.thorough]

STAGES = (*(stage.name for stage in LOOP), "publish")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """One that a test may kill."""
    server = Server(tmp_path)
    yield server
    server.close()


FOREIGN = "http://evil.example"


def test_a_server_answers_to_its_key_its_own_pages_and_its_own_name_alone(server: Server) -> None:
    def asked(method: str, path: str, auth: httpx.Auth | None = None, **headers: str) -> httpx.Response:
        body = {} if method == "POST" else None
        return httpx.request(
            method, f"{server.url}/{path}", json=body, headers=headers, auth=auth, timeout=PATIENCE
        )

    key, wrong = PrefectKey(server.url, server.key), PrefectKey(server.url, "guessed")
    runs = "flow_runs/filter"
    assert asked("POST", runs, key).is_success
    assert asked("GET", "admin/version", wrong).status_code == 401
    assert asked("GET", "admin/version").status_code == 401
    assert not asked("POST", runs).is_success
    forged = asked("POST", runs, Authorization=key.headers["Authorization"])
    assert forged.status_code == 403, "a page that lets a browser ask has no token"
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    assert asked("OPTIONS", runs, Origin=FOREIGN, **asks).status_code == 400
    own = server.url.removesuffix("/api")
    for name in (own, own.replace("127.0.0.1", "localhost")):
        assert asked("OPTIONS", runs, Origin=name, **asks).headers["access-control-allow-origin"] == name
    assert asked("GET", "health", Host="localhost").is_success
    assert asked("GET", "health", Host="evil.example").status_code == 400


ASKS = """
const [url, key, done] = arguments;
const asked = (path, options) => fetch(`${url}/${path}`, options).then(answer => answer.status, () => "blocked");
const json = {"Content-Type": "application/json", "Authorization": `Basic ${btoa(key)}`};
const flow = JSON.stringify({name: "planted"});
Promise.all([
    asked("admin/version"),
    asked("flow_runs/filter", {method: "POST", headers: json, body: "{}"}),
    asked("flows/", {method: "POST", headers: json, body: flow}),
    asked("flows/", {method: "POST", mode: "no-cors", credentials: "include", body: flow}),
]).then(done);
"""
"""What a page may try: to read, and to have something made, also with the key and without being allowed to look."""


def test_the_pool_is_paused_while_runs_are_ended_and_goes_on_at_the_next_start(server: Server) -> None:
    server.make_pool()
    pause_pool(server.url, server.key)
    assert server.pool_is_paused()
    server.make_pool()
    assert not server.pool_is_paused()


@pytest.mark.browser
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_reads_and_makes_nothing_in_a_browser(
    server: Server, tmp_path: Path, name: str
) -> None:
    browser = pytest.importorskip("browser")
    if not (browser.BROWSER and browser.DRIVER):
        pytest.skip("no Chromium with its driver")
    (tmp_path / "index.html").write_text("<title>evil</title>")
    pages = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path)))
    Thread(target=pages.serve_forever, args=(0.01,), daemon=True).start()
    try:
        with browser.chromium() as chromium:
            chromium.get(f"http://{name}:{pages.server_port}/")
            assert chromium.title == "evil"
            answers = chromium.execute_async_script(ASKS, server.url, server.key)
    finally:
        pages.shutdown()
        pages.server_close()
    assert answers == ["blocked", "blocked", "blocked", 0], "0 is an answer that the page may not see"
    assert "planted" not in {flow["name"] for flow in server.found("flows")}


def as_another_user(work: Callable[[], object]) -> str:
    """What the work returns, or the name of the error that it raises, in a process of the user 65534."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            said = str(work())
        except BaseException as error:
            said = type(error).__name__
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        said = told.read()
    os.waitpid(pid, 0)
    return said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_has_neither_the_key_nor_an_answer(server: Server) -> None:
    from populora_core.support.keys import kept_key

    def asked() -> int:
        parts = urlsplit(server.url)
        connection = HTTPConnection(parts.netloc, timeout=PATIENCE)
        connection.request(
            "POST", f"{parts.path}/flow_runs/filter", "{}", {"Content-Type": "application/json"}
        )
        return connection.getresponse().status

    with TemporaryDirectory() as home:
        os.chmod(home, 0o755)
        key = Path(home, "populora.key")
        kept_key(key)
        assert as_another_user(lambda: os.listdir(home)) == "['populora.key']"
        assert as_another_user(key.read_text) == "PermissionError"
    environment = Path(f"/proc/{server.process.pid}/environ")
    assert as_another_user(environment.read_bytes) == "PermissionError"
    assert as_another_user(asked) in ("401", "403")


def _reached(directory: Path, process: subprocess.Popen[str], generation: int, stage: str) -> bool:
    """Whether the process is there, or beyond it: a slow heartbeat leaves stages out."""
    beat = Beat.read(directory)
    assert process.poll() is None, process.communicate()
    if beat is None or beat.pid != process.pid or beat.generation is None:
        return False
    return (beat.generation, STAGES.index(beat.stage)) >= (generation, STAGES.index(stage))


@pytest.mark.loop
@pytest.mark.sandbox
def test_flow_runs_of_a_killed_run_are_set_to_crashed_by_reap(
    server: Server, copy_of: Callable[[], Path], tmp_path: Path
) -> None:
    directory = copy_of().rename(tmp_path / tmp_path.name)  # another at another try
    process = server.populora("resume", directory, "--generations", GENERATIONS + 1)
    try:
        wait_for(lambda: _reached(directory, process, GENERATIONS + 1, "propose"))
        process.send_signal(signal.SIGSTOP)  # it must not end before it is killed
        refused = server.populora("reap", directory)
        said = refused.communicate(timeout=PATIENCE)[1]
    finally:
        process.kill()
    process.communicate()
    assert refused.returncode == 2
    assert f"pid {process.pid} on" in said
    name = f"{directory.name} g{GENERATIONS + 1:04d}"
    assert server.flow_runs(directory) == [(name, "Running")]
    said = server.populora("reap", directory).communicate(timeout=PATIENCE)[0]
    assert f"the process that worked here was killed: pid {process.pid}" in said
    assert f"set the flow run {name} from Running to Crashed" in said
    assert server.flow_runs(directory) == [(name, "Crashed")]
    again = server.populora("reap", directory).communicate(timeout=PATIENCE)[0].splitlines()
    # What belonged to processes that other tests killed meanwhile is removed, too.
    others = [line for line in again if line.startswith(("removed the sandbox ", "removed /"))]
    assert again == (others or ["nothing was left behind"])


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_terminal_run_shows_itself_and_its_report_at_a_running_ui_whatever_the_profile_names(
    server: Server, copy_of: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, directory = tmp_path / "home", copy_of().rename(tmp_path / tmp_path.name)
    home.mkdir()
    (home / "populora.key").write_text(server.key)
    (home / "profiles.toml").write_text(
        'active = "there"\n[profiles.there]\nPREFECT_API_URL = "http://127.0.0.1:9/api"\n'
    )
    monkeypatch.setattr(flows, "PREFECT_UI", home / "populora.address")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    resume = ["-m", "populora_core.commands", "resume", directory, "--generations", str(GENERATIONS + 1)]
    with flows.announced(server.url):
        done = ran([sys.executable, *resume], cwd=ROOT, env=environment | {"PREFECT_HOME": str(home)})
    assert done.returncode == 0, done.stderr
    assert f"Prefect shows this run at {server.url.removesuffix('/api')}/runs" in done.stdout
    assert server.flow_runs(directory) == [(f"{directory.name} g{GENERATIONS + 1:04d}", "Completed")]
    address = urlsplit(server.url)
    link = (
        f"http://{address.hostname}:{(address.port or 0) + 1}/{token_of(server.key, directory)}{directory}/"
    )
    shown = [each["data"] for each in server.found("artifacts") if directory.name in str(each["data"])]
    assert shown and all(link in text for text in shown)


FROM_THE_FORMS = """
import sys
from pathlib import Path
from flows.evaluate import evaluate
from flows.launch import resume
from populora_core.stages.table import typed_name
run, suite = sys.argv[1:]
def scores():
    (folder,) = Path(run).glob("generations/0002/evaluate-*")
    return typed_name(folder.name)
given = {"run_dir": run, "generations": 2}
for made in (
    lambda: resume(**given, redo_generation=1, redo_stage="match", return_state=True),
    lambda: evaluate([run], suite, "best", return_state=True),
    lambda: resume(**given, redo_generation=2, redo_stage=scores(), return_state=True),
):
    state = made()
    print(state.type.value, state.message)
"""


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_run_made_half_plain_half_by_prefect_and_back_is_the_one_made_in_one_way(
    server: Server, finished: Path, tmp_path: Path
) -> None:
    """And a run made plain is redone, resumed and evaluated from the forms, and its scores are redone."""
    source = Run.open(finished)
    directory = fork(source, 0, tmp_path / tmp_path.name, source.config).directory
    suite = tmp_path / "small.toml"
    tiny = (ROOT / "configs/suites/tiny.toml").read_text()
    suite.write_text(tiny.replace("validation = 0.5", "validation = 0.95"))

    def said(*command: object) -> str:
        done = ran([sys.executable, *map(str, command)], cwd=ROOT, env=server.environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    resume = ("-m", "populora_core.commands", "resume", directory)
    said(*resume, "--plain", "--generations", 1)
    assert said("-c", FROM_THE_FORMS, directory, suite).count("COMPLETED") == 3
    said(*resume, "--plain", "--generations", GENERATIONS - 1)
    assert "Prefect shows this run" in said(*resume)
    evaluated = {name for name in contents(directory) if "/evaluate-" in name}
    assert {name.split("/")[0] for name in evaluated} == {"0002"}
    made = {name: content for name, content in contents(directory).items() if name not in evaluated}
    assert made == contents(finished)
    flows = [name for name, state in server.flow_runs(directory) if state == "Completed"]
    assert f"{directory.name} g{GENERATIONS:04d}" in flows and f"{directory.name} g0002" in flows


@pytest.mark.loop
@pytest.mark.sandbox
def test_a_server_that_dies_in_mid_run_leaves_the_run_unobserved_and_unharmed(
    own_server: Server, finished: Path, tmp_path: Path
) -> None:
    source = Run.open(finished)
    directory = fork(source, GENERATIONS - 2, tmp_path / "run", source.config).directory
    process = own_server.populora("resume", directory)
    wait_for(lambda: _reached(directory, process, GENERATIONS - 1, "propose"))
    own_server.close()
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert err == ""
    assert out.count("the run goes on unobserved") == 1
    assert contents(directory) == contents(finished)
