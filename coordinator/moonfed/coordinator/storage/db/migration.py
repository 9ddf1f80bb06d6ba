"""Brings an earlier release's database to the present schema, in the transaction that opens it: all or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sql

from moonfed.blobs import BlobRef
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage import participants
from moonfed.coordinator.storage.blobs import references
from moonfed.coordinator.storage.blobs.ownership import name_database
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.row_mapping import read_blobs
from moonfed.manifest import MANIFEST_FILE, MODEL

LEAST_PATIENCE = 120.0
_OF_REPLICAS = (tables.replicas, tables.attendances, tables.authority, tables.pins, tables.blob_place)


def migrate(connection: sql.Connection, version: int) -> int:
    """Brings the schema as far as we know how to; the version that it has then."""
    while version in _STEPS:
        _STEPS[version](connection)
        version += 1
        connection.execute(sql.update(tables.schema).values(version=version))
    return version


def _from_3(connection: sql.Connection) -> None:
    """What blobs are needed for, and who took part, lies in tables of its own; rounds have incidents and bases."""
    for table in (tables.blob_refs, tables.participants, tables.leases, tables.stops, *_OF_REPLICAS):
        table.create(connection)
    name_database(connection)
    for run in connection.exec_driver_sql("SELECT * FROM runs").mappings().all():
        manifest = BlobRef(run["manifest_sha256"], run["manifest_size"])
        references.add(connection, run["run"], tables.BUNDLE, {MANIFEST_FILE: manifest})
        initial = BlobRef(run["initial_sha256"], run["initial_size"])
        references.add(connection, run["run"], tables.INITIAL, {MODEL: initial})
        _take_over_rounds(connection, run["run"])
        _rename_grace(connection, run["run"], json.loads(run["settings"]))
    connection.exec_driver_sql("ALTER TABLE rounds DROP COLUMN blobs")
    connection.exec_driver_sql("ALTER TABLE rounds ADD COLUMN incidents JSON DEFAULT '[]' NOT NULL")
    connection.exec_driver_sql("ALTER TABLE rounds ADD COLUMN bases JSON DEFAULT '{}' NOT NULL")
    connection.exec_driver_sql("ALTER TABLE answers ADD COLUMN decoded JSON DEFAULT '{}' NOT NULL")


def _rename_grace(connection: sql.Connection, run: str, settings: dict[str, Any]) -> None:
    """Patience is asked for by the devices at work too, not only by those that are away: it must not be too short."""
    settings["patience_seconds"] = max(settings.pop("grace_seconds"), LEAST_PATIENCE)
    connection.execute(sql.update(tables.runs).where(tables.runs.c.run == run).values(settings=settings))


def _take_over_rounds(connection: sql.Connection, run: str) -> None:
    query = "SELECT * FROM rounds WHERE run = ? ORDER BY round, attempt"
    latest: dict[str, AttemptId] = {}
    drawn: set[str] = set()
    for row in connection.exec_driver_sql(query, (run,)).mappings().all():
        drawn.update(json.loads(row["cohort"]))
        if row["status"] == "committed":
            id_ = AttemptId(run=run, round=row["round"], attempt=row["attempt"])
            latest |= dict.fromkeys(json.loads(row["counted"]), id_)
            references.add(connection, run, id_.round, read_blobs(json.loads(row["blobs"])))
    participants.drawn(connection, run, sorted(drawn))
    for id_ in set(latest.values()):
        participants.counted(connection, id_, [device for device in latest if latest[device] == id_])


_STEPS: Mapping[int, Callable[[sql.Connection], None]] = {3: _from_3}
