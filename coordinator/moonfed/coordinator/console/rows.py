"""Rows of the console's tables: documents with numbers in place of names, which a fleet has by the thousands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.documents.evaluations import evaluations_document
from moonfed.coordinator.documents.runs import round_document
from moonfed.coordinator.documents.values import round_status, run_status
from moonfed.formatting import iso_time
from moonfed.v1 import control_pb2


def run_row(run: control_pb2.Run) -> dict[str, Any]:
    """Return a run with the numbers of its open round."""
    return {
        "run": run.run,
        "status": run_status(run),
        "method": run.method,
        "round": run.round,
        "rounds": RunSettings.received(run.settings).rounds,
        "created": iso_time(run.created),
        "waiting": run.waiting,
        "reason": run.reason,
        "eligible": run.eligible,
        "reported": len(run.open_round.reported),
        "target": run.open_round.target,
    }


def round_row(round_: control_pb2.Round) -> dict[str, Any]:
    """Return a round with the numbers of its devices."""
    document = round_document(round_)
    return document | {name: len(document[name]) for name in ("counted", "missing", "incidents")}


def outcomes_row(outcomes: control_pb2.RoundOutcomes) -> dict[str, Any]:
    """Return an attempt with the names of its devices by outcome."""
    by_outcome: dict[str, list[str]] = {}
    for device, outcome in outcomes.outcomes.items():
        by_outcome.setdefault(outcome, []).append(device)
    return {
        "round": outcomes.round,
        "attempt": outcomes.attempt,
        "status": round_status(outcomes),
        "time": iso_time(outcomes.time),
        "outcomes": by_outcome,
    }


def evaluation_rows(evaluations: Iterable[control_pb2.Evaluation]) -> dict[str, Any]:
    """Return results on test sets as they are, and those on devices with the numbers of devices."""
    document = evaluations_document(evaluations)
    return document | {"device_evaluations": [_device_evaluation_row(one) for one in document["device_evaluations"]]}


def _device_evaluation_row(document: dict[str, Any]) -> dict[str, Any]:
    skipped = {reason: len(devices) for reason, devices in document["skipped"].items()}
    return document | {"devices": len(document["devices"]), "skipped": skipped, "waiting": len(document["waiting"])}
