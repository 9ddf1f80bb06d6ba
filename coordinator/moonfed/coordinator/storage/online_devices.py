"""Replica heartbeats, and which devices are online at which replica.

When a replica's heartbeat expires, its entries expire with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sql

from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.clock import NOW
from moonfed.coordinator.storage.db.schema import read_version, require_readable
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.coordinator.storage.db.upsert import insert_or_replace

_replicas, _columns = tables.replicas.c, tables.online_devices.c
_MICROSECONDS = sql.cast(NOW * 1e6, sql.BigInteger)
LEFT_SECONDS = 60.0  # for which replicas can read that a device has left; each polls four times a second
OnlineByDevice = Mapping[str, "OnlineDevice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineDevice:
    """The replica at which a device is online. `since` distinguishes its sessions."""

    replica: str
    since: int
    info: Mapping[str, Any]  # as JSON values
    left: bool = False  # it is offline, having announced that


class OnlineDevices:
    """Heartbeats and online devices of one replica. Every method is one transaction. Blocking."""

    def __init__(self, transactions: Transactions, replica: str | None, schema: int) -> None:
        self._transactions, self._replica, self._schema = transactions, replica, schema

    def heartbeat(self, seconds: float) -> bool:
        """Record a heartbeat and delete expired replicas; return True if this replica's own entries had not expired.

        Raises VersionMismatch if a newer release has contracted the schema meanwhile.
        """
        with self._transactions.write() as connection:
            require_readable(read_version(connection), "the database", self._schema)
            dead = sql.select(_replicas.replica).where(_replicas.expires <= NOW, _replicas.replica != self._replica)
            connection.execute(sql.delete(tables.replicas).where(_replicas.replica.in_(dead)))
            alive = sql.select(_replicas.replica)
            had_not_expired = connection.execute(alive.where(_replicas.replica == self._replica)).first() is not None
            expires = connection.execute(sql.select(NOW + seconds)).scalar_one()
            row = {"replica": self._replica, "expires": expires, "schema": self._schema}
            insert_or_replace(connection, tables.replicas, [row])
            past = sql.and_(_columns.left, _columns.since < _MICROSECONDS - int(LEFT_SECONDS * 1e6))
            connection.execute(sql.delete(tables.online_devices).where(_columns.replica.not_in(alive) | past))
        return had_not_expired

    def replicas(self) -> int:
        """Return the number of replicas whose heartbeat has not expired."""
        alive = sql.select(sql.func.count()).select_from(tables.replicas).where(_replicas.expires > NOW)
        with self._transactions.read() as connection:
            return int(connection.execute(alive).scalar_one())

    def publish(
        self, arrived: Mapping[str, Mapping[str, Any]], gone: Mapping[str, int], left: Collection[str] = ()
    ) -> dict[str, int]:
        """Publish devices that came online here and remove those that went offline; return the new `since`.

        A device's newest session wins, at whichever replica it is. `left`: the devices among `gone` that
        announced that they stop; other replicas can read this for LEFT_SECONDS.
        """
        with self._transactions.write() as connection:
            since = connection.execute(sql.select(_MICROSECONDS)).scalar_one()
            for device in sorted(gone):  # in one order, so that replicas do not deadlock
                which = sql.and_(_columns.device == device, _columns.since == gone[device])
                ours = sql.and_(which, _columns.replica == self._replica)
                if device in left:
                    connection.execute(sql.update(tables.online_devices).where(ours).values(left=True, since=since))
                else:
                    connection.execute(sql.delete(tables.online_devices).where(ours))
            rows = [
                {
                    "device": device,
                    "replica": self._replica,
                    "info": arrived[device],
                    "since": since,
                    "last_heartbeat": 0.0,
                    "left": False,
                }
                for device in sorted(arrived)
            ]
            insert_or_replace(connection, tables.online_devices, rows)
        return dict.fromkeys(arrived, since)

    def version(self) -> tuple[int, int]:
        """Return a version that changes whenever a device comes online or goes offline: count, and sum of `since`."""
        total = sql.func.coalesce(sql.func.sum(_columns.since), 0)
        with self._transactions.read() as connection:
            count, since = connection.execute(sql.select(sql.func.count(), total)).one()
        return count, int(since)

    def all(self) -> OnlineByDevice:
        """Return all online devices, and those that have just left."""
        with self._transactions.read() as connection:
            found = connection.execute(sql.select(tables.online_devices))
            return {
                row.device: OnlineDevice(replica=row.replica, since=row.since, info=row.info, left=row.left)
                for row in found
            }

    def record_heartbeats(self, devices: Collection[str]) -> None:
        """Record heartbeats of devices that are online here."""
        local = sql.and_(_columns.replica == self._replica, _columns.device.in_(sorted(devices)))
        with self._transactions.write() as connection:
            locked = sql.select(_columns.device).where(local).order_by(_columns.device).with_for_update()
            connection.execute(locked)
            connection.execute(sql.update(tables.online_devices).where(local).values(last_heartbeat=NOW))

    def heartbeats_after(self, moment: float) -> tuple[set[str], float]:
        """Return the devices online elsewhere with heartbeats after `moment`, and the newest heartbeat's time."""
        query = sql.select(_columns.device, _columns.last_heartbeat).where(
            _columns.replica != self._replica, _columns.last_heartbeat > moment
        )
        with self._transactions.read() as connection:
            found = connection.execute(query).all()
        return {row.device for row in found}, max((row.last_heartbeat for row in found), default=moment)

    def withdraw(self) -> None:
        """Delete this replica's entries when it stops."""
        with self._transactions.write() as connection:
            delete_entries(connection, self._replica or "")


def delete_entries(connection: sql.Connection, replica: str) -> None:
    """Delete the entries of a replica that has ended, within the caller's transaction."""
    connection.execute(sql.delete(tables.online_devices).where(_columns.replica == replica))
    connection.execute(sql.delete(tables.replicas).where(_replicas.replica == replica))
