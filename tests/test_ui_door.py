"""The door of Prefect's pages, and the lists that its forms offer."""

from __future__ import annotations

from asyncio import run
from pathlib import Path

import httpx
import pytest
from conftest import small_config
from prefect.utilities.schema_tools import validate
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from flows.choices import lists, offering
from flows.door import DOOR, GUARD, NAMES, Door, login, run_forms
from populora_core.runs.run import Run
from populora_core.stages.table import stages_of

PAGE = "<!doctype html><html><head><title>Prefect</title></head></html>"
ASKED = {"Accept": "text/html", "Accept-Encoding": "gzip", "If-None-Match": "1"}


def page(request: object) -> HTMLResponse:
    return HTMLResponse(PAGE, headers={"ETag": "1"})


def data(request: object) -> JSONResponse:
    return JSONResponse({"html": PAGE})


def answered(path: str) -> httpx.Response:
    app = Door(
        Starlette(routes=[Route("/api/flows", data), Route("/api/page", page), Route("/{rest:path}", page)])
    )

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://ui") as client:
            return await client.get(path, headers=ASKED)

    return run(ask())


def test_every_page_is_led_to_the_door_and_no_answer_of_the_api_is_touched() -> None:
    shown = answered("/deployments?page=2")
    assert shown.text == PAGE.replace("<head>", f"<head>{GUARD}{NAMES}")
    assert "etag" not in shown.headers
    assert answered("/api/flows").json() == {"html": PAGE}
    assert answered("/api/page").text == PAGE


def test_the_key_is_in_the_link_behind_the_sign_that_no_browser_sends() -> None:
    link = httpx.URL(login("http://127.0.0.1:4200", "a-key"))
    assert (link.path, link.query, link.fragment) == (DOOR, b"", "a-key")
    opened = answered(DOOR)
    assert opened.headers["referrer-policy"] == "no-referrer"
    assert "a-key" not in opened.text


def test_a_link_of_the_index_fills_in_a_form() -> None:
    link = httpx.URL(run_forms("http://127.0.0.1:4200", Path("/somewhere/runs/a&b"))["export"])
    assert dict(link.params) == {
        "form": "export/export",
        "values": '{"source": "runs/a&b", "member": "best"}',
    }


def test_lists_name_the_runs_of_the_project_and_their_members(tmp_path: Path) -> None:
    (tmp_path / "runs" / "no-run").mkdir(parents=True)
    Run.create(tmp_path / "runs" / "first", small_config(), base_digest="0" * 64)
    for name in ("student-00-g0001", ".tmp-7"):
        (tmp_path / "runs" / "first" / "members" / name).mkdir(parents=True)
    for name in ("evolve", "evaluate", "evaluate-tiny", "assemble-tiny", ".shards-evaluate-small"):
        (tmp_path / "runs" / "first" / "generations" / "0001" / name).mkdir(parents=True)
    assert lists(tmp_path) == {
        "runs": ["runs/first"],
        "folders": ["runs", "runs/first"],
        "members": ["best", "student-00-g0001"],
        "groups": ["all", "solvers", "teachers", "best", "student-00-g0001"],
        "stages": [*(stage.name for stage in stages_of(1)), "assemble:tiny", "evaluate:tiny"],
    }


FORM = {
    "required": ["source"],
    "properties": {
        "source": {"title": "Run folder", "type": "string", "choices": "runs"},
        "run_dirs": {
            "choices": "runs",
            "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}],
        },
        "generation": {"type": "integer"},
    },
}


def test_a_marked_field_offers_a_list_or_a_text_and_others_stay_as_they_are() -> None:
    form = offering(FORM, {"runs": ["runs/b", "runs/a"]})
    assert form["required"] == ["source"]
    source, run_dirs = form["properties"]["source"], form["properties"]["run_dirs"]
    assert source["title"] == "Run folder"
    assert source["anyOf"][0]["enum"] == ["runs/b", "runs/a"]
    assert source["anyOf"][1]["type"] == "string"
    assert run_dirs["anyOf"][0]["items"]["enum"] == ["runs/b", "runs/a"]
    assert run_dirs["anyOf"][1]["type"] == "string"
    assert form["properties"]["generation"] == {"type": "integer"}


@pytest.mark.parametrize("given", [["runs/a"], "elsewhere/a, elsewhere/b", ["elsewhere/a", "runs/a"]])
def test_a_field_of_several_takes_what_a_schedule_names_as_it_did(given: object) -> None:
    form = offering(FORM, {"runs": ["runs/a"]})
    validate({"source": "runs/a", "run_dirs": given}, form, raise_on_error=True)


def test_a_list_follows_the_runs_and_one_without_values_is_not_offered() -> None:
    once = offering(FORM, {"runs": ["runs/a"]})
    assert offering(once, {"runs": ["runs/b"]}) == offering(FORM, {"runs": ["runs/b"]})
    assert offering(FORM, {"runs": []}) == FORM
