"""Transfers that fail, retried against a connection that the test controls."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, time, timezone
from pathlib import Path
from typing import cast

import pytest

from moonfed.blobs.store import BlobDirectory, BlobRef, ref_of_bytes
from moonfed.edge_client.agent import transfers as module
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.inbox import Inbox
from moonfed.edge_client.agent.transfers import REJECTIONS, BlobTransfers, Superseded, WindowClosed
from moonfed.edge_client.state.round_store import StoredRound
from moonfed.edge_client.training_window import TrainingWindow
from moonfed.errors import Corrupt, MoonfedError, NotFound, ResourceExhausted, Unavailable, Untrusted
from moonfed.fleet.assignment import Assignment
from moonfed.fleet.messages import read_assignment
from moonfed.transport.client import Backoff
from tests.edge_client.conftest import Bundle

CONTENT = b"a global model"
NIGHT = TrainingWindow(time(22, 0), time(6, 0), timezone.utc)


class FakeConnection:
    """A connection whose calls raise the given problems, one each, and then succeed."""

    def __init__(self, *problems: MoonfedError) -> None:
        self.problems, self.calls = list(problems), 0
        self.online = threading.Event()
        self.online.set()
        self.before_call: Callable[[], object] = lambda: None

    def fetch(self, ref: BlobRef, blobs: BlobDirectory, should_continue: Callable[[], bool]) -> Path:
        self._call()
        if not should_continue():
            raise Unavailable("stopped")
        return blobs.path(blobs.put_bytes(CONTENT).sha256)

    def submit(self, assignment: Assignment, stored: StoredRound, should_continue: Callable[[], bool]) -> None:
        self._call()

    def _call(self) -> None:
        self.calls += 1
        self.before_call()
        if self.problems:
            raise self.problems.pop(0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Backoff", lambda: Backoff(first=0.001))


def transfers(connection: FakeConnection, inbox: Inbox, window: TrainingWindow | None = None) -> BlobTransfers:
    return BlobTransfers(cast(FleetConnection, connection), inbox, window)


def fetch(found: BlobTransfers, tmp_path: Path) -> Path:
    return found.fetch(ref_of_bytes(CONTENT), BlobDirectory(tmp_path / "blobs"))


def test_transient_problems_are_retried_and_the_coordinators_own_logged_once(
    inbox: Inbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connection = FakeConnection(
        Unavailable("gone"),
        Untrusted("another authority"),
        MoonfedError("bug"),
        MoonfedError("bug"),
        Unavailable("gone"),
    )
    with caplog.at_level(logging.WARNING):
        assert fetch(transfers(connection, inbox), tmp_path).read_bytes() == CONTENT
    assert connection.calls == 6
    assert [record.getMessage() for record in caplog.records] == [
        "retrying; the coordinator is temporarily unable to serve this device: bug"
    ]


@pytest.mark.parametrize(
    "error", [*(kind("no") for kind in REJECTIONS), ResourceExhausted("this disk is full")], ids=repr
)
def test_a_final_error_of_a_fetch_is_raised_at_once(error: MoonfedError, inbox: Inbox, tmp_path: Path) -> None:
    connection = FakeConnection(error, error)
    with pytest.raises(type(error), match=str(error)):
        fetch(transfers(connection, inbox), tmp_path)
    assert connection.calls == 1


def test_a_corrupt_blob_is_deleted_and_fetched_again_once(inbox: Inbox, tmp_path: Path) -> None:
    partial = BlobDirectory(tmp_path / "blobs").path(ref_of_bytes(CONTENT).sha256)
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"damaged")
    assert fetch(transfers(FakeConnection(Corrupt("another sha256")), inbox), tmp_path).read_bytes() == CONTENT
    with pytest.raises(Corrupt, match="again"):
        fetch(transfers(FakeConnection(Corrupt("another sha256"), Corrupt("again")), inbox), tmp_path)


def test_a_fetch_ends_once_the_round_does_not_need_this_device(inbox: Inbox, tmp_path: Path) -> None:
    found = transfers(FakeConnection(), inbox)
    with pytest.raises(Superseded, match="no longer needed"):
        found.fetch(ref_of_bytes(CONTENT), BlobDirectory(tmp_path), should_continue=lambda: False)


def test_retries_end_with_a_newer_task_of_the_run_or_with_the_device(
    inbox: Inbox, bundle: Bundle, assignment: Assignment, tmp_path: Path
) -> None:
    connection = FakeConnection(Unavailable("gone"))
    connection.before_call = lambda: inbox.put(read_assignment(bundle.assignment(round=2)))
    with pytest.raises(Superseded, match="a newer task of the same run or release has taken its place"):
        fetch(transfers(connection, inbox), tmp_path)
    inbox.next_task(0)
    ending = transfers(FakeConnection(Unavailable("gone")), inbox)
    ending.ending.set()
    with pytest.raises(Superseded, match="this device is shutting down"):
        ending.submit(assignment, cast(StoredRound, None))


def test_retries_wait_until_the_session_is_online(
    inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = FakeConnection(Unavailable("gone"))
    connection.online.clear()
    waits: list[float] = []

    def superseded(seconds: float = 0.0) -> bool:
        waits.append(seconds)
        if waits.count(1.0) == 3:
            connection.online.set()
        return False

    monkeypatch.setattr(inbox, "superseded", superseded)
    fetch(transfers(connection, inbox), tmp_path)
    assert waits.count(1.0) == 3


@pytest.mark.parametrize(("hour", "seconds"), [(21, None), (22, 8 * 3600.0), (5, 3600.0), (6, None)])
def test_files_are_fetched_only_within_the_window_and_updates_submitted_at_any_time(
    hour: int,
    seconds: float | None,
    inbox: Inbox,
    assignment: Assignment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "now", lambda: datetime(2026, 3, 1, hour, tzinfo=timezone.utc))
    connection = FakeConnection()
    found = transfers(connection, inbox, NIGHT)
    if seconds is None:
        with pytest.raises(WindowClosed, match="22:00-06:00, has closed"):
            fetch(found, tmp_path)
        assert connection.calls == 0
    else:
        assert found.seconds_open() == seconds
        assert fetch(found, tmp_path).read_bytes() == CONTENT
    found.submit(assignment, cast(StoredRound, None))


def test_a_rejected_update_is_not_retried(inbox: Inbox, assignment: Assignment) -> None:
    connection = FakeConnection(Corrupt("the line"), ResourceExhausted("their disk is full"), NotFound("no run"))
    with pytest.raises(NotFound, match="no run"):
        transfers(connection, inbox).submit(assignment, cast(StoredRound, None))
    assert connection.calls == 3
