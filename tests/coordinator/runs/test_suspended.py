"""Runs suspended because of a damaged file: the others continue, and a suspended one can be stopped."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.bundle.manifest import WEIGHTS_FILE
from moonfed.coordinator.storage.opening import open_storage
from moonfed.errors import WrongState
from moonfed.transport import client as transport
from moonfed.v1 import control_pb2, fleet_pb2
from tests.support import coordinator
from tests.support.coordinator import ask, model_bytes
from tests.support.interrupted_run import Left, expect_round_1

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("file", [WEIGHTS_FILE, "manifest"])
def test_a_run_with_a_damaged_file_is_suspended_and_the_others_continue(
    tmp_path: Path, state: Path, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = coordinator.make_bundle()
    ref = bundle.ref if file == "manifest" else bundle.manifest.files[file]
    with open_storage(state) as storage:
        left = Left(storage)
        content = storage.blobs.local(ref).read_bytes()
        storage.blobs.local(ref).write_bytes(content[:-1] + b"!")
        other = coordinator.make_bundle("other", start=3.0)
        for kept in other.contents.values():
            storage.blobs.put_bytes(kept)
        storage.store.add_run(
            replace(left.record, run="o", manifest=other.ref, initial=other.manifest.files[WEIGHTS_FILE])
        )
    with coordinator.coordinator_in_process(state) as ports, ExitStack() as stack:
        calls = coordinator.operator(state, ports.fleet)
        stack.enter_context(calls.channel)
        identity = coordinator.enrol(tmp_path / "cam-1", calls.token(), "cam-1")
        channel = stack.enter_context(transport.open_channel(identity.address, identity))
        device, work = coordinator.Device("cam-1", channel), fleet_pb2.Assignment(run="r", round=1, attempt=1)
        reason = calls.run("r").waiting
        assert reason.startswith("suspended: the stored blob")
        assert "restart the coordinator" in reason
        assert any(record.levelname == "CRITICAL" and reason in record.message for record in caplog.records)
        assert calls.run("o").waiting == "waiting for 2 more devices: 0 eligible, 2 needed"
        watching = calls.watch("r")
        assert next(watching).run.waiting == reason
        with pytest.raises(WrongState, match="run 'r' is suspended"):
            ask(lambda _, timeout: next(watching), None)
        with pytest.raises(WrongState, match="run 'r' is suspended"):
            device.submit(work, model_bytes(9.0))
        report = fleet_pb2.ReportRequest(device="cam-1", run="r", round=1, attempt=1)
        with pytest.raises(WrongState, match="run 'r' is suspended"):
            ask(device.fleet.Report, report)
    with open_storage(state) as storage:
        storage.blobs.local(ref).write_bytes(content)
    expect_round_1(state)


def test_a_suspended_run_can_be_stopped(state: Path) -> None:
    with open_storage(state) as storage:
        Left(storage)
        storage.blobs.local(coordinator.make_bundle().ref).unlink()
    with coordinator.coordinator_in_process(state) as ports:
        calls = coordinator.operator(state, ports.fleet)
        with calls.channel:
            stopped = ask(calls.control.StopRun, control_pb2.StopRunRequest(run="r"))
            assert stopped.status == "stopped"
            assert [entry.reason for entry in calls.rounds("r")] == ["the run was stopped"]
            assert next(calls.watch("r")).run == stopped
    assert not list((state / "spool").glob("*/*"))
