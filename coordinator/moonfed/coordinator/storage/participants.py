"""Participants of a run, each with its latest counted round, and in how many of them in a row it was clipped.

There is one row per device, however many rounds there were.

A row belongs to the present owner of the name: it is renamed with the device, and deleted with it. Each function is
part of a transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sql

from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage import runs
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.upsert import insert_or_ignore, insert_or_replace
from moonfed.labels import lacking

_columns, _blobs = tables.participants.c, tables.blob_references.c
_AMONG = sql.select(_columns.device).where(
    _columns.run == sql.bindparam("of_run"), _columns.device.in_(sql.bindparam("of_devices", expanding=True))
)
_WITH_BLOB = tables.participants.join(tables.blob_references, _blobs.run == _columns.run)


def drawn(connection: sql.Connection, run: str, cohort: Sequence[str]) -> None:
    """Record that these devices are in a round's cohort, except those that lack the run's trusted labels by now.

    Their names have passed to other devices, or operators have changed their labels, since the coordinator last read
    the registry.
    """
    settings = runs.one(connection, run).settings
    chosen = _labelled(connection, cohort, settings.labels) if settings.trusted_labels else cohort
    values = [{"run": run, "device": device, "round": 0, "attempt": 0, "clipped": 0} for device in sorted(chosen)]
    insert_or_ignore(connection, tables.participants, values)


def counted(
    connection: sql.Connection,
    attempt: AttemptId,
    devices: Sequence[str],
    bases: Mapping[str, int],
    reused: Mapping[str, int],
    clipped: Collection[str] = (),
) -> None:
    """Record that a round's model contains these devices' updates, except those that were removed or renamed.

    `bases`: the earlier rounds that some started from. `reused`: the earlier attempts that some are from. `clipped`:
    the devices whose update was unusually long.
    """
    which = sql.and_(_columns.run == attempt.run, _columns.device.in_(sorted(devices)))
    query = sql.select(_columns.device, _columns.clipped).where(which).with_for_update()
    present = {row.device: row.clipped for row in connection.execute(query)}
    values = [
        {
            "run": attempt.run,
            "device": device,
            "round": bases.get(device, attempt.round),
            "attempt": reused.get(device, attempt.attempt),
            "clipped": present[device] + 1 if device in clipped else 0,
        }
        for device in sorted(present)
    ]
    insert_or_replace(connection, tables.participants, values)


def among(connection: sql.Connection, run: str, devices: Collection[str]) -> set[str]:
    """Return those of the devices that participate in the run; a former device's name may be in a cohort."""
    found = connection.execute(_AMONG, {"of_run": run, "of_devices": sorted(devices)})
    return set(found.scalars())


def all_of(connection: sql.Connection, run: str) -> set[str]:
    """Return the devices that were ever in a cohort of the run, by their present names."""
    return set(connection.execute(sql.select(_columns.device).where(_columns.run == run)).scalars())


def certificates_for(connection: sql.Connection, sha256: str) -> set[str]:
    """Return the valid certificates of all participants of runs that refer to the blob, by serial number.

    A device without one, which connects without TLS, is listed by its name.
    """
    certificates = tables.certificates.c
    held = sql.and_(certificates.device == _columns.device, certificates.rejected == 0)
    query = sql.select(sql.func.coalesce(certificates.serial, _columns.device)).select_from(_WITH_BLOB)
    query = query.outerjoin_from(_WITH_BLOB, tables.certificates, held).where(_blobs.sha256 == sha256)
    return set(connection.execute(query).scalars())


def may_fetch(connection: sql.Connection, sha256: str, device: str) -> bool:
    """Return True if the device was ever in a cohort of a run that refers to the blob."""
    query = sql.select(_columns.device).select_from(_WITH_BLOB)
    found = connection.execute(query.where(_blobs.sha256 == sha256, _columns.device == device).limit(1))
    return found.first() is not None


def latest_counted(connection: sql.Connection, run: str) -> dict[str, AttemptId]:
    """Return each device's latest attempt whose update is in a model."""
    query = sql.select(tables.participants).where(_columns.run == run, _columns.round > 0)
    return {row.device: AttemptId(run=run, round=row.round, attempt=row.attempt) for row in connection.execute(query)}


def clipped_in_a_row(connection: sql.Connection, run: str) -> dict[str, int]:
    """Return the number of counted rounds in a row that clipped each device, where it is not 0."""
    query = sql.select(_columns.device, _columns.clipped).where(_columns.run == run, _columns.clipped > 0)
    return {row.device: row.clipped for row in connection.execute(query)}


def forget(connection: sql.Connection, device: str) -> None:
    """Delete a device's rows: whoever has its name next did not participate. The rounds keep the name."""
    connection.execute(sql.delete(tables.participants).where(_columns.device == device))


def rename(connection: sql.Connection, device: str, name: str) -> None:
    """Let a device participate under its new name only."""
    forget(connection, name)
    connection.execute(sql.update(tables.participants).where(_columns.device == device).values(device=name))


def _labelled(connection: sql.Connection, cohort: Sequence[str], labels: Mapping[str, str]) -> list[str]:
    """Return the devices with these operators' labels, which none of them loses before the transaction ends."""
    columns = tables.devices.c
    query = sql.select(columns.device, columns.labels).where(columns.device.in_(sorted(cohort)))
    found = connection.execute(query.order_by(columns.device).with_for_update(read=True))
    return [row.device for row in found if not lacking(row.labels, labels)]
