"""The report server of `populora ui`: reports whose links it can have made, and no other file of the owner."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from conftest import PATIENCE, small_config
from store_run import commit_stage, generation_tables, write_run

from flows import reports
from flows.index_page import COMPARE
from flows.reports import SETTINGS, index_path, serve_reports
from populora_core.report.write import REPORT, SERVED, SERVED_KEY, report_address, token_of
from populora_core.runs.run import Run
from populora_core.store.record import RECORD

KEY = "a key"
SECRET = b"another file of the owner"


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with serve_reports("127.0.0.1", 0, KEY, tmp_path) as address:
        monkeypatch.setenv(SERVED, address)
        monkeypatch.setenv(SERVED_KEY, KEY)
        yield address


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "a run"
    folder.mkdir()
    (folder / REPORT).write_bytes(b"the report")
    (tmp_path / "secret").write_bytes(SECRET)
    return folder


def asked(url: str, **headers: str) -> tuple[int, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE)
    connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def linked(address: str, path: Path) -> str:
    """A link with the right token: what stands there has changed since it was made."""
    return f"{address}/{token_of(KEY, path.parent)}{quote(str(path))}"


def test_a_link_that_a_flow_made_gives_the_report(served: str, run: Path) -> None:
    for name in ("127.0.0.1", "localhost"):
        assert asked(report_address(run), Host=name) == (200, b"the report")


def test_no_report_is_given_without_the_token_of_its_run(served: str, run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / REPORT).write_bytes(b"of somebody else")
    token = token_of(KEY, run)
    for path in (
        f"{run}/{REPORT}",
        f"/{token}{other}/{REPORT}",
        f"/{'0' * 64}{run}/{REPORT}",
        f"/{token}",
        "/",
    ):
        assert asked(served + quote(path))[0] == 404


def test_a_page_of_a_foreign_name_reads_nothing(served: str, run: Path) -> None:
    for evil in ("evil.example", "127.0.0.1.evil.example", ""):
        assert asked(report_address(run), Host=evil)[0] == 404, evil


def test_half_a_request_holds_no_thread_and_a_bad_address_is_not_found(
    served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = urlsplit(served)
    for seconds, sent, answered in (
        (0.2, b"GET / HT", b""),
        (PATIENCE, b"GET http://[/ HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n", b"HTTP/1.0 404"),
    ):
        monkeypatch.setattr(reports.Reports, "timeout", seconds)
        with socket.create_connection((place.hostname, place.port), PATIENCE) as connection:
            connection.sendall(sent)
            assert connection.makefile("rb").read(12) == answered


def test_a_request_that_comes_byte_by_byte_holds_no_thread(
    served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports.Reports, "timeout", 0.3)
    place = urlsplit(served)
    with socket.create_connection((place.hostname, place.port), PATIENCE) as connection:
        for _ in range(int(PATIENCE / 0.05)):
            with suppress(ConnectionError):
                connection.sendall(b"G")
            if select.select([connection], [], [], 0.05)[0]:
                break
        else:
            pytest.fail("the connection is still open")


def test_no_link_is_followed(served: str, run: Path, tmp_path: Path) -> None:
    (run / REPORT).unlink()
    (run / REPORT).symlink_to(tmp_path / "secret")
    assert asked(report_address(run))[0] == 404
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / REPORT).write_bytes(SECRET)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert asked(linked(served, tmp_path / "link" / REPORT))[0] == 404


def test_what_is_no_plain_file_of_the_owner_is_not_read(served: str, run: Path, tmp_path: Path) -> None:
    (run / REPORT).unlink()
    os.mkfifo(run / REPORT)
    assert asked(report_address(run))[0] == 404
    (run / REPORT).unlink()
    (run / REPORT).mkdir()
    assert asked(report_address(run))[0] == 404
    if os.geteuid() == 0:
        (run / REPORT).rmdir()
        (run / REPORT).write_bytes(b"of another user")
        os.chown(run / REPORT, 65534, 65534)
        assert asked(report_address(run))[0] == 404


def test_a_path_that_no_file_can_have_is_answered(served: str) -> None:
    for path in ("/" + "x" * 5000, "/%00", "/../..", "//"):
        place = Path("/", path.replace("%00", "\0"), REPORT)
        assert asked(f"{served}/{token_of(KEY, place.parent)}{path}/{REPORT}")[0] == 404, path[:9]


def test_the_index_lists_the_runs_of_the_folder_with_links_to_their_reports(
    served: str, run: Path, tmp_path: Path
) -> None:
    config = small_config()
    Run.create(tmp_path / "first", config, base_digest="0" * 64)
    write_run(tmp_path / "first", generations=config.run.generations)
    (tmp_path / "first" / REPORT).write_bytes(b"of the first")
    Run.create(tmp_path / "<b>", config, base_digest="0" * 64)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / RECORD).write_text("{")
    status, page = asked(served + index_path(KEY, tmp_path))
    text = page.decode()
    assert status == 200
    first, empty, broken = (row_of(text, name) for name in ("first", "&lt;b&gt;", "broken"))
    assert first[2] == "finished" and first[5] == "3 / 3" and first[-1].startswith("Students now solve ")
    assert first[6:8] == [config.base.public_name(), str(config.run.seed)]
    assert empty[2] == "stopped" and empty[5] == "0 / 3"
    assert broken[2] == "not readable"
    (link,) = re.findall('<td><a href="([^"]+)">', text)
    assert asked(served + link) == (200, b"of the first")


def row_of(page: str, run: str) -> list[str]:
    """The texts of a run's cells."""
    row = next(row for row in page.split("<tr>") if f">{run}<" in row)
    return [re.sub("<[^>]*>", "", cell) for cell in re.findall("<td.*?</td>", row)]


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    for seed in (2, 1):
        Run.create(tmp_path / f"seed-{seed}", small_config(run={"seed": seed}), base_digest="0" * 64)
        write_run(tmp_path / f"seed-{seed}", generations=3)
    return ["seed-1", "seed-2"]


def test_the_index_is_in_the_order_that_a_column_gives(served: str, two: list[str], tmp_path: Path) -> None:
    for by in ("seed", "-seed", "run", "-run"):
        text = asked(f"{served}{index_path(KEY, tmp_path)}?by={by}")[1].decode()
        backwards = by.startswith("-")
        assert sorted(two, key=lambda name: text.index(f">{name}<"), reverse=backwards) == two
        assert f'aria-sort="{"descending" if backwards else "ascending"}"' in text


def test_ticked_runs_are_compared_and_no_other_folder_is_read(
    served: str, two: list[str], tmp_path: Path
) -> None:
    compare = f"{served}{index_path(KEY, tmp_path)}{COMPARE}"
    status, page = asked(f"{compare}?run=seed-1&run=seed-2&run=../../etc")
    assert status == 200
    assert b"2 runs compared" in page and b"run.seed" in page
    assert b"No run is ticked" in asked(f"{compare}?run=/etc")[1]
    assert asked(f"{served}/{COMPARE}?run=seed-1")[0] == 404


def test_the_pages_of_a_received_run_import_nothing_that_it_names(
    served: str, two: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "installed").mkdir()
    bait = "import pathlib, sys\npathlib.Path(__file__).with_name('PWNED').touch()\nthing = sys.exit\n"
    (tmp_path / "installed" / "harmful.py").write_text(bait)
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    received = tmp_path / "seed-1"
    document = json.loads((received / RECORD).read_text())
    document["config"]["propose"]["types"] = ["code_o", "harmful:thing"]
    document["config"]["base"]["dialect"] = document["config"]["grade"]["teacher_reward"] = "harmful:thing"
    (received / RECORD).write_text(json.dumps(document))
    for stage, table in (("propose", "proposals"), ("verify", "problems")):
        tables = generation_tables(3)[stage]
        for row in tables[table]:
            row["problem_type"] = "harmful:thing"
        commit_stage(received, 3, stage, tables)
    for page in ("", f"{COMPARE}?run=seed-1", f"{COMPARE}?run=seed-1&run=seed-2"):
        status, text = asked(served + index_path(KEY, tmp_path) + page)
        assert status == 200 and b"seed-1" in text
    assert b"harmful:thing" in text
    assert not list(tmp_path.rglob("PWNED"))


def test_the_index_is_for_who_knows_its_address_and_the_settings_are_for_everyone(
    served: str, tmp_path: Path
) -> None:
    assert asked(served + "/")[0] == 404
    assert asked(f"{served}/{'0' * 64}/")[0] == 404
    assert asked(served + index_path(KEY, tmp_path), Host="evil.example")[0] == 404
    assert b"`attempts`" in asked(f"{served}/{SETTINGS}")[1]
