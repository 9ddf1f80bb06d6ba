"""A real browser, driven through its own protocol."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # which needs privileges that a container lacks
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
WAIT = 60.0  # seconds after which a test gives up; nothing is asserted about time


def missing() -> str:
    """Return why there is no browser; empty if there is one."""
    absent = [program for program in (CHROMIUM, DRIVER) if not shutil.which(program)]
    return f"{absent[0]} is not installed: apt-get install chromium chromium-driver" if absent else ""


# In one step, since pages redraw themselves.
CLICK = """
const [selector, words] = arguments;
const fits = (one) => one.innerText?.trim() === words && !one.disabled && one.getClientRects().length > 0;
const found = [...document.querySelectorAll(selector)].find(fits);
found?.click();
return Boolean(found);
"""


class Browser:
    """One browser with one page."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        self.driver.get(address)

    def resize(self, width: int, height: int = 900) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, theme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def run(self, script: str, *values: object) -> Any:
        return self.driver.execute_script(script, *values)

    def text(self, selector: str = "body") -> str:
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def shows(self, words: str, selector: str = "body") -> None:
        """Wait until an element contains some text."""
        self.until(lambda: words in self.text(selector), lambda: f"{words!r} is not in {self.text(selector)!r}")

    def lacks(self, words: str, selector: str = "body") -> None:
        self.until(lambda: words not in self.text(selector), lambda: f"{words!r} is in {self.text(selector)!r}")

    def click(self, words: str, selector: str = "button, a") -> None:
        """Click the element with exactly this text, once it is there."""

        found = lambda: bool(self.run(CLICK, selector, words))  # noqa: E731
        self.until(found, lambda: f"there is no {words!r} to click in {self.text()!r}")

    def until(self, condition: Callable[[], bool], told: Callable[[], str] = lambda: "") -> None:
        end = time.monotonic() + WAIT
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(told())
            time.sleep(0.05)

    def problems(self) -> list[str]:
        """Return what the browser has complained about, such as violations of the policy."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
