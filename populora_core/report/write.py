"""Writing a report, and keeping a run's own up to date while it goes on."""

from __future__ import annotations

import hmac
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from populora_core.support.durable import write_atomically
from populora_core.support.errors import ConfigError
from populora_core.support.registry import Registry

if TYPE_CHECKING:
    from populora_core.report.figures import Figures

REPORT = "report.html"
SERVED, SERVED_KEY = "POPULORA_REPORTS", "POPULORA_REPORTS_KEY"
"""The address under which reports are served, where somebody serves them (`populora ui`), and the key of its links."""

PAGES = Registry({}, group="populora.pages", what="page", setting="populora.pages", error=ConfigError)
"""Name -> a function that renders the figures of a run, or of several to compare, as HTML; ours is `report`."""


class ReportWarning(UserWarning):
    """A run's report could not be brought up to date; the run itself goes on."""


def write_report(directories: Sequence[Path], output: Path) -> Path:
    """Write the report of one run, or the comparison of several, as one HTML file.

    Raises:
        RunDirectoryError: one of them is not a run directory.
        ArtifactError: a catalogue cannot be built, or the file cannot be written; an older one stays.
    """
    from populora_core.report.figures import read_figures

    single = len(directories) == 1
    write_atomically(output, _render([read_figures(directory, samples=single) for directory in directories]))
    return output


def refresh(directory: Path) -> Figures | None:
    """Bring RUN/report.html up to date. Whatever goes wrong is a `ReportWarning`: a report never ends a run.

    Returns:
        The figures that it shows, for whoever follows the run too; None where they could not be read.
    """
    figures = None
    try:
        from populora_core.report.figures import read_figures

        figures = read_figures(directory)
        write_atomically(directory / REPORT, _render([figures]))
    except Exception as error:
        warnings.warn(
            f"{directory / REPORT} was not brought up to date: {type(error).__name__}: {error}",
            ReportWarning,
            stacklevel=2,
        )
    return figures


def _render(runs: Sequence[Figures]) -> str:
    page: str = PAGES.find("report")(runs)
    return page


def outdated(directory: Path) -> bool:
    """True if RUN/report.html does not show all that was committed."""
    from populora_core.store.catalogue import CATALOGUE, stale

    report = directory / REPORT
    return (
        stale(directory)
        or not report.is_file()
        or report.stat().st_mtime_ns < (directory / CATALOGUE).stat().st_mtime_ns
    )


def report_address(directory: Path) -> str:
    """The address of a run's report for a browser."""
    served, key = os.environ.get(SERVED), os.environ.get(SERVED_KEY, "")
    path = directory / REPORT
    return f"{served}/{token_of(key, directory)}{quote(str(path))}" if served else path.as_uri()


def token_of(key: str, directory: Path) -> str:
    """The token in a link to the report of this run directory; its server gives no other file away."""
    return hmac.new(key.encode(), f"report of {directory}".encode(), "sha256").hexdigest()
