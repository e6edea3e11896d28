"""A headless Chromium for the tests that look at pages, and where their screenshots are kept."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

webdriver, exceptions = (
    pytest.importorskip(f"selenium.{part}", reason="selenium is not installed: pip install -e '.[dev]'")
    for part in ("webdriver", "common.exceptions")
)
REDRAWN = (exceptions.StaleElementReferenceException, exceptions.ElementClickInterceptedException)
"""What is raised where a page draws itself again while it is looked at."""

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
DESK, PHONE = 1280, 390
SCREENSHOTS = "POPULORA_SCREENSHOTS"

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


def keep(browser: Any, path: Path, width: int) -> None:
    """The whole page as a picture."""
    height = browser.execute_script("return document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    path.write_bytes(base64.b64decode(shot["data"]))
