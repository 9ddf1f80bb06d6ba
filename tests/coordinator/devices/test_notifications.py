"""Notifications of ended runs over real TLS: their recipients, time and content."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from moonfed.blobs.store import BlobDirectory
from moonfed.coordinator.records import RunRecord
from moonfed.coordinator.storage.store import Store
from moonfed.errors import InvalidInput, NotFound
from moonfed.transport import client as transport
from moonfed.transport.identity import load_identity
from moonfed.v1 import blob_pb2, control_pb2, fleet_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.support.coordinator import WAIT, Device, DeviceSession, ask, make_bundle, model_bytes


def stop(fleet: Fleet, run: str) -> None:
    ask(fleet.operator.control.StopRun, control_pb2.StopRunRequest(run=run))


def fetched(device: Device, blob: blob_pb2.Blob) -> bytes:
    request = blob_pb2.FetchRequest(device=device.name, sha256=blob.sha256)
    return b"".join(ask(lambda r, timeout: [part.data for part in device.fleet.Fetch(r, timeout=timeout)], request))


def expect_only_work(fleet: Fleet, *sessions: DeviceSession) -> None:
    """Assert that the next message of each is an assignment of another run."""
    fleet.start("another", minimum_devices=len(sessions))
    for one in sessions:
        assert one.next().assignment.run == "another"


def test_participants_are_notified_once_of_a_finished_run_and_given_no_model(fleet: Fleet) -> None:
    """Only releases change what a device answers with."""
    delivers, declines, late, keeps = (fleet.device(f"cam-{number}") for number in range(4))
    here = {"site": "here"}  # which the others lack, so that they do not replace the one that declines
    fleet.start(minimum_devices=2, labels=here)
    sessions = [delivers.connect(runs=["run"], labels=here), declines.connect(labels=here)]
    work = [one.assignment() for one in sessions]
    sessions += [keeps.connect(runs=["run"]), late.connect()]
    ask(declines.fleet.Decline, fleet_pb2.DeclineRequest(device="cam-1", run="run", round=1, attempt=1, reason="hot"))
    delivers.submit(work[0], model_bytes(3.0))
    assert [one.ended() for one in sessions[:3]] == [fleet_pb2.RunEnded(run="run")] * 3
    run = fleet.operator.run("run")
    assert fetched(declines, run.manifest) == make_bundle().manifest.to_bytes()
    assert fetched(delivers, run.model) == model_bytes(3.0)
    files = map(transport.to_message, make_bundle().manifest.files.values())
    for blob in (run.manifest, run.model, *files):
        with pytest.raises(NotFound, match="device 'cam-3' participates in"):
            fetched(keeps, blob)
    expect_only_work(fleet, *sessions)


def test_a_run_that_is_stopped_is_reported_like_one_that_has_finished(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    fleet.start(rounds=2)
    session = device.connect()
    device.submit(session.assignment(), model_bytes(3.0))
    assert session.assignment().round == 2
    stop(fleet, "run")
    assert session.ended() == fleet_pb2.RunEnded(run="run")


def test_a_device_that_names_runs_learns_which_have_ended_even_after_a_restart(tmp_path: Path) -> None:
    def told(fleet: Fleet) -> tuple[DeviceSession, list[fleet_pb2.RunEnded]]:
        """Name all runs, those that continue first, and return the notifications, sorted by run.

        The end of a run that an operator has just stopped reaches the device by either of two ways, in any order.
        """
        identity = load_identity(tmp_path / "cam-1")
        device = Device(
            "cam-1", fleet.stack.enter_context(transport.open_channel(f"127.0.0.1:{fleet.ports.fleet}", identity))
        )
        session = device.connect(runs=["running", "damaged", "finished", "stopped", "unknown"])
        return session, sorted((session.ended() for _ in range(3)), key=lambda ended: ended.run)

    bundle = make_bundle("other")
    with fleet_in(tmp_path) as fleet:
        fleet.start("finished")
        trains = fleet.device("cam-1")
        session = trains.connect()
        trains.submit(session.assignment(), model_bytes(3.0))
        session.ended()
        session.leave()
        for run in ("running", "stopped", "damaged"):
            fleet.start(run, minimum_devices=9, bundle=bundle if run == "damaged" else None)
        stop(fleet, "stopped")
        expected = [fleet_pb2.RunEnded(run=run) for run in ("finished", "stopped", "unknown")]
        assert told(fleet)[1] == expected
        BlobDirectory(fleet.state / "blobs").path(bundle.ref.sha256).write_bytes(b"damaged")
    with fleet_in(tmp_path) as fleet:
        assert fleet.operator.run("damaged").waiting.startswith("suspended")
        session, heard = told(fleet)
        assert heard == expected
        stop(fleet, "damaged")
        assert session.ended() == fleet_pb2.RunEnded(run="damaged")
        expect_only_work(fleet, session)


def test_a_run_that_starts_during_its_lookup_is_not_reported_as_ended(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, go_on, lookup = threading.Event(), threading.Event(), Store.run

    def slow(self: Store, run: str) -> RunRecord:
        try:
            return lookup(self, run)
        except NotFound:
            looked.set()
            go_on.wait(WAIT)
            raise

    monkeypatch.setattr(Store, "run", slow)
    device = fleet.device("cam-1")
    session = device.connect(runs=["run"])
    assert looked.wait(WAIT)
    fleet.start()
    work = session.next().assignment
    go_on.set()
    device.submit(work, model_bytes(3.0))
    assert session.ended() == fleet_pb2.RunEnded(run="run")


def test_a_device_that_names_too_many_runs_is_rejected(fleet: Fleet) -> None:
    with pytest.raises(InvalidInput, match="runs has 65 names"):
        fleet.device("cam-1").connect(runs=["r"] * 65)
