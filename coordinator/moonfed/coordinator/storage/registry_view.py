"""The part of the registries of devices and operators that every replica keeps in memory, with its version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sql

from moonfed.coordinator.storage import certificates
from moonfed.coordinator.storage.certificates import Rejection
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.transactions import Transactions

_VERSION = sql.select(tables.registry_version.c.version)  # read twice a second


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryView:
    """Rejected certificates by serial number, devices, and labels by device."""

    version: int
    devices: Mapping[str, Rejection]
    operators: frozenset[str]
    known: frozenset[str]  # names of devices
    revoked: frozenset[str]  # names of those that operators revoked
    labels: Mapping[str, Mapping[str, str]]  # set by operators


class RegistryViews:
    """The registries as every replica sees them. Every method is one transaction. Blocking."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def version(self) -> int:
        """Return the version of the view, which increases with every change of it."""
        with self._transactions.read() as connection:
            return _version(connection)

    def load(self) -> RegistryView:
        """Return the view."""
        devices, operators = tables.devices.c, tables.operators.c
        with self._transactions.read() as connection:
            version = _version(connection)
            found = connection.execute(sql.select(devices.device, devices.labels, devices.revoked)).all()
            revoked = connection.execute(sql.select(operators.serial).where(operators.revoked > 0)).scalars()
            return RegistryView(
                version=version,
                devices=certificates.rejections(connection),
                operators=frozenset(revoked),
                known=frozenset(row.device for row in found),
                revoked=frozenset(row.device for row in found if row.revoked),
                labels={row.device: row.labels for row in found if row.labels},
            )


def count_change(connection: sql.Connection) -> None:
    """Increase the version, within the transaction of a change."""
    connection.execute(sql.update(tables.registry_version).values(version=tables.registry_version.c.version + 1))


def _version(connection: sql.Connection) -> int:
    return int(connection.execute(_VERSION).scalar_one())
