"""The Fleet service over real TLS."""

from __future__ import annotations

import gc
from functools import partial

import pytest

from moonfed.coordinator.rpc import flow_control
from moonfed.coordinator.rpc.flow_control import SMALL_PART
from moonfed.errors import InvalidInput, WrongState
from moonfed.observability.flood_log import LINES
from moonfed.transport.client import PART_SIZE
from moonfed.transport.identity import new_key, signing_request, subject_of
from moonfed.v1 import control_pb2, fleet_pb2
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import ask, model_bytes


def test_a_device_renews_its_certificate(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    request = fleet_pb2.RenewRequest(device="cam-1", signing_request=signing_request(new_key(), "cam-1"))
    assert subject_of(ask(device.fleet.Renew, request).certificate) == ("device", "cam-1")


def test_a_device_whose_upload_stalled_is_asked_for_small_parts(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_control, "GRACE_SECONDS", -10.0)  # as if each message had taken ten seconds more
    monkeypatch.setattr(flow_control, "MIN_RATE", 100.0)  # so that a large part would not be late
    devices = [fleet.device(name) for name in ("cam-1", "cam-2")]
    fleet.start("run", minimum_devices=2)
    sessions = [device.connect() for device in devices]
    work = [session.assignment() for session in sessions]
    with pytest.raises(InvalidInput, match="without a commit"):
        devices[0].submit(work[0], model_bytes(1.0), send=1, commit=False)
    replies = [device.submit(each, model_bytes(1.0))[0] for device, each in zip(devices, work, strict=True)]
    assert [reply.resume.part_size for reply in replies] == [SMALL_PART, PART_SIZE]


def test_a_device_that_renews_all_the_time_does_not_fill_the_log(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    device = fleet.device("cam-1")
    request = fleet_pb2.RenewRequest(device="cam-1", signing_request=signing_request(new_key(), "cam-1"))
    with caplog.at_level("INFO", "moonfed.coordinator.audit"):
        for _ in range(LINES + 5):
            ask(device.fleet.Renew, request)
    assert caplog.text.count("renewed its certificate") == LINES


def test_updates_that_are_rejected_while_they_arrive_release_their_slots_at_once(fleet: Fleet) -> None:
    """A slot that only the garbage collector releases keeps the device's next update waiting for as long."""
    device = fleet.device("cam-1")
    session = device.connect()
    gc.disable()
    try:
        for run in ("first", "second", "third"):  # a device has two slots
            fleet.start(run)
            work = session.assignment()
            stop = partial(ask, fleet.operator.control.StopRun, control_pb2.StopRunRequest(run=run))
            with pytest.raises(WrongState, match="the run has been stopped"):
                device.submit(work, model_bytes(1.0), accepted=stop)
        fleet.start("last")
        device.submit(session.assignment(), model_bytes(1.0))
    finally:
        gc.enable()
