"""The cost of metrics: rounds of two coordinators, one with metrics that are scraped and one without, alternating."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.coordinator import upload
from benchmarks.load.coordinator_process import CoordinatorProcess, SyntheticModel, connected, served
from benchmarks.load.synthetic_devices import FleetSpec
from benchmarks.report import Figure, Tables, progress
from moonfed.bundle.files import Bundle

DISTINCT_UPDATES = 10  # the devices send them in turn
LIMIT = 1.02
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsScale:
    """Size of the benchmark."""

    model: SyntheticModel = SyntheticModel(megabytes=4.0)  # noqa: RUF009 - frozen
    devices: int = 20
    rounds: int = 10  # of each turn's run
    turns: int = 15
    scrape_seconds: float = 15.0  # of the time in which the coordinator has rounds


@dataclass(frozen=True, slots=True)
class Turn:
    """Seconds of one run's rounds."""

    wall: float
    processor: float  # of the coordinator's process


class Scraper:
    """Scrapes a coordinator while it has rounds; the time between two scrapes passes only then."""

    def __init__(self, port: int, every: float) -> None:
        self._url, self._every, self._left = f"http://127.0.0.1:{port}/metrics", every, every
        self.scrapes = 0

    @contextmanager
    def scraping(self) -> Iterator[None]:
        """Scrape when it is due, until the context ends."""
        stopped = threading.Event()
        thread = threading.Thread(target=self._run, args=(stopped,))
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def _run(self, stopped: threading.Event) -> None:
        began = time.monotonic()
        while not stopped.wait(self._left):
            self.scrape()
            began, self._left = time.monotonic(), self._every
        self._left = max(0.0, self._left - (time.monotonic() - began))

    def scrape(self) -> str:
        """Scrape now."""
        self.scrapes += 1
        with urllib.request.urlopen(self._url, timeout=60) as reply:  # noqa: S310 - our own address
            return str(reply.read().decode())


def measure_metrics(scale: MetricsScale = MetricsScale()) -> Tables:
    what = f"{scale.devices} devices, {scale.model.megabytes:g} MB"
    progress(f"metrics: {what}, {scale.turns} runs of {scale.rounds} rounds with and without, alternating")
    directory = Path(tempfile.mkdtemp(prefix="moonfed-bench-"))
    try:
        with ExitStack() as stack:
            without, _ = stack.enter_context(_coordinator(scale, directory / "without"))
            measured, first_line = stack.enter_context(_coordinator(scale, directory / "with", "--metrics-port", "0"))
            scraper = Scraper(json.loads(first_line)["metrics_port"], scale.scrape_seconds)
            yield _compared(scale, without, measured, scraper)
            yield [_scrape_seconds(scraper)]
    finally:
        shutil.rmtree(directory)


Rounds = Callable[[str], Turn]


def _compared(scale: MetricsScale, without: Rounds, measured: Rounds, scraper: Scraper) -> list[Figure]:
    pairs = []
    for turn in range(scale.turns + 1):
        with scraper.scraping():
            ours = measured(f"run-{turn}")
        pairs.append((ours, without(f"run-{turn}")))
    pairs = pairs[1:]  # the first one only warms both up
    figures = []
    for name in ("processor", "wall"):
        ours_, theirs = (statistics.median(getattr(side, name) for side in sides) for sides in zip(*pairs, strict=True))
        what = f"{scale.rounds} rounds, {scale.devices} devices, {scale.model.megabytes:g} MB"
        seconds = f"{name} time of a run of {what}"
        figures += [
            Figure(name=f"{seconds}, without metrics", value=theirs, unit="s"),
            Figure(name=f"{seconds}, with metrics", value=ours_, unit="s"),
            Figure(name=f"{name} time, with / without metrics", value=ours_ / theirs, unit="times", at_most=LIMIT),
        ]
    return figures


def _scrape_seconds(scraper: Scraper) -> Figure:
    durations = []
    for _ in range(11):
        began = time.perf_counter()
        scraper.scrape()
        durations.append(time.perf_counter() - began)
    return Figure(name="a scrape", value=1000 * statistics.median(durations), unit="ms")


@contextmanager
def _coordinator(scale: MetricsScale, directory: Path, *options: str) -> Iterator[tuple[Rounds, str]]:
    """Start a coordinator with its devices; yield what times a run's rounds on it, and the line that it printed."""
    directory.mkdir()
    updates = scale.model.updates(directory / "updates", min(scale.devices, DISTINCT_UPDATES))
    names = tuple(f"device-{number:04}" for number in range(scale.devices))
    with served(directory / "state", directory / "logs", *options) as coordinator:
        bundle = upload(coordinator, scale.model, directory)
        token = coordinator.token(scale.devices)
        spec = FleetSpec(names=names, directory=str(directory / "devices"), updates=updates, token=token)
        with connected(spec, coordinator.address):
            yield lambda name: _turn(scale, coordinator, bundle, name), coordinator.ready


def _turn(scale: MetricsScale, coordinator: CoordinatorProcess, bundle: Bundle, name: str) -> Turn:
    before = _processor_seconds(coordinator.process.pid)
    rounds = coordinator.round_seconds(bundle, name, scale.devices, scale.rounds)
    return Turn(sum(rounds), _processor_seconds(coordinator.process.pid) - before)


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS  # in user mode and in the kernel
