"""The reduction of a closed round: damaged updates, transient failures, and a commit whose confirmation was lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from moonfed.blobs.store import BlobDirectory
from moonfed.coordinator.records import AttemptId, RoundRecord
from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.coordinator.storage.device_reports import DeviceReports
from moonfed.coordinator.storage.opening import open_storage
from moonfed.coordinator.storage.spool import Spool
from moonfed.coordinator.storage.store import Store
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import FULL, Fleet, fleet_in
from tests.support import coordinator
from tests.support.coordinator import ask, model_bytes, model_values
from tests.support.interrupted_run import FIRST, Left, finished
from tests.support.transient_failures import AWAY, BROKEN, TransientFailure

pytestmark = pytest.mark.slow

Until = Callable[[Callable[[], bool]], None]


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_damaged_spooled_update_counts_as_rejected_and_the_others_are_merged(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_storage(state) as storage:
        Left(storage)
        damage(storage.spool.update_file(FIRST, "cam-2", "model"))
    run, rounds, content = finished(state)
    assert run.status == "finished"
    assert [list(entry.counted) for entry in rounds] == [["cam-1"]]
    assert [list(entry.missing) for entry in rounds] == [["cam-2"]]
    np.testing.assert_array_equal(model_values(content), np.float32(1.0))
    assert "cam-2's update rejected" in caplog.text
    with open_storage(state) as storage:
        assert [report.outcome for report in storage.store.reports.of_attempt(FIRST)] == ["accepted", "rejected"]


@pytest.mark.parametrize("fault", [damage, Path.unlink])
def test_without_a_quorum_of_intact_updates_the_round_is_abandoned(
    state: Path, until: Until, fault: Callable[[Path], None]
) -> None:
    with open_storage(state) as storage:
        Left(storage, quorum="all")
        fault(storage.spool.update_file(FIRST, "cam-2", "model"))
    with coordinator.coordinator_in_process(state) as ports:
        calls = coordinator.operator(state, ports.fleet)
        with calls.channel:
            until(lambda: len(calls.rounds("r")) == 1)
            (abandoned,) = calls.rounds("r")
            assert abandoned.status == "abandoned"
            assert abandoned.reason.startswith("only 1 of 2")
            assert "rejected: cam-2; cam-2: the coordinator's copy" in abandoned.reason
            assert calls.run("r").round == 0


def deliver(fleet: Fleet, trouble: TransientFailure) -> None:
    """Deliver two updates, of 1.0 and 4.0; the failure starts at the end of the round."""
    devices = [fleet.device(name) for name in ("cam-1", "cam-2")]
    sessions = [device.connect() for device in devices]
    fleet.start("run", minimum_devices=2)
    devices[0].submit(sessions[0].assignment(), model_bytes(1.0), samples=20)
    work = sessions[1].assignment()
    trouble.lasts.set()
    devices[1].submit(work, model_bytes(4.0), samples=10)


def waits(fleet: Fleet, until: Until, reason: str) -> None:
    until(lambda: fleet.operator.run("run").waiting.endswith(reason))


def expect_both(fleet: Fleet) -> None:
    ended = list(fleet.operator.watch("run"))[-1].run
    (only,) = fleet.operator.rounds("run")
    assert (only.status, only.attempt) == ("committed", 1)
    assert only.counted == ["cam-1", "cam-2"]
    np.testing.assert_array_equal(model_values(fleet.operator.model(ended.model)), np.float32(2.0))


@pytest.mark.parametrize(
    ("place", "name", "error", "reason"),
    [
        (Spool, "holds", FULL, "disk is full"),  # no room to fetch another replica's update
        (BlobDirectory, "put_file", FULL, "disk is full"),
        (DeviceReports, "of_attempt", BROKEN, "database cannot be reached"),
        (Store, "commit_round", FULL, "disk is full"),
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
    trouble = TransientFailure(monkeypatch, place, name, error)
    deliver(fleet, trouble)
    waits(fleet, until, reason)
    trouble.lasts.clear()
    expect_both(fleet)


def test_a_round_waits_for_an_object_store_that_fails_while_it_is_reduced(
    tmp_path: Path, bucket: str, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = TransientFailure(monkeypatch, ObjectClient, "put", AWAY)
    delete = TransientFailure(monkeypatch, ObjectClient, "delete", AWAY)
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
    commit = TransientFailure(monkeypatch, Store, "commit_round", BROKEN)
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


def test_a_run_is_stopped_while_its_round_waits(fleet: Fleet, until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moonfed.coordinator.rounds.synchronous.retry_seconds", lambda _: 3600.0)  # a retry is finished
    deliver(fleet, TransientFailure(monkeypatch, BlobDirectory, "put_file", FULL))
    waits(fleet, until, "disk is full")
    stopped = ask(fleet.operator.control.StopRun, control_pb2.StopRunRequest(run="run"))
    assert stopped.status == "stopped"
    assert [entry.reason for entry in fleet.operator.rounds("run")] == ["the run was stopped"]
