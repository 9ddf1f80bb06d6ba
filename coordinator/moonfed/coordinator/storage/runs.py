"""Runs, with references to their bundle and initial state. Each function is part of the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sql

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import MANIFEST_FILE, MODEL
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.records import RunRecord
from moonfed.coordinator.rounds.state import ACTIVE
from moonfed.coordinator.storage.blobs import references
from moonfed.coordinator.storage.db import row_mapping, tables
from moonfed.errors import AlreadyExists, NotFound
from moonfed.signing.bundle_signature import SIGNATURE_FILE

_columns = tables.runs.c


def _with_signature() -> sql.Select[Any]:
    """Select runs with the two columns of their bundle's signature."""
    blobs = tables.blob_references.c
    of_bundle = sql.and_(blobs.run == _columns.run, blobs.round == tables.BUNDLE, blobs.role == SIGNATURE_FILE)
    columns = (blobs.sha256.label("signature_sha256"), blobs.size.label("signature_size"))
    return sql.select(tables.runs, *columns).select_from(tables.runs.join(tables.blob_references, of_bundle))


_ALL = _with_signature().order_by(_columns.created, _columns.run)
_ONE = _with_signature().where(_columns.run == sql.bindparam("run"))
_SECRET = sql.select(tables.draws.c.secret).where(tables.draws.c.run == sql.bindparam("run"))
_STATUS = sql.select(_columns.status).where(_columns.run == sql.bindparam("run")).with_for_update()


def add(
    connection: sql.Connection,
    record: RunRecord,
    bundle: Mapping[str, BlobRef],
    other_state: Mapping[str, BlobRef],
    draw: Draw,
) -> None:
    """Insert a run; raises AlreadyExists. `bundle`, `other_state`, `draw`: see `Store.add_run`."""
    row = {
        "run": record.run,
        "created": record.created,
        "status": record.status,
        "reason": record.reason,
        "settings": record.settings.to_document(),
        "method": record.method,
        "metric": asdict(record.metric),
        **row_mapping.ref_columns("manifest", record.manifest),
        **row_mapping.ref_columns("initial", record.initial),
    }
    try:
        connection.execute(sql.insert(tables.runs).values(row))
    except sql.exc.IntegrityError as error:
        raise AlreadyExists(f"there is already a run {record.run!r}; give another name") from error
    connection.execute(sql.insert(tables.draws).values(run=record.run, secret=draw.secret))
    files = {MANIFEST_FILE: record.manifest, SIGNATURE_FILE: record.signature, **bundle}
    references.add(connection, record.run, tables.BUNDLE, files)
    references.add(connection, record.run, tables.INITIAL, {MODEL: record.initial, **other_state})


def all_runs(connection: sql.Connection) -> list[RunRecord]:
    """Return all runs, oldest first."""
    return [row_mapping.run_record(row) for row in connection.execute(_ALL).mappings()]


def one(connection: sql.Connection, run: str) -> RunRecord:
    """Return a run; raises NotFound."""
    row = connection.execute(_ONE, {"run": run}).mappings().first()
    if row is None:
        raise _no_run(run)
    return row_mapping.run_record(row)


def draw(connection: sql.Connection, run: str) -> Draw:
    """Return a run's draw; raises NotFound."""
    secret: bytes | None = connection.execute(_SECRET, {"run": run}).scalar()
    if secret is None:
        raise _no_run(run)
    return Draw(secret)


def status_held(connection: sql.Connection, run: str) -> str:
    """Return a run's status, locked until the transaction ends; raises NotFound."""
    status: str | None = connection.execute(_STATUS, {"run": run}).scalar()
    if status is None:
        raise _no_run(run)
    return status


def end(connection: sql.Connection, run: str, status: str, reason: str) -> None:
    """Record that the run has finished, was stopped or failed."""
    connection.execute(sql.update(tables.runs).where(_columns.run == run).values(status=status, reason=reason))


def set_paused(connection: sql.Connection, run: str, *, paused: bool) -> None:
    """Record whether an active run is paused."""
    which = sql.and_(_columns.run == run, _columns.status.in_(ACTIVE))
    connection.execute(sql.update(tables.runs).where(which).values(status="paused" if paused else "running"))


def delete(connection: sql.Connection, run: str) -> list[BlobRef]:
    """Delete all rows of a run; return the blobs that nothing refers to any longer."""
    released = references.release(connection, tables.blob_references.c.run == run)
    for table in tables.OF_A_RUN:
        connection.execute(sql.delete(table).where(table.c.run == run))
    return released


def _no_run(run: str) -> NotFound:
    return NotFound(f"there is no run {run!r}", field="run", value=run)
