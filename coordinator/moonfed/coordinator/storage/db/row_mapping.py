"""Conversion between database rows and records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sql

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import MODEL, Metric
from moonfed.control.codec import from_values
from moonfed.control.devices import Device, DeviceResult, Token, TokenStatus
from moonfed.control.run_settings import RunSettings
from moonfed.control.runs import Incident, Round
from moonfed.coordinator.aggregation.robust import incident
from moonfed.coordinator.records import (
    AttemptId,
    DeviceReport,
    RoundRecord,
    RunRecord,
)

TOKEN_ID = 12  # characters of the hash of a token's secret


def key(attempt: AttemptId) -> dict[str, Any]:
    """Return the key columns of an attempt."""
    return {"run": attempt.run, "round": attempt.round, "attempt": attempt.attempt}


def of_attempt(table: sql.Table) -> sql.ColumnElement[bool]:
    """Return the condition that a table's row belongs to the attempt whose `parameters` a statement is executed with.

    Statements are built once, because that takes SQLAlchemy several times longer than executing them.
    """
    return sql.and_(*(table.c[name] == sql.bindparam(f"of_{name}") for name in ("run", "round", "attempt")))


def parameters(attempt: AttemptId) -> dict[str, Any]:
    """Return the parameters of `of_attempt`."""
    return {f"of_{name}": value for name, value in key(attempt).items()}


def ref_columns(name: str, ref: BlobRef) -> dict[str, Any]:
    """Return the two columns of a blob reference."""
    return {f"{name}_sha256": ref.sha256, f"{name}_size": ref.size}


def _ref(row: sql.RowMapping, name: str) -> BlobRef:
    return BlobRef(row[f"{name}_sha256"], row[f"{name}_size"])


def blobs_document(blobs: Mapping[str, BlobRef]) -> dict[str, list[Any]]:
    """Return blobs by role as JSON values."""
    return {role: [ref.sha256, ref.size] for role, ref in blobs.items()}


def read_blobs(document: Mapping[str, Any]) -> dict[str, BlobRef]:
    """Read what `blobs_document` wrote."""
    return {role: BlobRef(sha256, size) for role, (sha256, size) in document.items()}


def run_record(row: sql.RowMapping) -> RunRecord:
    """Read a row of runs."""
    return RunRecord(
        run=row["run"],
        created=row["created"],
        status=row["status"],
        settings=RunSettings.read(row["settings"]),
        manifest=_ref(row, "manifest"),
        method=row["method"],
        metric=Metric(**row["metric"]),
        initial=_ref(row, "initial"),
        signature=_ref(row, "signature"),
        reason=row["reason"],
    )


def _attempt(row: sql.RowMapping) -> AttemptId:
    return AttemptId(run=row["run"], round=row["round"], attempt=row["attempt"])


def round_record(row: sql.RowMapping, blobs: Mapping[str, BlobRef], metrics: Mapping[str, float]) -> RoundRecord:
    """Read a row of rounds; add the blobs of its global state and its model's metrics."""
    committed = row["status"] == "committed"
    return RoundRecord(
        id=_attempt(row),
        status=row["status"],
        cohort=tuple(row["cohort"]),
        counted=tuple(row["counted"]),
        reason=row["reason"],
        blobs=blobs if committed else {},
        opened=row["opened"],
        seconds=row["seconds"],
        updates=row["updates"],
        metrics=metrics if committed else {},
        incidents=tuple(
            incident.Incident(device=device, description=description, clipped=clipped)
            for device, description, clipped in row["incidents"]
        ),
        bases=row["bases"],
        replacements=tuple(row["replacements"]),
        reused=row["reused"],
        reusable=row["reusable"],
        phases=row["phases"],
        outcomes=row["outcomes"],
        received_bytes=row["received_bytes"],
        sent_bytes=row["sent_bytes"],
    )


def report_row(report: DeviceReport) -> dict[str, Any]:
    """Return a device report as a row."""
    return {
        **key(report.id),
        "device": report.device,
        "outcome": report.outcome,
        "reason": report.reason,
        "samples": report.samples,
        "steps": report.steps,
        "metrics": dict(report.metrics),
        "blobs": blobs_document(report.blobs),
        "decoded": blobs_document(report.decoded),
        "personal_lost": report.personal_lost,
    }


def report(row: sql.RowMapping) -> DeviceReport:
    """Read a row of device reports."""
    return DeviceReport(
        id=_attempt(row),
        device=row["device"],
        outcome=row["outcome"],
        reason=row["reason"],
        samples=row["samples"],
        steps=row["steps"],
        metrics=row["metrics"],
        blobs=read_blobs(row["blobs"]),
        decoded=read_blobs(row["decoded"]),
        personal_lost=row["personal_lost"],
    )


def shown_round(row: sql.RowMapping, blobs: Mapping[str, BlobRef], metrics: Mapping[str, float]) -> Round:
    """Read a row of rounds that have ended as operators see them."""
    committed, counted = row["status"] == "committed", set(row["counted"])
    return from_values(
        Round,
        row,
        model=blobs.get(MODEL) if committed else None,
        metrics=metrics if committed else {},
        missing=() if row["bases"] else tuple(device for device in row["cohort"] if device not in counted),
        incidents=tuple(Incident(device=device, description=why) for device, why, _ in row["incidents"]),
    )


def device(row: sql.RowMapping) -> Device:
    """Read a row of devices, which are offline as far as the database knows."""
    last = from_values(DeviceResult, row["last_result"], seconds=None) if row["last_result"] else None
    elsewhere = {"online": False, "activity": (), "ineligible": "", "shared_by": (), "certificates": ()}
    return from_values(Device, row, labels=row["labels"], operator_labels=row["labels"], last_result=last, **elsewhere)


def token(row: sql.RowMapping) -> Token:
    """Read a row of tokens."""
    return from_values(Token, row, id=row["secret_sha256"][:TOKEN_ID], status=_token_status(row))


def _token_status(row: sql.RowMapping) -> TokenStatus:
    if row["revoked"]:
        return "revoked"
    if row["expires"] <= time.time():
        return "expired"
    return "valid" if row["uses_left"] else "used up"


def device_result(row: sql.RowMapping) -> DeviceResult:
    """Read a row of device outcomes."""
    return from_values(DeviceResult, row, seconds=row["seconds"] or None)
