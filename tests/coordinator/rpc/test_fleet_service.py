"""The Fleet service over real TLS."""

from __future__ import annotations

from moonfed.identity import new_key, signing_request, subject_of
from moonfed.v1 import fleet_pb2
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import ask


def test_a_device_renews_its_certificate(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    request = fleet_pb2.RenewRequest(device="cam-1", signing_request=signing_request(new_key(), "cam-1"))
    assert subject_of(ask(device.fleet.Renew, request).certificate) == ("device", "cam-1")
