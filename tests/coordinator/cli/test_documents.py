"""Runs, rounds, events and devices as JSON."""

from __future__ import annotations

import json

from moonfed.coordinator.cli.documents import device_document, event_document, round_document, run_document
from moonfed.v1 import control_pb2


def test_times_are_iso_8601_and_durations_seconds() -> None:
    run = control_pb2.Run(run="r", created=1_700_000_000.5)
    run.open_round.seconds = 12.5
    document = run_document(run)
    assert (document["created"], document["open_round"]["seconds"]) == ("2023-11-14T22:13:20Z", 12.5)
    device = control_pb2.Device(device="cam-1", enrolled=1_700_000_000.0, last_seen=1_700_000_060.0)
    device.last_result.outcome, device.last_result.time = "counted", 1_700_000_120.0
    found = device_document(device)
    assert (found["enrolled"], found["last_seen"]) == ("2023-11-14T22:13:20Z", "2023-11-14T22:14:20Z")
    assert (found["last_result"]["time"], found["certificate_expires"]) == ("2023-11-14T22:15:20Z", None)


def test_a_device_has_its_release_its_rounds_and_what_it_does() -> None:
    device = control_pb2.Device(device="cam-1", online=True, release="0.2", rounds=12)
    device.activity.add(run="r", round=3, attempt=1, fraction=0.5)
    document = device_document(device)
    assert (document["release"], document["rounds"], document["last_result"]) == ("0.2", 12, None)
    assert document["activity"] == [{"run": "r", "round": 3, "attempt": 1, "fraction": 0.5}]


def test_an_abandoned_round_has_its_number_of_updates() -> None:
    abandoned = control_pb2.Round(status=control_pb2.ROUND_STATUS_ABANDONED, missing=["a", "b"], updates=1)
    document = round_document(abandoned)
    assert (document["status"], document["updates"], document["counted"]) == ("abandoned", 1, [])


def test_an_event_has_no_empty_fields() -> None:
    event = control_pb2.RunEvent(kind=control_pb2.EVENT_KIND_UPDATE_RECEIVED, round=1, device="cam-1", pending=3)
    assert event_document(event) == {"event": "update_received", "round": 1, "device": "cam-1", "pending": 3}
    json.dumps(event_document(control_pb2.RunEvent(run=control_pb2.Run())))
