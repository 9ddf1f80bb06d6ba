"""Records as operators see them, with defaults for what a test does not care about."""

from __future__ import annotations

from typing import Any

from moonfed.blobs.store import BlobRef
from moonfed.control.codec import to_message
from moonfed.control.devices import Device, DeviceActivity, DeviceResult
from moonfed.control.events import KINDS, RunEvent
from moonfed.control.held_out_score import HeldOutScore
from moonfed.control.run_settings import RunSettings
from moonfed.control.runs import Run
from moonfed.formatting import moment
from moonfed.v1 import control_pb2

BLOB = BlobRef("ab" * 32, 4_200_000)


def run_of(settings: RunSettings, **fields: Any) -> Run:
    given: dict[str, Any] = {"run": "r", "status": "running", "method": "fedavg", "created": moment(1e9)}
    blobs = dict.fromkeys(("model", "initial_model", "manifest"), BLOB)
    return Run(**{**given, **blobs, "settings": settings, **fields})


def event(kind: str, **fields: Any) -> RunEvent:
    """Return an event of a kind, with zeros in the fields that are not given."""
    zeros = {"pending": 0, "reason": "", "model": None, "devices": (), "cohort": (), "counted": (), "missing": ()}
    known = KINDS[kind].__dataclass_fields__
    found: RunEvent = KINDS[kind](**{name: value for name, value in {**zeros, **fields}.items() if name in known})
    return found


def device(name: str = "cam-1", **fields: Any) -> Device:
    return Device(device=name, **fields)


def result(outcome: Any, reason: str = "", **fields: Any) -> DeviceResult:
    given: dict[str, Any] = {"run": "digits", "round": 12, "attempt": 1, "time": moment(1e9)}
    return DeviceResult(**{**given, "outcome": outcome, "reason": reason, **fields})


def activity(run: str, fraction: float) -> DeviceActivity:
    return DeviceActivity(run=run, round=13, attempt=1, fraction=fraction)


def score_message(score: HeldOutScore) -> control_pb2.HeldOutScore:
    return to_message(control_pb2.HeldOutScore, score)
