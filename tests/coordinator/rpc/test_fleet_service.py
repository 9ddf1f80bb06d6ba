"""The Fleet service over real TLS."""

from __future__ import annotations

import pytest

from moonfed.coordinator.support.flood_log import LINES
from moonfed.identity import new_key, signing_request, subject_of
from moonfed.v1 import fleet_pb2
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import ask


def test_a_device_renews_its_certificate(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    request = fleet_pb2.RenewRequest(device="cam-1", signing_request=signing_request(new_key(), "cam-1"))
    assert subject_of(ask(device.fleet.Renew, request).certificate) == ("device", "cam-1")


def test_a_device_that_renews_all_the_time_does_not_fill_the_log(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    device = fleet.device("cam-1")
    request = fleet_pb2.RenewRequest(device="cam-1", signing_request=signing_request(new_key(), "cam-1"))
    with caplog.at_level("INFO", "moonfed.coordinator.audit"):
        for _ in range(LINES + 5):
            ask(device.fleet.Renew, request)
    assert caplog.text.count("renewed its certificate") == LINES
