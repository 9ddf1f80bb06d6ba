"""A device and its training window, with a real worker and a real connection."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from moonfed.blobs.store import BlobDirectory
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.fingerprint import DeviceFingerprint
from moonfed.edge_client.agent.inbox import Inbox
from moonfed.edge_client.agent.releases import ReleaseInstaller
from moonfed.edge_client.agent.session import Session
from moonfed.edge_client.agent.transfers import BlobTransfers, WindowClosed
from moonfed.edge_client.agent.worker_process import WorkerProcess
from moonfed.edge_client.state.releases import ReleaseStore
from moonfed.edge_client.training_window import TrainingWindow
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.fleet.messages import read_target
from tests.edge_client.conftest import Bundle, Device
from tests.support.device_coordinator import Coordinator
from tests.support.device_releases import make_release

pytestmark = pytest.mark.slow

LONG = 10_000_000  # epochs that no test waits for


class Over(Exception):
    """Raised to end a test that has seen enough."""


def window(opens: float, closes: float) -> TrainingWindow:
    """A window in seconds from now, finer than the command line allows."""
    present = datetime.now()
    start, end = (present + timedelta(seconds=seconds) for seconds in (opens, closes))
    return TrainingWindow(start.time(), end.time())


class ClosingWindow(TrainingWindow):
    """A window that closes two seconds after its first use for a round, until the next day."""

    closes_at: datetime | None = None

    def __init__(self) -> None:
        hours = window(-60, -30)
        super().__init__(hours.opens, hours.closes)

    def contains(self, moment: datetime) -> bool:
        return self.closes_at is None or moment < self.closes_at

    def seconds_until_close(self, moment: datetime) -> float:
        if self.closes_at is None:
            object.__setattr__(self, "closes_at", moment + timedelta(seconds=2))
        assert self.closes_at
        return max(0.0, (self.closes_at - moment).total_seconds())


@contextmanager
def until(*steps: Callable[[], object]) -> Iterator[None]:
    """End the body, which would run forever, by a signal once the steps are done in another thread."""

    troubles: list[BaseException] = []
    over = threading.Event()

    def stop(*_: object) -> None:
        if not over.is_set():
            over.set()
            raise Over

    def take() -> None:
        try:
            for step in steps:
                step()
        except BaseException as error:
            troubles.append(error)
        while not over.is_set():  # a signal that comes just before a sleep begins does not end it
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            over.wait(0.5)

    before = signal.signal(signal.SIGUSR1, stop)
    thread = threading.Thread(target=take, daemon=True)
    try:
        thread.start()
        with pytest.raises(Over):
            yield
    finally:
        over.set()
        thread.join(5.0)
        signal.signal(signal.SIGUSR1, before)
    assert not troubles, troubles


@pytest.fixture
def settings(device: Device, samples: Path) -> WorkerSettings:
    return WorkerSettings(
        state=str(device.state), device="cam-1", data=str(samples), accelerator="cpu", holdout=0.0, threads=1
    )


def test_a_device_connects_when_its_window_opens_and_disconnects_when_it_closes(
    coordinator: Coordinator, link: FleetConnection, settings: WorkerSettings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    opens = datetime.now() + timedelta(seconds=2)
    hours = window(2, 4)
    began = time.monotonic()
    seen: list[float] = []

    def note() -> None:
        seen.append(time.monotonic() - began)

    with until(
        lambda: coordinator.wait_for(lambda: coordinator.connected, "the device"),
        note,
        lambda: coordinator.wait_for(lambda: not coordinator.connected, "the device to leave"),
        note,
        lambda: time.sleep(0.5),  # in which it could come back
    ):
        Session(settings, link, WorkerProcess(settings), hours).run()
    came, left = seen
    assert 1.5 < came < left
    assert left > 3.5
    assert len(coordinator.connect_requests) == 1
    told = [message for message in caplog.messages if "outside the training window" in message]
    assert len(told) == 2
    assert f"{hours}; connecting on {opens:%Y-%m-%d} at {hours.opens:%H:%M}" in told[0]
    assert f"connecting on {opens + timedelta(days=1):%Y-%m-%d}" in told[1]


def test_a_round_that_its_window_cuts_short_is_submitted_and_counts_its_steps(
    coordinator: Coordinator,
    link: FleetConnection,
    settings: WorkerSettings,
    bundle: Bundle,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    coordinator.assign(bundle.trained(coordinator.blobs, epochs=LONG).assignment())
    with until(
        coordinator.wait_for_update,
        lambda: coordinator.wait_for(lambda: not coordinator.connected, "the device to leave"),
        lambda: coordinator.assign(bundle.assignment(round=2)),
        lambda: time.sleep(0.5),
    ):
        Session(settings, link, WorkerProcess(settings), ClosingWindow()).run()
    (header, _) = coordinator.updates[0]
    assert 1 <= header.steps < 5 * LONG
    assert len(coordinator.updates) == len(coordinator.connect_requests) == 1
    assert not coordinator.declined
    assert caplog.messages[-1].startswith("outside the training window")


def test_an_assignment_that_comes_after_hours_is_declined(
    coordinator: Coordinator, link: FleetConnection, settings: WorkerSettings, bundle: Bundle
) -> None:
    """One round is still being submitted, so the device is still connected."""
    coordinator.assign(bundle.trained(coordinator.blobs, epochs=LONG).assignment())
    hours = ClosingWindow()
    with until(
        lambda: coordinator.wait_for(lambda: coordinator.reports, "training"),
        lambda: setattr(coordinator, "stuck", True),
        lambda: coordinator.wait_for(lambda: coordinator.asked_in_vain, "the upload"),
        lambda: coordinator.assign(bundle.assignment(run="other")),
        lambda: time.sleep(0.5),
        lambda: setattr(coordinator, "stuck", False),
        lambda: coordinator._tell(),
        coordinator.wait_for_decline,
        lambda: coordinator.wait_for(lambda: not coordinator.connected, "the device to leave"),
    ):
        Session(settings, link, WorkerProcess(settings), hours).run()
    (declined,) = coordinator.declined
    assert declined.run == "other"
    assert declined.reason == f"the training window of this device, {hours}, has closed"
    assert [header.run for header, _ in coordinator.updates] == ["tested"]


def test_nothing_is_fetched_after_hours(
    coordinator: Coordinator, link: FleetConnection, bundle: Bundle, tmp_path: Path
) -> None:
    """This covers the files of assignments and of releases."""
    ref, hours = coordinator.blobs.put_bytes(bundle.weights), window(-60, -30)
    with pytest.raises(WindowClosed, match=f"training window of this device, {hours}, has closed"):
        BlobTransfers(link, Inbox(), hours).fetch(ref, BlobDirectory(tmp_path / "blobs"))
    assert not coordinator.fetched


def test_a_release_is_fetched_when_the_window_opens(
    coordinator: Coordinator, link: FleetConnection, settings: WorkerSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """The coordinator sends the target again when the device connects."""
    target = read_target(make_release().put_into(coordinator.blobs).target())
    link.online.set()
    caplog.set_level(logging.INFO)
    installed = []
    for hours in (window(-60, -30), window(-60, 600)):
        worker, inbox = WorkerProcess(settings), Inbox()
        transfers = BlobTransfers(link, inbox, hours)
        installer = ReleaseInstaller(settings, link, worker, inbox, transfers, DeviceFingerprint(settings, {}))
        installer.process(target)
        worker.end()
        installed.append((ReleaseStore(Path(settings.state)).current("digits"), bool(coordinator.fetched)))
    assert installed == [(0, False), (1, True)]
    assert "model digits: fetching it later" in caplog.text


def test_a_signal_ends_a_device_that_waits_for_its_window(
    coordinator: Coordinator, device: Device, samples: Path
) -> None:
    opens = datetime.now() + timedelta(hours=2)
    device.start(samples, "--between", f"{opens:%H:%M}-{opens + timedelta(hours=1):%H:%M}")
    device.wait_for_log(f"connecting on {opens:%Y-%m-%d} at {opens:%H:%M}")
    began = time.monotonic()
    assert device.stop()[0] == 0
    assert time.monotonic() - began < 60, "not the two hours"
    assert not coordinator.connect_requests
