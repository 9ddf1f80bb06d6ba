"""Conversion of the Control service's messages."""

from __future__ import annotations

from typing import get_args

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.records import EventKind, RoundRecord, RunEvent, RunView
from moonfed.coordinator.rounds.state import OpenRound
from moonfed.coordinator.rpc import convert_control
from moonfed.errors import InvalidInput
from moonfed.transport.client import from_message, to_message
from moonfed.v1 import control_pb2
from tests.support.store_records import FIRST, MODEL, RUN


def test_an_upload_begins_with_its_header() -> None:
    refs = [ref_of_bytes(b"a"), ref_of_bytes(b"b")]
    header = control_pb2.UploadHeader(blobs=[to_message(ref) for ref in refs])
    assert convert_control.upload_header(control_pb2.UploadRequest(header=header)) == refs
    with pytest.raises(InvalidInput, match="an upload must begin with its header"):
        convert_control.upload_header(control_pb2.UploadRequest())
    assert [from_message(blob) for blob in convert_control.stored(refs).stored.blobs] == refs


def test_a_run_shows_its_open_round_with_names_in_order() -> None:
    current = OpenRound(
        round=2, attempt=3, cohort=("b", "a", "c"), reported=frozenset("ca"), lost=frozenset("b"), rejected=frozenset()
    )
    view = RunView(record=RUN, open_round=current, waiting="for b", initial_metrics={"loss": 2.0}, committed=1)
    run = convert_control.run(view)
    assert (run.run, run.status, run.round) == ("digits", control_pb2.RUN_STATUS_RUNNING, 1)
    assert (run.waiting, dict(run.initial_metrics)) == ("for b", {"loss": 2.0})
    assert not run.HasField("model")
    assert from_message(run.initial_model) == RUN.initial
    shown = run.open_round
    assert (shown.round, shown.attempt, list(shown.cohort)) == (2, 3, ["b", "a", "c"])
    assert (list(shown.reported), list(shown.lost), list(shown.rejected)) == (["a", "c"], ["b"], [])
    assert not convert_control.run(RunView(record=RUN)).HasField("open_round")


def test_a_round_shows_its_missing_devices_and_incidents() -> None:
    record = RoundRecord(
        id=FIRST,
        status="committed",
        cohort=("a", "b"),
        counted=("a",),
        blobs={"model": MODEL},
        seconds=1.5,
        metrics={"loss": 0.5},
        incidents=(Incident(device="b", description="its change was scaled down"),),
    )
    shown = convert_control.round_message(record)
    assert (shown.status, from_message(shown.model)) == (control_pb2.ROUND_STATUS_COMMITTED, MODEL)
    assert (list(shown.counted), list(shown.missing), shown.seconds) == (["a"], ["b"], 1.5)
    assert [(one.device, one.description) for one in shown.incidents] == [("b", "its change was scaled down")]


@pytest.mark.parametrize("kind", get_args(EventKind))
def test_every_kind_of_event_has_a_message(kind: EventKind) -> None:
    shown = convert_control.event(RunEvent(kind=kind, round=2, attempt=1, device="a", devices=("b",), fraction=0.25))
    assert control_pb2.EventKind.Name(shown.kind) == f"EVENT_KIND_{kind.upper()}"
    assert (shown.round, shown.attempt, shown.device, list(shown.devices)) == (2, 1, "a", ["b"])
    assert (shown.fraction, shown.HasField("run"), shown.HasField("model")) == (0.25, False, False)


def test_a_watch_begins_with_a_snapshot_of_the_run() -> None:
    shown = convert_control.event(RunView(record=RUN, model=MODEL))
    assert (shown.kind, shown.run.run) == (control_pb2.EVENT_KIND_SNAPSHOT, "digits")
    assert from_message(shown.run.model) == MODEL
