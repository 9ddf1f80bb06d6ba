"""The pages in a real browser, following a federation that runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from moonfed.v1 import control_pb2
from tests.coordinator.console.conftest import HOSTILE, Federation
from tests.support import browser as browsers
from tests.support.browser import Browser
from tests.support.console_process import ConsoleProcess, console_process
from tests.support.digit_fleet import evaluate

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(browsers.missing()), reason=browsers.missing())]
LIVE = "live"


@pytest.fixture(scope="module")
def shown(federation: Federation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, ConsoleProcess]]:
    """A browser that has opened a console's link."""
    with (
        console_process("--identity", str(federation.identity)) as console,
        browsers.browser(tmp_path_factory.mktemp("browser")) as browser,
    ):
        browser.open(console.link)
        browser.shows("pilot", "main")
        assert browser.run("return location.href") == f"{console.address}/"  # the token is in no history
        yield browser, console
        assert browser.problems() == []


def audited(federation: Federation, call: str) -> list[str]:
    request = control_pb2.ListAuditRecordsRequest(call=call)
    found = federation.fleet.operator.control.ListAuditRecords(request, timeout=20)
    return [record.details for record in found if record.outcome == "done" and record.name == "operator"]


def test_the_page_follows_a_run_and_its_actions_work(
    federation: Federation, shown: tuple[Browser, ConsoleProcess], until: Callable[[Callable[[], bool]], None]
) -> None:
    browser, console = shown
    _, declining, slow, _ = federation.devices
    declining.behave = lambda _: HOSTILE
    slow.held.clear()  # its training stands still
    for device in federation.devices:
        device.holdout = {"holdout_accuracy": 0.5, "holdout_loss": 1.5, "holdout_samples": 10.0}
    federation.fleet.start(LIVE, 1000, federation.bundle, quorum=2, minimum_devices=4)
    until(lambda: federation.run(LIVE).HasField("open_round"))
    browser.open(f"{console.address}/runs/{LIVE}")
    browser.shows("running", ".title")
    browser.shows("2 delivered", ".states")
    browser.shows("cam-2", ".short tbody")
    browser.shows("1 training", ".states")
    bars = browser.run("return [...document.querySelectorAll('.bar')].map((bar) => bar.getAttribute('aria-label'))")
    assert {"cam-0: 100 %", "cam-3: 100 %"} <= set(bars)
    assert browser.text(".short").count("declined") >= 1
    browser.open(f"{console.address}/runs/{LIVE}")
    browser.shows(HOSTILE, ".short tbody")  # also on a page that is opened after the device has declined
    slow.held.set()
    browser.shows("Round 2", ".opened")  # by itself: nothing was reloaded
    browser.shows(HOSTILE, ".short tbody")  # the reason for the missing device, as text
    browser.shows("on the devices' holdouts", ".tiles")
    browser.until(lambda: browser.run("return document.querySelectorAll('.u-wrap').length") >= 2)
    evaluate(federation.fleet.operator, LIVE)
    browser.until(lambda: browser.run("return document.querySelectorAll('.u-wrap').length") >= 2)
    browser.shows("Confusion matrix", "main")

    browser.click("Pause")
    browser.shows("Devices finish their current work", "dialog")
    browser.click("Cancel", "dialog button")
    assert audited(federation, "PauseRun")[-1:] != [f"pause run {LIVE!r}"]
    browser.click("Pause", ".actions button")
    browser.click("Pause", "dialog button")
    browser.shows("paused", ".title")
    assert audited(federation, "PauseRun")[-1] == f"pause run {LIVE!r}"
    browser.click("Resume", ".actions button")
    browser.click("Resume", "dialog button")
    browser.shows("running", ".title")
    browser.click("Stop", ".actions button")
    browser.click("Stop", "dialog button")
    browser.shows("stopped", ".title")
    assert audited(federation, "StopRun")[-1] == f"stop run {LIVE!r}"
    declining.behave = lambda _: 0.0
    for device in federation.devices:
        device.holdout = {}


def test_hostile_text_stays_text(federation: Federation, shown: tuple[Browser, ConsoleProcess]) -> None:
    browser, console = shown
    for path in ("/fleet", "/devices/cam-1", "/runs/pilot", "/audit"):
        browser.open(f"{console.address}{path}")
        browser.until(lambda: not browser.text("main").startswith("Loading"))
        if path != "/audit" and path != "/runs/pilot":
            browser.shows(HOSTILE, "main")
    # A name that no device can have, since names become file names, comes from the address bar.
    browser.open(f"{console.address}/devices/%3Cimg%20src%3Dx%20onerror%3Ddocument.title%3D1%3E")
    browser.shows("there is no device", "main")
    browser.shows(HOSTILE, "main")
    assert browser.run("return document.title") != "1"
    assert browser.run("return document.querySelectorAll('main img, main script, main iframe').length") == 0
    # The policy stops markup even where a program would insert it.
    blocked = browser.run(
        "try { document.body.innerHTML = '<p>'; return 'inserted' } catch (error) { return error.name }"
    )
    assert blocked == "TypeError"
    expected = ("404 (Not Found)", "TrustedHTML")
    assert [line for line in browser.problems() if not any(word in line for word in expected)] == []


def test_the_fleet_is_filtered_and_mapped(federation: Federation, shown: tuple[Browser, ConsoleProcess]) -> None:
    browser, console = shown
    browser.open(f"{console.address}/fleet")
    browser.shows("4 of 4 devices", "main")
    browser.run("const field = arguments[0]; field.value = 'site=berlin'; field.dispatchEvent(new Event('input'))",
                browser.all("input[type=search]")[0])  # fmt: skip
    browser.shows("2 of 4 devices", "main")
    browser.click("cam-0")
    browser.shows("cam-0", "h1")
    browser.shows("counted", ".legend")
    browser.open(f"{console.address}/fleet/map?run=pilot")
    browser.shows("declined", ".quiet[role=status]")
    drawn = browser.run(
        "const canvas = document.querySelector('canvas');"
        "const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        "const found = new Set(); for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] === 255) "
        "found.add([pixels[i], pixels[i + 1], pixels[i + 2]].join()); return [...found]"
    )
    assert {"22,137,90", "176,64,140"} <= set(drawn)  # --outcome-counted and --outcome-declined


def test_a_version_is_deployed_and_rolled_back(federation: Federation, shown: tuple[Browser, ConsoleProcess]) -> None:
    browser, console = shown
    browser.open(f"{console.address}/models")
    browser.click("digits")
    browser.shows("Devices by version", "main")
    before = len(audited(federation, "DeployRelease"))
    browser.click("Deploy", "td button")
    browser.shows("Deploy version 2 of digits?", "dialog")
    browser.click("Deploy", "dialog button")
    browser.shows("v2 to 1 of 4 devices (10 %)", "main")
    assert len(audited(federation, "DeployRelease")) == before + 1
    browser.click("Roll back", ".actions button")
    browser.click("Roll back", "dialog button")
    browser.shows("rolled-back", ".deployments")
    browser.click("v2", "td a")
    browser.shows("digits, version 2", ".markdown")
    browser.shows("Confusion matrix", "main")
    browser.run("document.querySelector('.markdown img').scrollIntoView()")
    browser.until(lambda: bool(browser.run("return document.querySelector('.markdown img').naturalWidth > 300")))


def test_a_device_is_revoked_and_the_trail_shows_it(
    federation: Federation, shown: tuple[Browser, ConsoleProcess]
) -> None:
    browser, console = shown
    federation.fleet.device("spare").connect().leave()
    browser.open(f"{console.address}/devices/spare")
    browser.click("Revoke", ".actions button")
    browser.shows("It can return only with a join token for it", "dialog")
    browser.click("Revoke", "dialog button")
    browser.shows("revoked", ".title")
    browser.click("Audit", "nav a span")
    browser.shows("revoke device 'spare'", "main")
    federation.fleet.operator.control.RemoveDevice(control_pb2.RemoveDeviceRequest(device="spare"), timeout=20)


PATHS = [
    "/",
    "/runs/pilot",
    "/fleet",
    "/fleet/map",
    "/devices/cam-0",
    "/models",
    "/models/digits",
    "/models/digits/2",
    "/audit",
]


def test_pages_fit_a_phone_and_are_reached_by_keyboard(shown: tuple[Browser, ConsoleProcess]) -> None:
    browser, console = shown
    browser.resize(390)
    try:
        for path in PATHS:
            check_phone(browser, console, path)
    finally:
        browser.resize(1280)


def check_phone(browser: Browser, console: ConsoleProcess, path: str) -> None:
    browser.open(f"{console.address}{path}")
    browser.until(lambda: len(browser.text("main")) > 20 and not browser.text("main").startswith("Loading"))
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), path
    unnamed = browser.run(
        "return [...document.querySelectorAll('button, a, input, select')]"
        ".filter((one) => !(one.textContent.trim() || one.ariaLabel || one.labels?.length))"
        ".map((one) => one.className)"
    )
    assert unnamed == [], path
    assert browser.run(
        "return [...document.querySelectorAll('.scroller, .map, .matrix')].every((one) => one.tabIndex === 0)"
    ), path


def test_the_theme_is_the_systems_until_it_is_chosen(shown: tuple[Browser, ConsoleProcess]) -> None:
    browser, console = shown
    theme = "return [document.documentElement.dataset.theme, getComputedStyle(document.body).backgroundColor]"
    browser.prefer("dark")
    browser.open(f"{console.address}/")
    assert browser.run(theme) == ["dark", "rgb(14, 19, 26)"]
    browser.shows("operator", "header")
    browser.run("document.querySelector('[aria-label^=\"Switch\"]').click()")
    assert browser.run(theme) == ["light", "rgb(244, 246, 249)"]
    browser.open(f"{console.address}/fleet")
    assert browser.run(theme)[0] == "light"
    browser.run("localStorage.clear()")
    browser.prefer("light")


def test_without_a_session_the_page_says_how_to_log_in(shown: tuple[Browser, ConsoleProcess]) -> None:
    browser, console = shown
    cookies = browser.driver.get_cookies()
    assert [(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies] == [(True, "Strict")]
    assert browser.run("return document.cookie") == ""
    browser.driver.delete_all_cookies()
    browser.open(console.link)  # it was used already
    browser.shows("this link is not valid: it was used already", "main")
    browser.problems()
    for cookie in cookies:
        browser.driver.add_cookie(cookie)
    browser.open(f"{console.address}/")
    browser.shows("pilot", "main")
