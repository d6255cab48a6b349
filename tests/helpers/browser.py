"""A headless Chromium for tests of pages."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@contextmanager
def open_chromium(profile: Path, width: int = 1280, dark: bool = False) -> Iterator[Any]:
    """Start a browser with an empty profile, and end it.

    Args:
        profile: Empty folder for the profile.
        width: Width of the window in pixels.
        dark: Whether the system prefers dark colours.
    """
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (extra browser)")
    executable, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if executable is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = executable
    for flag in (*_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # Selenium must not look for a driver on the network, nor pass local addresses to a proxy.
    environment = {**os.environ, "SE_OFFLINE": "true", "no_proxy": "localhost,127.0.0.1"}
    service = webdriver.ChromeService(executable_path=driver, env=environment)
    browser = webdriver.Chrome(options=options, service=service)
    try:
        media = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        yield browser
    finally:
        browser.quit()
