"""Runs, rounds and events as JSON."""

from __future__ import annotations

import json
import math

from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.documents.runs import event_document, round_document, run_document
from moonfed.v1 import control_pb2


def test_times_are_iso_8601_and_durations_seconds() -> None:
    run = control_pb2.Run(run="r", created=1_700_000_000.5)
    run.open_round.seconds = 12.5
    document = run_document(run)
    assert (document["created"], document["open_round"]["seconds"]) == ("2023-11-14T22:13:20Z", 12.5)


def test_a_run_has_its_settings_its_eligible_devices_and_the_open_round() -> None:
    run = control_pb2.Run(
        run="r",
        status=control_pb2.RUN_STATUS_PAUSED,
        settings=RunSettings(rounds=9, cohort=Amount(fraction=0.5)).to_json(),
        initial_metrics={"loss": math.nan, "accuracy": 0.1},
        open_round=control_pb2.OpenRound(round=4, cohort=["x", "y"], reported=["x"], target=2, progress={"y": 0.5}),
        eligible=3,
        checking=1,
        ineligible=[control_pb2.IneligibleDevices(reason="no data", devices=["z"])],
        absent_classes=["van"],
    )
    found = run_document(run)
    assert (found["status"], found["settings"]["rounds"], found["settings"]["cohort"]) == ("paused", 9, "50%")
    assert (found["eligible"], found["checking"], found["ineligible"]) == (3, 1, {"no data": ["z"]})
    assert found["absent_classes"] == ["van"]
    assert (found["open_round"]["cohort"], found["open_round"]["progress"]) == (["x", "y"], {"y": 0.5})
    assert found["initial_metrics"] == {"accuracy": 0.1, "loss": None}  # JSON has no number for NaN
    json.dumps(found, allow_nan=False)


def test_an_abandoned_round_has_its_number_of_updates() -> None:
    abandoned = control_pb2.Round(status=control_pb2.ROUND_STATUS_ABANDONED, missing=["a", "b"], updates=1)
    document = round_document(abandoned)
    assert (document["status"], document["updates"], document["counted"]) == ("abandoned", 1, [])


def test_an_event_has_no_empty_fields() -> None:
    event = control_pb2.RunEvent(kind=control_pb2.EVENT_KIND_UPDATE_RECEIVED, round=1, device="cam-1", pending=3)
    assert event_document(event) == {"event": "update_received", "round": 1, "device": "cam-1", "pending": 3}
    json.dumps(event_document(control_pb2.RunEvent(run=control_pb2.Run())))
