"""Devices and their results as JSON."""

from __future__ import annotations

from moonfed.coordinator.documents.devices import (
    device_document,
    device_document_with_certificates,
    device_summary,
    result_document,
)
from moonfed.v1 import control_pb2


def test_a_device_has_its_release_its_rounds_and_what_it_does() -> None:
    device = control_pb2.Device(device="cam-1", online=True, release="0.2", rounds=12)
    device.activity.add(run="r", round=3, attempt=1, fraction=0.5)
    document = device_document(device)
    assert (document["release"], document["rounds"], document["last_result"]) == ("0.2", 12, None)
    assert document["activity"] == [{"run": "r", "round": 3, "attempt": 1, "fraction": 0.5}]
    assert device_summary(device).items() <= document.items()
    assert "ineligible" not in document
    device.ineligible = "no data"
    assert device_document(device)["ineligible"] == "no data"


def test_times_are_iso_8601_or_none() -> None:
    device = control_pb2.Device(device="cam-1", enrolled=1_700_000_000.0, last_seen=1_700_000_060.0)
    device.certificates.add(serial="ab", expires=1_700_000_120.0)
    found = device_document_with_certificates(device)
    assert (found["enrolled"], found["last_seen"]) == ("2023-11-14T22:13:20Z", "2023-11-14T22:14:20Z")
    assert (found["revoked"], found["certificate_expires"]) == (None, None)
    expected = {"serial": "ab", "expires": "2023-11-14T22:15:20Z", "rejected": None, "reason": ""}
    assert found["certificates"] == [expected]
    assert device_document(device) | {"certificates": [expected]} == found


def test_a_result_has_its_attempt_and_its_reason() -> None:
    device = control_pb2.Device(device="cam-1")
    result = control_pb2.DeviceResult(
        run="r", round=2, attempt=1, outcome="declined", reason="hot", time=1_700_000_000, seconds=1.5
    )
    device.last_result.CopyFrom(result)
    assert (
        device_document(device)["last_result"]
        == result_document(result)
        == {
            "run": "r",
            "round": 2,
            "attempt": 1,
            "outcome": "declined",
            "reason": "hot",
            "time": "2023-11-14T22:13:20Z",
            "seconds": 1.5,
        }
    )
