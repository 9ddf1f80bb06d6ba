"""The console with 1,000 devices and 1,000 rounds: time to the first rows, frames while events arrive, and its memory.

The Control service is a synthetic one, since only the console and the browser are measured.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.load.synthetic_control import RUN
from benchmarks.report import Figure, Tables, progress

PAGES = {
    "runs": "/",
    "run": f"/runs/{RUN}",
    "fleet": "/fleet",
    "map": f"/fleet/map?run={RUN}",
    "device": "/devices/device-0001",
    "model": "/models/digits",
    "audit": "/audit",
}
FRAMES = 5.0  # seconds of frames that are timed
IDLE = Figure(name="the console before any page is shown", unit="MB", at_most=80)
AFTER = Figure(name="the console after every page, five times", unit="MB", at_most=80)
MEDIAN = Figure(name="a frame while 1,000 events a second arrive, median", unit="ms", at_most=34)
SLOW = Figure(name="a frame while 1,000 events a second arrive, 99th percentile", unit="ms", at_most=100)
# Resolves once the page has rows or a drawn map, to the milliseconds since the navigation began.
SHOWN = """
const [done] = arguments;
const look = () => {
  const rows = document.querySelectorAll('.scroller tbody tr[aria-rowindex]').length;
  const shown = !document.querySelector('main').innerText.startsWith('Loading');
  if (shown && (rows || document.querySelector('.map canvas')?.width > 300)) done(performance.now());
  else requestAnimationFrame(look);
};
look();
"""
PAINTED = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
TIMED = """
const [seconds, done] = arguments;
const found = [];
let last = performance.now();
const end = last + 1000 * seconds;
const frame = (now) => {
  found.push(now - last);
  last = now;
  if (now < end) requestAnimationFrame(frame);
  else done(found);
};
requestAnimationFrame(frame);
"""


def measure_console() -> Tables:
    """Measure a console in chromium; nothing where there is no browser."""
    from tests.support import browser as browsers
    from tests.support.console_process import console_process

    if reason := browsers.missing():
        progress(f"console: skipped, {reason}")
        yield [replace(figure, reason=reason) for figure in (IDLE, AFTER, MEDIAN, SLOW)]
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        synthetic_control() as address,
        console_process("--insecure", "--coordinator", address) as console,
        browsers.browser(Path(directory)) as browser,
    ):
        progress("console: memory, pages with 1,000 devices and 1,000 rounds")
        idle = replace(IDLE, value=console.memory())
        browser.open(console.link)
        browser.shows(RUN, "main")
        figures = []
        for name, path in PAGES.items():
            times, paints = [], []
            for _ in range(5):
                browser.open(f"{console.address}{path}")
                times.append(float(browser.driver.execute_async_script(SHOWN)))
                paints.append(float(browser.run(PAINTED)))
            for what, found, most in (("paint", paints, 1000), ("rows", times, 2000)):
                value = statistics.median(found)
                figures.append(Figure(name=f"{name}: first {what}", unit="ms", value=value, at_most=most))
        yield figures
        progress("console: frames while events arrive")
        browser.open(f"{console.address}/runs/{RUN}")
        browser.driver.execute_async_script(SHOWN)
        time.sleep(2)
        frames = sorted(browser.driver.execute_async_script(TIMED, FRAMES))
        after = [
            replace(MEDIAN, value=statistics.median(frames)),
            replace(SLOW, value=frames[int(0.99 * (len(frames) - 1))]),
        ]
        browser.open("about:blank")
        time.sleep(3)
        yield [*after, idle, replace(AFTER, value=console.memory())]


@contextmanager
def synthetic_control() -> Iterator[str]:
    """Yield the address of a Control service of a large fleet."""
    command = [sys.executable, "-m", "benchmarks.load.synthetic_control"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield f"127.0.0.1:{process.stdout.readline().strip() if process.stdout else 0}"
        finally:
            process.kill()
