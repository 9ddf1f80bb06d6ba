"""Pictures of the console for the docs: `python -m tools.draw_console`, or `make screenshots`.

A federation runs for them: a coordinator, twenty devices that fit a linear classifier to scanned digits, an evaluator.
Needs chromium and chromedriver.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from moonfed.signing.key_files import KEYS_VARIABLE
from moonfed.transport.client import open_channel
from tests.support import browser as browsers
from tests.support.browser import Browser
from tests.support.console_process import console_process
from tests.support.coordinator import (
    Device,
    OperatorCalls,
    coordinator_in_process,
    enrol,
    operator,
    settings,
    start_run,
)
from tests.support.digit_fleet import DigitDevice, digit_devices, digits_bundle, digits_release, evaluate
from tests.support.release_fleet import create, deploy
from tests.support.session_cache import CACHE
from tests.support.signatures import write_keys

PICTURES = Path(__file__).parents[1] / "docs/pictures"
DEVICES, PILOT, ROUNDS = 20, 25, 48
RUN, BATTERY = "digits-2026", "the battery is at 12 %; training needs 20 %"
PAGES = {
    "run": f"/runs/{RUN}",
    "fleet": f"/fleet/map?run={RUN}",
    "device": "/devices/cam-07",
    "model": "/models/digits/2",
}
HEIGHTS = {1280: 1500, 390: 2000}  # of a picture at most
MOST_BYTES = 300_000


def main() -> None:
    """Run a federation, and photograph its pages."""
    if reason := browsers.missing():
        sys.exit(reason)
    with tempfile.TemporaryDirectory(prefix="moonfed-console-") as temporary:
        directory = Path(temporary)
        write_keys(directory / "keys")
        os.environ |= {KEYS_VARIABLE: str(directory / "keys"), CACHE: temporary}
        with (
            _federation(directory) as fleet,
            console_process("--identity", str(directory / "state" / "operator")) as console,
            browsers.browser(directory / "browser") as browser,
        ):
            browser.open(console.link)
            browser.shows(RUN, "main")
            for name, path in PAGES.items():
                browser.open(f"{console.address}{path}")
                browser.until(lambda: not browser.text("main").startswith("Loading"))
                if name == "run":
                    _hold(fleet)
                    browser.shows(BATTERY, ".short")  # the page has seen the round open
                for width, height in HEIGHTS.items():
                    _photograph(browser, width, height, f"console-{name}-{width}.png")


def _photograph(browser: Browser, width: int, height: int, name: str) -> None:
    browser.resize(width)
    time.sleep(2.5)  # until the first events have arrived
    browser.run("scrollTo(0, 0)")
    tall = min(height, browser.run("return document.documentElement.scrollHeight"))
    browser.resize(width, tall)
    time.sleep(0.5)
    target = PICTURES / name
    browser.driver.save_screenshot(str(target))
    print(f"{target}: {target.stat().st_size // 1000} kB", flush=True)
    if target.stat().st_size > MOST_BYTES:
        sys.exit(f"{target} is larger than {MOST_BYTES // 1000} kB")


@contextmanager
def _federation(directory: Path) -> Iterator[list[DigitDevice]]:
    with ExitStack() as stack:
        ports = stack.enter_context(coordinator_in_process(directory / "state"))
        calls = operator(directory / "state", ports.fleet)
        token = calls.token(uses=DEVICES)
        devices = []
        for number in range(DEVICES):
            identity = enrol(directory / f"cam-{number:02}", token, f"cam-{number:02}")
            channel = stack.enter_context(open_channel(identity.address, identity))
            devices.append(Device(f"cam-{number:02}", channel))
        fleet = digit_devices(devices, _labels)
        _characterise(fleet)
        for device in fleet:
            device.start()
            stack.callback(device.stop)
        _run(calls)
        yield fleet


def _labels(number: int) -> dict[str, str]:
    return {"site": ("berlin", "lyon", "oslo")[number % 3], "board": ("orin-nano", "rpi-5")[number % 2]}


def _characterise(fleet: list[DigitDevice]) -> None:
    """Give some devices the troubles of a real fleet."""
    for number, device in enumerate(fleet):
        device.behave = lambda round_, number=number: 0.05 + 0.02 * ((round_ * 7 + number * 3) % 11)  # type: ignore[misc]
    fleet[3].behave = lambda round_: BATTERY if round_ % 4 == 0 else 0.2
    fleet[5].behave = lambda round_: "" if round_ % 9 == 2 else 0.15
    fleet[7].behave = lambda round_: 3.0 if round_ % 5 == 1 else 0.25
    fleet[12].behave = lambda round_: 2.5 if round_ % 7 == 3 else 0.2
    fleet[11].ineligible = "the data have 8 classes; the bundle needs 10"


def _run(calls: OperatorCalls) -> None:
    """Run a pilot, release it, and start another run."""
    bundle = digits_bundle()
    chosen: dict[str, Any] = {"deadline": 60.0, "minimum_devices": 12, "over_selection": "15%", "cohort": "80%"}
    start_run(calls.control, "digits-pilot", bundle, settings(PILOT, **chosen))
    while calls.run("digits-pilot").round < PILOT:
        time.sleep(0.2)
    evaluate(calls, "digits-pilot")
    for version, round_ in ((1, PILOT // 2), (2, PILOT)):
        create(calls, digits_release(calls, "digits-pilot", bundle, version, round_))
    deploy(calls, 1)
    deploy(calls, 2, 30.0)
    start_run(calls.control, RUN, bundle, settings(400, **chosen))
    while calls.run(RUN).round < ROUNDS:
        time.sleep(0.2)
        evaluate(calls, RUN)


def _hold(fleet: list[DigitDevice]) -> None:
    """Have the next round last as long as the pictures take."""
    for number, device in enumerate(fleet):
        device.behave = lambda _, number=number: 30.0 + 12 * number  # type: ignore[misc]
        if number % 3 == 0:
            device.behave = lambda _: 0.1
    fleet[3].behave = lambda _: BATTERY


if __name__ == "__main__":
    main()
