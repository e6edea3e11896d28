"""A headless Chromium for the tests that look at pages, and where their screenshots are kept."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE

webdriver, exceptions = (
    pytest.importorskip(f"selenium.{part}", reason="selenium is not installed: pip install -e '.[dev]'")
    for part in ("webdriver", "common.exceptions")
)
REDRAWN = (exceptions.StaleElementReferenceException, exceptions.ElementClickInterceptedException)
"""What is raised where a page draws itself again while it is looked at."""

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
DESK, PHONE = 1280, 390
SERIOUS = ("serious", "critical")  # impacts of what axe finds
SCREENSHOTS = "POPULORA_SCREENSHOTS"
BOX = """
const box = document.querySelector(arguments[0]).getBoundingClientRect();
return [box.x + scrollX, box.y + scrollY, box.width, box.height];
"""

MARKS = [
    pytest.mark.browser,
    pytest.mark.loop,
    pytest.mark.skipif(
        not (BROWSER and DRIVER),
        reason="no Chromium with its driver: apt-get install chromium chromium-driver",
    ),
]


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser that ends with the block."""
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    options.add_argument("--headless=new")
    options.add_argument("--hide-scrollbars")
    options.add_argument("--disable-dev-shm-usage")
    options.add_argument("--disable-gpu")  # drawing by a GPU that is not there takes half a core
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium's own sandbox refuses root
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def screenshots() -> Path:
    """The folder that POPULORA_SCREENSHOTS names, else screenshots/ of the project."""
    folder = Path(os.environ.get(SCREENSHOTS) or Path(__file__).resolve().parent.parent / "screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def set_width(browser: Any, width: int, height: int = 900) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )


@contextmanager
def coloured(browser: Any, scheme: str) -> Iterator[None]:
    """The browser while it asks for light or dark pages."""
    wanted = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})
    yield
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def overhang(browser: Any) -> int:
    """By how many pixels the page is wider than the window."""
    wide: int = browser.execute_script(
        "return document.scrollingElement.scrollWidth - document.documentElement.clientWidth"
    )
    return wide


def accessibility_faults(browser: Any, impacts: Sequence[str] | None = None) -> list[Any]:
    """What axe-core finds on the open page, or what of it has these impacts: (rule, the first element)."""
    axe = files(pytest.importorskip("axe_core_python", reason="pip install -e '.[dev]'")) / "axe.min.js"
    browser.set_script_timeout(PATIENCE)
    browser.execute_script(axe.read_text("utf-8"))
    found: list[Any] = browser.execute_async_script(
        "const [impacts, done] = arguments; axe.run().then(r => done(r.violations"
        ".filter(v => !impacts || impacts.includes(v.impact)).map(v => [v.id, v.nodes[0].html])))",
        impacts,
    )
    return found


def keep(browser: Any, path: Path, width: int, selector: str = "") -> None:
    """The whole page as a picture, or what a selector names; of the kind that the path's ending says."""
    x, y, wide, height = (
        browser.execute_script(BOX, selector)
        if selector
        else (0, 0, width, browser.execute_script("return document.documentElement.scrollHeight"))
    )
    # Only where it must: it resizes the page, and a list of Prefect's may then draw itself for ever.
    beyond = browser.execute_script("return arguments[0] > innerHeight || scrollY > 0", y + height)
    clip = {"x": x, "y": y, "width": wide, "height": height, "scale": 1}
    kind = {"format": path.suffix[1:]} | ({"quality": 70} if path.suffix == ".webp" else {})
    shot = browser.execute_cdp_cmd(
        "Page.captureScreenshot", kind | {"clip": clip, "captureBeyondViewport": beyond}
    )
    path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def notebook_of(run: Path) -> Iterator[str]:
    """The address of the notebook over a run, served while the block lasts."""
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-m", "marimo", "run", "--headless", "--no-token"]
    command += [str(root / "notebooks" / "explore.py"), "--", str(run)]
    environment = os.environ | {"PYTHONPATH": str(root), "NO_COLOR": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as served:
        assert served.stdout is not None
        try:
            yield next(line.split("URL: ")[1].strip() for line in served.stdout if "URL: " in line)
        finally:
            served.terminate()
