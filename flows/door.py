"""The door of Prefect's pages: a link that logs in, and a page that asks for the key before anything else does.

On their own, Prefect's pages ask the server first and show its refusal as an error. A link of `login` holds the key
behind `#`, which no browser sends; the page at DOOR keeps it where Prefect's pages look for it. Every other page is
given a line that leads a browser without the right key here, and one that names controls which screen readers could
not tell.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from populora_core.lifecycle.naming import BEST

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

DOOR = "/door"
KEPT = "prefect-password"  # where Prefect's pages keep the key, in base64
FIRST = "/deployments"
OPENS = """
function opens(kept) {
  const asked = new XMLHttpRequest();
  asked.open("GET", "/api/admin/version", false);
  asked.setRequestHeader("Authorization", "Basic " + kept);
  try { asked.send(); } catch { return true; }
  return asked.status !== 401;
}
"""
GUARD = f"""<script>
(() => {{
  {OPENS}
  const kept = localStorage.getItem("{KEPT}");
  const here = encodeURIComponent(location.pathname + location.search);
  if (!kept || !opens(kept)) location.replace("{DOOR}?then=" + here);
}})();
</script>"""
NAMES = """<script>
{
  const names = {
    ".context-sidebar__logo-link": "Home",
    ".p-icon-button-menu > button": "Actions",
    ".p-checkbox__input": "Select",
    "select": "Choose",
    ".p-toggle__control": "Switch",
    "button[class$='-status-icon']": "Status",
    ".p-button[href$='/create']": "Create",
    ".p-pager__buttons > :nth-child(1)": "First page",
    ".p-pager__buttons > :nth-child(2)": "Previous page",
    ".p-pager__buttons > :nth-child(4)": "Next page",
    ".p-pager__buttons > :nth-child(5)": "Last page",
  };
  const labelled = control => [...(control.labels || [])].some(label => label.textContent.trim());
  function name() {
    for (const [which, called] of Object.entries(names)) {
      for (const control of document.querySelectorAll(which + ":not([aria-label])")) {
        const row = control.closest("tr")?.querySelector("a");
        if (!labelled(control)) control.ariaLabel = row ? `${called}: ${row.textContent.trim()}` : called;
      }
    }
    const wrong = document.querySelectorAll("button[aria-selected]:not([role]), [role=button][aria-selected]");
    for (const button of wrong) button.ariaSelected = null;
  }
  let due = 0;
  const soon = () => due ||= requestAnimationFrame(() => { due = 0; name(); });
  new MutationObserver(soon).observe(document, {childList: true, subtree: true});
}
</script>"""
PAGE = f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>PopuLoRA</title>
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }}
body {{ max-width: 34rem; margin: 4rem auto; padding: 0 1rem }}
input, button {{ font: inherit; padding: .4rem .6rem }} input {{ width: 22rem; max-width: 100% }}
</style>
<main hidden>
<h1>The key, please</h1>
<p>Open the link that <code>populora ui</code> has printed, or give the key that it names.</p>
<form><label>Key <input name="key" type="password" autocomplete="current-password" required></label>
<button>Open</button></form>
<p role="alert"></p>
</main>
<script>
{OPENS}
const asked = new URLSearchParams(location.search);
async function go(kept) {{
  const form = asked.get("form");
  if (form) {{
    const found = await fetch("/api/deployments/name/" + form, {{headers: {{Authorization: "Basic " + kept}}}});
    const values = encodeURIComponent(encodeURIComponent(asked.get("values")));
    location.replace(`/deployments/deployment/${{(await found.json()).id}}/run?parameters=${{values}}`);
    return;
  }}
  const then = new URL(asked.get("then") || "{FIRST}", location.origin);
  location.replace(then.origin === location.origin ? then : "{FIRST}");
}}
function enter(kept) {{
  if (!kept || !opens(kept)) return false;
  localStorage.setItem("{KEPT}", kept);
  go(kept);
  return true;
}}
const given = decodeURIComponent(location.hash.slice(1));
if (!enter(given ? btoa(given) : localStorage.getItem("{KEPT}"))) {{
  document.querySelector("main").hidden = false;
  const says = document.querySelector("[role=alert]");
  const refused = () => says.textContent = "This is not the key of this server.";
  if (given) refused();
  document.querySelector("form").onsubmit = event => {{
    event.preventDefault();
    if (!enter(btoa(event.target.key.value.trim()))) refused();
  }};
}}
</script>
</html>
"""


def login(address: str, key: str) -> str:
    """The link that opens Prefect's pages at an address, without a question."""
    return f"{address}{DOOR}#{key}"


def run_forms(address: str, directory: Path) -> dict[str, str]:
    """Links to the forms that do something with a run in runs/, with its folder filled in."""
    run = f"runs/{directory.name}"
    values: dict[str, tuple[str, dict[str, object]]] = {
        "resume": ("resume/resume", {"run_dir": run}),
        "fork": ("fork/fork", {"source": run}),
        "export": ("export/export", {"source": run, "member": BEST}),
        "evaluate": ("evaluate/evaluate-nightly", {"run_dirs": [run]}),
    }
    return {
        name: f"{address}{DOOR}?" + urlencode({"form": form, "values": json.dumps(given)})
        for name, (form, given) in values.items()
    }


class Door:
    """An application before that of Prefect: it answers at DOOR, and puts GUARD and NAMES into every other page."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.responses import HTMLResponse

        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"].startswith("/api"):
            await self._app(scope, receive, send)
        elif scope["path"] == DOOR:
            await HTMLResponse(PAGE, headers={"Referrer-Policy": "no-referrer"})(scope, receive, send)
        else:
            await self._app(_as_it_is(scope), receive, _Guarding(send))


def _as_it_is(scope: Scope) -> Scope:
    """The request for an answer that is whole and not packed."""
    dropped = (b"accept-encoding", b"if-none-match", b"if-modified-since")
    page = any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])
    headers = [(name, value) for name, value in scope["headers"] if not (page and name in dropped)]
    return {**scope, "headers": headers}


class _Guarding:
    """Sends an answer on; one in HTML with GUARD and NAMES after its <head>."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_page(message):
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._whole(self._start)

    async def _whole(self, start: Message) -> None:
        body = self._body.replace(b"<head>", f"<head>{GUARD}{NAMES}".encode(), 1)
        headers = [pair for pair in start["headers"] if pair[0] not in (b"content-length", b"etag")]
        headers += [(b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _is_page(start: Message) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/html") for name, value in start["headers"])
