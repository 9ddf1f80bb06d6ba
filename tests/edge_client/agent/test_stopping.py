"""Cancelled work is dropped at once, and heartbeats keep a device from being considered stuck."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from moonfed.blobs.store import BlobDirectory
from moonfed.edge_client.agent import heartbeat as watch_module
from moonfed.edge_client.agent import stream_timeout
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.heartbeat import ProgressReporter
from moonfed.edge_client.agent.inbox import Inbox
from moonfed.edge_client.agent.transfers import BlobTransfers, Superseded
from moonfed.edge_client.job import Job
from moonfed.edge_client.settings import DeviceSettings
from moonfed.edge_client.worker import heartbeat as heartbeat_module
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.errors import InvalidInput, TooLate
from moonfed.fleet.messages import read_assignment
from moonfed.sandbox.ipc import ParentPipe
from tests.edge_client.conftest import SANDBOX, Bundle, Device
from tests.support.device_coordinator import Coordinator
from tests.support.in_process_training import InProcessTraining

pytestmark = pytest.mark.slow

LONG = 100_000  # epochs


def test_a_device_logs_when_it_may_be_needed_again(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    coordinator.stop_reason, coordinator.retry_after_seconds = "the round has closed", 41.7
    coordinator.assign(bundle.trained(coordinator.blobs, epochs=LONG).assignment())
    device.start(samples)
    device.wait_for_log("again in about 42 s")
    device.wait_for_log("dropped: training was stopped")
    coordinator.stop_reason = ""
    coordinator.submit_problems = [TooLate("round 1 is not open", 12.0)]
    coordinator.assign(bundle.assignment(round=2))
    device.wait_for_log("again in about 12 s")
    coordinator.assign(bundle.assignment(round=3))
    header, _ = coordinator.wait_for_update()
    assert header.round == 3, "it stays connected"
    assert not coordinator.declined


def test_files_are_not_fetched_any_longer_for_a_round_that_has_closed(
    coordinator: Coordinator, link: FleetConnection, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "FETCH_REPORT_SECONDS", 0.1)
    monkeypatch.setattr(stream_timeout, "SETTLE_SECONDS", 0.1)
    link.online.set()
    inbox, assignment = Inbox(), read_assignment(bundle.assignment())
    inbox.put(assignment)
    inbox.next_task(1.0)
    watch = ProgressReporter(assignment, link, inbox)
    coordinator.stuck, coordinator.stop_reason = True, "the round has closed"
    with pytest.raises(Superseded, match="no longer needed"):
        BlobTransfers(link, inbox).fetch(
            assignment.blobs["model"], BlobDirectory(tmp_path), should_continue=watch.should_fetch
        )
    assert [report.fraction for report in coordinator.reports] == [0.0], "it is asked until it says stop"


class Listener(ParentPipe):
    """A fake parent process that records its messages."""

    def __init__(self) -> None:
        self.stop_requested = threading.Event()
        self.fractions: list[float] = []

    def send(self, kind: str, **fields: Any) -> None:
        self.fractions += [fields["fraction"]] if kind == "progress" else []


def test_every_bit_of_work_is_progress_whether_it_is_a_step_or_not(
    new_job: Callable[..., Job], samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a larger fraction counts as a heartbeat: 40 samples, 20 of them held out."""
    monkeypatch.setattr(heartbeat_module, "HEARTBEAT_SECONDS", 0.0)
    settings = WorkerSettings(
        state=str(tmp_path / "state"), device="cam-1", data=str(samples), accelerator="cpu", holdout=0.5, threads=1
    )
    listener = Listener()
    InProcessTraining(settings, listener).train(new_job(batch_size=2, epochs=3))
    # ten batches of the holdout, 3 epochs of ten steps, each of which ends with one sign more, of its loss
    assert len(set(listener.fractions)) >= 10 + 30
    assert listener.fractions == sorted(listener.fractions)
    assert all(earlier < later for earlier, later in pairwise(listener.fractions[:11]))
    assert listener.fractions[-1] <= 1


def test_labels_go_to_the_coordinator(coordinator: Coordinator, device: Device, samples: Path) -> None:
    device.start(samples, "--label", "site=berlin", "--label", "camera=hd")
    coordinator.wait_for(lambda: coordinator.connect_requests, "the device")
    assert dict(coordinator.connect_requests[0].labels) == {"site": "berlin", "camera": "hd", "sandbox": SANDBOX}


@pytest.mark.parametrize("label", ["berlin", "site=berlin,site=hamburg", "=berlin", "site="])
def test_invalid_labels_are_rejected_before_anything_starts(label: str) -> None:
    from moonfed.labels import parse_labels

    with pytest.raises(InvalidInput, match="label is"):
        parse_labels(label.split(","))
    with pytest.raises(InvalidInput, match="label is"):
        DeviceSettings(
            state="s", data="d", accelerator="cpu", threads=None, holdout=0, insecure=False, coordinator="", name="",
            labels={"site": "two\nlines"},
        )  # fmt: skip
