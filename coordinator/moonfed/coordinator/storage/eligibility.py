"""Devices' eligibility reports for runs."""

from __future__ import annotations

import time
from collections.abc import Collection

import sqlalchemy as sql

from moonfed.coordinator.records import EligibilityReport
from moonfed.coordinator.storage import participants
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.coordinator.storage.db.upsert import insert_or_replace
from moonfed.errors import NotFound

_columns = tables.eligibility.c
_of_run = _columns.run == sql.bindparam("of_run")
VERSION = sql.func.coalesce(sql.func.sum(_columns.answered), 0).label("eligibility")  # `EligibilityReports.version`
_REVOKED = sql.select(tables.devices.c.device).where(tables.devices.c.revoked > 0)
_REPORTS = sql.select(_columns.device, _columns.fingerprint, _columns.reason, _columns.classes).where(
    _of_run, _columns.device.not_in(_REVOKED)
)
_VERSION_OF_RUN = sql.select(VERSION).where(_of_run)


class EligibilityReports:
    """Every method is one transaction and returns when it is durable. Blocking."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    @property
    def shared(self) -> bool:
        """True if other coordinators may record answers, too."""
        return self._transactions.shared

    def record(self, run: str, reports: Collection[EligibilityReport]) -> None:
        """Record devices' answers in place of their earlier ones; raises NotFound if the run was deleted."""
        now = time.time_ns() // 1000
        rows = [
            {
                "run": run,
                "device": report.device,
                "fingerprint": report.fingerprint,
                "reason": report.reason,
                "classes": report.classes,
                "answered": now,
            }
            for report in sorted(reports, key=lambda report: report.device)  # so that replicas do not deadlock
        ]
        with self._transactions.write() as connection:
            try:
                insert_or_replace(connection, tables.eligibility, rows)
            except sql.exc.IntegrityError as error:
                raise NotFound(f"there is no run {run!r}", field="run", value=run) from error

    def of_run(self, run: str) -> dict[str, EligibilityReport]:
        """Return the answers by device, without those of revoked devices."""
        with self._transactions.read() as connection:
            found = connection.execute(_REPORTS, {"of_run": run})
            return {row.device: EligibilityReport(**row._mapping) for row in found}

    def clipped(self, run: str, times: int) -> frozenset[str]:
        """Return the devices, without revoked ones, that were clipped in at least that many counted rounds in a row."""
        with self._transactions.read() as connection:
            found = participants.clipped_in_a_row(connection, run)
            revoked = set(connection.execute(_REVOKED).scalars())
        return frozenset(device for device, number in found.items() if number >= times and device not in revoked)

    def version(self, run: str) -> int:
        """Return a number that changes with every answer."""
        with self._transactions.read() as connection:
            return int(connection.execute(_VERSION_OF_RUN, {"of_run": run}).scalar_one())


def forget(connection: sql.Connection, device: str) -> None:
    """Delete a device's answers, within the caller's transaction."""
    connection.execute(sql.delete(tables.eligibility).where(_columns.device == device))
