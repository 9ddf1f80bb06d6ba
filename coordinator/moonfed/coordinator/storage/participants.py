"""Participants of a run, each with its latest counted round: one row per device, however many rounds there were.

Each function is part of a transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sql

from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.upsert import insert_or_ignore, insert_or_replace

_columns = tables.participants.c


def drawn(connection: sql.Connection, run: str, cohort: Sequence[str]) -> None:
    """Record that these devices are in a round's cohort."""
    values = [{"run": run, "device": device, "round": 0, "attempt": 0} for device in sorted(cohort)]
    insert_or_ignore(connection, tables.participants, values)


def counted(
    connection: sql.Connection, attempt: AttemptId, devices: Sequence[str], bases: Mapping[str, int] | None = None
) -> None:
    """Record that a round's model contains these devices' updates; `bases`: the earlier rounds they started from."""
    common = {"run": attempt.run, "attempt": attempt.attempt}
    values = [
        {**common, "device": device, "round": (bases or {}).get(device, attempt.round)} for device in sorted(devices)
    ]
    insert_or_replace(connection, tables.participants, values)


def all_of(connection: sql.Connection, run: str) -> set[str]:
    """Return all devices that were ever in a cohort of the run."""
    return set(connection.execute(sql.select(_columns.device).where(_columns.run == run)).scalars())


def with_blob(connection: sql.Connection, sha256: str, device: str | None = None) -> set[str]:
    """Return the devices that were ever in a cohort of a run that refers to the blob; only `device`, if given."""
    blobs = tables.blob_references.c
    query = sql.select(_columns.device).join_from(
        tables.participants, tables.blob_references, blobs.run == _columns.run
    )
    query = query.where(blobs.sha256 == sha256)
    return set(connection.execute(query.where(_columns.device == device) if device else query).scalars())


def latest_counted(connection: sql.Connection, run: str) -> dict[str, AttemptId]:
    """Return each device's latest attempt whose update is in a model."""
    query = sql.select(tables.participants).where(_columns.run == run, _columns.round > 0)
    return {row.device: AttemptId(run=run, round=row.round, attempt=row.attempt) for row in connection.execute(query)}
