"""Certificates of devices, each of which can be rejected by its serial number.

Every certificate is recorded in the transaction that makes it valid, so that rejecting a device's certificates finds
all of them. Each function is part of a transaction.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sql

from moonfed.control.codec import from_values
from moonfed.control.devices import Certificate
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.upsert import insert_or_ignore

Reason = Literal["revoked", "removed", "replaced", "renamed"]
KEPT_SECONDS = 30 * 86400.0  # after its expiry, which a wall clock that jumps may misjudge
_columns = tables.certificates.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """The reason why a certificate is rejected. `device`: the present name of its device."""

    reason: Reason
    device: str


def add(connection: sql.Connection, serial: str, device: str, expires: float) -> None:
    """Record a certificate, unless it is known, and delete long-expired ones of the device."""
    old = sql.and_(_columns.device == device, _columns.rejected == 0, _columns.expires < time.time() - KEPT_SECONDS)
    connection.execute(sql.delete(tables.certificates).where(old))
    row = {"serial": serial, "device": device, "expires": expires, "rejected": 0.0, "reason": ""}
    insert_or_ignore(connection, tables.certificates, [row])


def reject(connection: sql.Connection, device: str, reason: Reason) -> None:
    """Reject all certificates of a device, including those that could still be renewed under its new name."""
    usable = sql.and_(_columns.device == device, _columns.reason.in_(("", "renamed")))
    changes = {"rejected": time.time(), "reason": reason}
    connection.execute(sql.update(tables.certificates).where(usable).values(changes))


def rename(connection: sql.Connection, device: str, name: str) -> None:
    """Let a device's certificates be used only to renew them, under its new name."""
    reject(connection, device, "renamed")
    moved = sql.and_(_columns.device == device, _columns.reason == "renamed")
    connection.execute(sql.update(tables.certificates).where(moved).values(device=name))


def find(connection: sql.Connection, serial: str) -> tuple[str, str] | None:
    """Return the device of a certificate and the reason if it is rejected, else ""; None if it is unknown."""
    query = sql.select(_columns.device, _columns.reason).where(_columns.serial == serial)
    row = connection.execute(query).first()
    return (row.device, row.reason) if row else None


def rejections(connection: sql.Connection) -> dict[str, Rejection]:
    """Return all rejected certificates by serial number."""
    query = sql.select(_columns.serial, _columns.reason, _columns.device).where(_columns.rejected > 0)
    return {row.serial: Rejection(reason=row.reason, device=row.device) for row in connection.execute(query)}


def issued_to(connection: sql.Connection, device: str) -> tuple[Certificate, ...]:
    """Return a device's certificates, the newest last."""
    query = sql.select(tables.certificates).where(_columns.device == device).order_by(_columns.expires)
    return tuple(from_values(Certificate, row) for row in connection.execute(query).mappings())
