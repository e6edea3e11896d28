"""Hooks of the site (mkdocs.yml): pages that lie beside docs/ join it, and links find them.

A link to a file that is no page, such as a module, becomes its path as text: the site shows no code. The decisions
become a page per room, a heading per record, so that search finds one and a link leads to it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from markdown.extensions.toc import slugify
from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parents[1]
BESIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "base_model/README.md": "base-tiny.md",
    "base_model/frontier.md": "base-frontier.md",
    "populora_plugins/cluster/README.md": "cluster.md",
    "populora_plugins/harvest/README.md": "harvest.md",
    "populora_plugins/serving/README.md": "serving.md",
    "populora_plugins/public_benchmarks/README.md": "graders.md",
    "populora_plugins/trackers/README.md": "trackers.md",
    "bench/results/README.md": "results.md",
    "bench/results/study-1/study.md": "study-1.md",
    "bench/results/study-2/study.md": "study-2.md",
    "bench/results/study-3/study.md": "study-3.md",
    "bench/results/study-real/study.md": "study-real.md",
    "bench/results/calibration.svg": "images/calibration.svg",
}
"""File of the repository -> its name in the site."""
PLACES = {name: place for place, name in BESIDE.items()}
DECISIONS = "docs/decisions.md"
ROOM = re.compile(r"^## (.+)$", re.MULTILINE)
RECORD = re.compile(r"^\*\*(.+?)\.\*\* *", re.MULTILINE)
SOURCE = re.compile(r'\b(src|srcset)="([^":]+)"')
LINK = re.compile(r"(!?)\[([^]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from beside docs/, and those of decisions."""
    for place, name in BESIDE.items():
        files.append(File.generated(config, name, abs_src_path=str(REPOSITORY / place)))
    for room, text in rooms().items():
        name = f"decisions/{_file(room)}"
        PLACES[name] = DECISIONS
        titled = RECORD.sub(r"## \1\n\n", text)
        files.append(File.generated(config, name, content=f"# Decisions: {room}\n{titled}"))
    return files


def rooms() -> dict[str, str]:
    """Room, or rooms, of each part of the decisions -> its records."""
    _, *parts = ROOM.split((REPOSITORY / DECISIONS).read_text(encoding="utf-8"))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _file(room: str) -> str:
    return f"{room.replace(', ', '-')}.md"


def _contents(markdown: str) -> str:
    """The page of all decisions as a list of records under their rooms."""
    listed = [
        f"## {room}\n\n"
        + "\n".join(f"- [{title}](decisions/{_file(room)}#{slugify(title, '-')})" for title in titles)
        for room, titles in ((room, RECORD.findall(text)) for room, text in rooms().items())
    ]
    return "\n\n".join([ROOM.split(markdown)[0].strip(), *listed])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between pages."""
    name = page.file.src_uri
    place = PLACES.get(name, f"docs/{name}")
    if place == DECISIONS == f"docs/{name}":
        markdown = _contents(markdown)

    def shown(found: re.Match[str]) -> str:
        reached = posixpath.normpath(posixpath.join(posixpath.dirname(place), found[2]))
        inside = BESIDE.get(reached, reached.removeprefix("docs/"))
        return f'{found[1]}="{posixpath.relpath(inside, posixpath.dirname(name) or ".")}"'

    def linked(found: re.Match[str]) -> str:
        picture, text, target, anchor = found.groups()
        if ":" in target or target.startswith("decisions/"):
            return found[0]
        reached = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        inside = BESIDE.get(reached, reached.removeprefix("docs/"))
        if reached in BESIDE or reached.startswith("docs/"):
            return f"{picture}[{text}]({posixpath.relpath(inside, posixpath.dirname(name) or '.')}{anchor or ''})"
        return text if text.startswith("`") else f"{text} (`{reached}`)"

    return SOURCE.sub(shown, LINK.sub(linked, markdown))
