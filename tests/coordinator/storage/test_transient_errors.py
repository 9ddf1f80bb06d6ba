"""Closed rounds whose reduction fails for a transient reason wait, give the reason, and lose nothing."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sql

from moonfed.blobs import BlobDirectory
from moonfed.coordinator.records import AttemptId, RoundRecord
from moonfed.coordinator.rounds import synchronous
from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.coordinator.storage.device_reports import DeviceReports
from moonfed.coordinator.storage.spool import Spool
from moonfed.coordinator.storage.store import Store
from moonfed.errors import Unavailable
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.support.coordinator import ask, model_bytes, model_values

Until = Callable[[Callable[[], bool]], None]
FULL = OSError(errno.ENOSPC, "no space left on device")
AWAY = Unavailable("the object store s3://models cannot be used: it does not answer")
BROKEN = sql.exc.OperationalError("COMMIT", (), Exception("server closed the connection"), connection_invalidated=True)


class Trouble:
    """A method that fails, before its work or after it, while the trouble lasts."""

    def __init__(self, patch: pytest.MonkeyPatch, place: type[object], name: str, error: Exception) -> None:
        self.lasts, method = threading.Event(), getattr(place, name)

        def troubled(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if not self.lasts.is_set():
                return method(*args, **kwargs)
            if error is BROKEN:
                method(*args, **kwargs)
            raise error

        patch.setattr(place, name, troubled)
        patch.setattr(synchronous, "LONGEST_RETRY_SECONDS", 0.05)


def deliver(fleet: Fleet, trouble: Trouble) -> None:
    """Two devices' updates of 1.0 and 4.0; the failure starts at the round's end."""
    devices = [fleet.device(name) for name in ("cam-1", "cam-2")]
    sessions = [device.connect() for device in devices]
    fleet.start("run", minimum_devices=2)
    devices[0].submit(sessions[0].assignment(), model_bytes(1.0), samples=20)
    work = sessions[1].assignment()
    trouble.lasts.set()
    devices[1].submit(work, model_bytes(4.0), samples=10)


def waits(fleet: Fleet, until: Until, reason: str) -> None:
    told = f"the reduction of round 1 failed; retrying within a minute: {reason}"
    until(lambda: fleet.operator.run("run").waiting == told)


def expect_both(fleet: Fleet) -> None:
    ended = list(fleet.operator.watch("run"))[-1].run
    (only,) = fleet.operator.rounds("run")
    assert (only.status, only.attempt) == (control_pb2.ROUND_STATUS_COMMITTED, 1)
    assert only.counted == ["cam-1", "cam-2"]
    np.testing.assert_array_equal(model_values(fleet.operator.model(ended.model)), np.float32(2.0))


@pytest.mark.parametrize(
    ("place", "name", "error", "reason"),
    [
        (Spool, "holds", FULL, "the disk is full"),  # no room to fetch another replica's to
        (BlobDirectory, "put_file", FULL, "the disk is full"),
        (DeviceReports, "of_attempt", BROKEN, "the coordinator's database cannot be reached"),
        (Store, "commit_round", FULL, "the disk is full"),
    ],
)
def test_a_round_waits_for_a_transient_failure_and_counts_acknowledged_updates(
    fleet: Fleet,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
    place: type[object],
    name: str,
    error: Exception,
    reason: str,
) -> None:
    trouble = Trouble(monkeypatch, place, name, error)
    deliver(fleet, trouble)
    waits(fleet, until, reason)
    trouble.lasts.clear()
    expect_both(fleet)


def test_a_round_waits_for_an_object_store_that_fails_while_it_is_reduced(
    tmp_path: Path, bucket: str, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Trouble(monkeypatch, ObjectClient, "put", AWAY)
    delete = Trouble(monkeypatch, ObjectClient, "delete", AWAY)
    with fleet_in(tmp_path, blobs=bucket) as fleet:
        monkeypatch.setattr(
            "moonfed.coordinator.storage.shared_spool.SharedSpool.put", lambda *_: None
        )  # updates come in
        deliver(fleet, put)
        waits(fleet, until, str(AWAY))
        delete.lasts.set()  # and unneeded updates cannot be deleted
        put.lasts.clear()
        expect_both(fleet)


def test_a_commit_whose_confirmation_was_lost_counts_once(
    fleet: Fleet, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database closes the connection after the commit and is briefly unavailable."""
    commit = Trouble(monkeypatch, Store, "commit_round", BROKEN)
    read, looks = Store.round, list[AttemptId]()

    def away(self: Store, attempt: AttemptId) -> RoundRecord | None:
        found = read(self, attempt)
        if commit.lasts.is_set() and found and found.status == "committed":
            commit.lasts.clear()
            looks.append(attempt)
            raise BROKEN
        return found

    monkeypatch.setattr(Store, "round", away)
    deliver(fleet, commit)
    until(lambda: len(looks) == 1)
    expect_both(fleet)


def test_a_run_with_unavailable_files_at_start_resumes_once_they_are_available(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moonfed.coordinator.runs.manager.RETRY_SECONDS", 0.05)
    with fleet_in(tmp_path) as fleet:
        fleet.start("run", minimum_devices=2)
    trouble = Trouble(monkeypatch, BlobDirectory, "verified_path", AWAY)
    trouble.lasts.set()
    with fleet_in(tmp_path) as fleet:
        (listed,) = ask(fleet.operator.control.ListRuns, control_pb2.ListRunsRequest()).runs
        assert listed.waiting == "run 'run' cannot resume yet; try again"
        assert listed.status == control_pb2.RUN_STATUS_RUNNING
        trouble.lasts.clear()
        until(lambda: fleet.operator.run("run").waiting.startswith("waiting for 2 more devices"))


def test_a_run_is_stopped_while_its_round_waits(fleet: Fleet, until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver(fleet, Trouble(monkeypatch, BlobDirectory, "put_file", FULL))
    waits(fleet, until, "the disk is full")
    stopped = ask(fleet.operator.control.StopRun, control_pb2.StopRunRequest(run="run"))
    assert stopped.status == control_pb2.RUN_STATUS_STOPPED
    assert [entry.reason for entry in fleet.operator.rounds("run")] == ["the run was stopped"]
