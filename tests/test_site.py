"""The documentation as a site: every page is in it, and every link leads somewhere."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from conftest import needs, ran

pytestmark = needs("mkdocs", "site")

REPOSITORY = Path(__file__).resolve().parents[1]


class _Page(HTMLParser):
    """The addresses that a page links to, and those that it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.linked: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                (self.linked if tag == "a" else self.loaded).add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)]
    done = ran(command, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_every_page_of_docs_is_in_the_site(site: Path) -> None:
    pages = [page.relative_to(REPOSITORY / "docs") for page in (REPOSITORY / "docs").rglob("*.md")]
    assert not [page for page in pages if not (site / page.with_suffix(".html")).exists()]


def test_the_page_of_every_study_is_in_the_site(site: Path) -> None:
    studies = [page.parent.name for page in (REPOSITORY / "bench" / "results").glob("*/study.md")]
    assert studies and not [name for name in studies if not (site / f"{name}.html").exists()]


def test_links_lead_to_pages_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        found = _Page(page.read_text())
        own = {at for at in found.linked | found.loaded if not urlsplit(at).scheme and urlsplit(at).path}
        places = {at: unquote(urlsplit(at).path) for at in own}
        dead = [
            at
            for at, path in places.items()
            if not ((site if path.startswith("/") else page.parent) / path.lstrip("/")).exists()
        ]
        assert not dead, page.name
        assert not [at for at in found.loaded if urlsplit(at).netloc], page.name


def test_every_decision_is_a_record_that_search_finds_and_a_link_leads_to(site: Path) -> None:
    titles = re.findall(r"^\*\*(.+?)\.\*\*", (REPOSITORY / "docs" / "decisions.md").read_text(), re.MULTILINE)
    shown = [file.read_text().count("<h2 id=") for file in (site / "decisions").glob("*.html")]
    linked = {
        at for at in _Page((site / "decisions.html").read_text()).linked if "decisions/" in at and "#" in at
    }
    assert sum(shown) == len(titles) == len(linked) > 100


def test_a_link_to_code_is_shown_as_its_place(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "index.html").read_text())
    assert "examples/self_play.py" in text
