"""Runs, rounds and events as JSON values."""

from __future__ import annotations

import json
import math

from moonfed.coordinator.console.run_documents import (
    event_document,
    round_devices_document,
    round_document,
    run_document,
    settings_document,
)
from moonfed.v1 import blob_pb2, control_pb2


def test_a_run_with_its_open_round() -> None:
    run = control_pb2.Run(
        run="r",
        status=control_pb2.RUN_STATUS_PAUSED,
        round=3,
        settings=control_pb2.RunSettings(rounds=9, cohort=control_pb2.Amount(fraction=0.5), labels={"a": "b"}),
        model=blob_pb2.Blob(sha256="m", size=5),
        initial_metrics={"loss": math.nan, "accuracy": 0.1},
        open_round=control_pb2.OpenRound(round=4, cohort=["x", "y"], reported=["x"], target=2, progress={"y": 0.5}),
        ineligible=[control_pb2.IneligibleDevices(reason="no data", devices=["z"])],
    )
    found = run_document(run)
    assert (found["status"], found["round"], found["rounds"], found["reported"], found["target"]) == (
        "paused",
        3,
        9,
        1,
        2,
    )
    assert found["open_round"]["progress"] == {"y": 0.5}
    assert found["ineligible"] == [{"reason": "no data", "devices": ["z"]}]
    assert found["initial_metrics"] == {"accuracy": 0.1, "loss": None}
    assert found["settings"]["cohort"] == "50%"
    json.dumps(found, allow_nan=False)


def test_a_round_has_numbers_and_on_request_names() -> None:
    round_ = control_pb2.Round(
        round=2,
        attempt=1,
        status=control_pb2.ROUND_STATUS_COMMITTED,
        counted=["a", "b"],
        missing=["c"],
        incidents=[control_pb2.Incident(device="a", description="clipped")],
        phases={"training": 1.5},
        outcomes={"counted": 2, "lost": 1},
        received_bytes=10,
        sent_bytes=20,
    )
    found = round_document(round_)
    assert (found["counted"], found["missing"], found["incidents"], found["committed"]) == (2, 1, 1, True)
    assert (found["phases"], found["outcomes"]) == ({"training": 1.5}, {"counted": 2, "lost": 1})
    assert (found["received_bytes"], found["sent_bytes"]) == (10, 20)
    named = round_devices_document(round_)
    assert (named["counted"], named["missing"]) == (["a", "b"], ["c"])
    assert named["incidents"] == [{"device": "a", "description": "clipped"}]


def test_an_event_has_no_empty_fields() -> None:
    event = control_pb2.RunEvent(kind=control_pb2.EVENT_KIND_DEVICE_DECLINED, device="a", reason="hot")
    assert event_document(event) == {"event": "device_declined", "device": "a", "reason": "hot"}


def test_settings_name_what_was_chosen() -> None:
    settings = control_pb2.RunSettings(
        cohort=control_pb2.Amount(count=5),
        asynchronous=control_pb2.Asynchronous(buffer=3, max_staleness=4),
        robust=control_pb2.RobustSettings(weight_cap=0.3, clip_norm=2, clip_factor=3),
    )
    found = settings_document(settings)
    assert (found["cohort"], found["buffer"], found["maximum staleness"]) == ("5", 3, 4)
    assert (found["reducer"], found["weight cap"], found["clip norm"], found["clip factor"]) == ("mean", "30 %", 2, 3)
    assert "buffer" not in settings_document(control_pb2.RunSettings())
