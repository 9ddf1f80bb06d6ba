"""Device reports in rounds: which one counts, and which is a receipt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sql

from moonfed.blobs.store import BlobRef
from moonfed.coordinator.records import AttemptId, DeviceReport
from moonfed.coordinator.storage import participants, rounds
from moonfed.coordinator.storage.db import row_mapping, tables
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.coordinator.storage.db.upsert import insert_or_replace, insert_or_replace_if
from moonfed.coordinator.storage.leases import Leases
from moonfed.errors import AlreadyExists, MoonfedError, WrongState

_columns = tables.reports.c
_of_attempt = row_mapping.of_attempt(tables.reports)
_of_device = sql.and_(_of_attempt, _columns.device == sql.bindparam("of_device"))
_REJECTED = _columns.outcome == "rejected"
_OF_ATTEMPT = sql.select(tables.reports).where(_of_attempt).order_by(_columns.device)
_OF_DEVICE = sql.select(tables.reports).where(_of_device)
_ACCEPTED = _OF_DEVICE.where(_columns.outcome == "accepted")
_FORGET = sql.delete(tables.reports).where(
    _columns.run == sql.bindparam("of_run"), _columns.round <= sql.bindparam("newest")
)
Key = tuple[str, int, int, str]  # run, round, attempt, device
T = TypeVar("T")


class DeviceReports:
    """Every method is one transaction and returns when it is durable."""

    def __init__(self, transactions: Transactions, leases: Leases) -> None:
        self._transactions, self._leases = transactions, leases

    @property
    def shared(self) -> bool:
        """True if other coordinators may record reports, too."""
        return self._transactions.shared

    def replace(self, report: DeviceReport) -> None:
        """Record a device's report in place of any earlier one."""
        with self._transactions.write() as connection:
            self._leases.require(connection, report.id.run)  # else the run's holder would not know of it
            if report.outcome == "accepted" and not participants.among(connection, report.id.run, [report.device]):
                raise _not_participating(report)
            insert_or_replace(connection, tables.reports, [row_mapping.report_row(report)])

    def record(self, report: DeviceReport) -> None:
        """Record a device's report while its round is open; for an accepted update this is the receipt.

        It may replace a rejected one only; repeating an accepted one changes nothing.
        Raises WrongState if the round is closed, AlreadyExists if a different update counts.
        """
        for problem in self.record_all([report]):
            if problem:
                raise problem

    def record_all(self, given: Sequence[DeviceReport]) -> list[MoonfedError | None]:
        """Record reports, one of each device and attempt, in one transaction; return what `record` raises for each."""
        with self._transactions.write() as connection:
            problems = _inadmissible(connection, given)
            rows = [row_mapping.report_row(report) for report in given if _key(report) not in problems]
            written = insert_or_replace_if(connection, tables.reports, rows, _REJECTED)
            for report in given:
                if _key(report) not in written and _key(report) not in problems:
                    problems[_key(report)] = _problem(_require_same, connection, report)
        return [problems.get(_key(report)) for report in given]

    def of_attempt(self, attempt: AttemptId) -> list[DeviceReport]:
        """Return all reports in an attempt, sorted by device."""
        with self._transactions.read() as connection:
            found = connection.execute(_OF_ATTEMPT, row_mapping.parameters(attempt))
            return [row_mapping.report(row) for row in found.mappings()]

    def has_receipt(self, attempt: AttemptId, device: str, blobs: Mapping[str, BlobRef]) -> bool:
        """Return True if exactly this update of the device was accepted, and its round was not abandoned without it.

        Raises AlreadyExists if a different one was.
        """
        with self._transactions.read() as connection:
            row = connection.execute(_ACCEPTED, _parameters(attempt, device)).mappings().first()
            if row is None or not rounds.holds_update(connection, attempt, device):
                return False
        _require_same_update(row_mapping.report(row), attempt, device, blobs)
        return True


def forget(connection: sql.Connection, run: str, newest: int) -> None:
    """Delete the reports of rounds up to `newest`; a device asking later for a receipt is told the current round."""
    connection.execute(_FORGET, {"of_run": run, "newest": newest})


def _key(report: DeviceReport) -> Key:
    return report.id.run, report.id.round, report.id.attempt, report.device


def _inadmissible(connection: sql.Connection, given: Sequence[DeviceReport]) -> dict[Key, MoonfedError | None]:
    """Return why some of the reports cannot be recorded: their round is closed, or their device does not take part."""
    problems: dict[Key, MoonfedError | None] = {}
    for attempt in {report.id for report in given}:
        reports = [report for report in given if report.id == attempt]
        closed = _problem(rounds.require_open, connection, attempt)
        present = participants.among(connection, attempt.run, {report.device for report in reports})
        for report in reports:
            if closed:
                problems[_key(report)] = closed
            elif report.outcome == "accepted" and report.device not in present:
                problems[_key(report)] = _not_participating(report)
    return problems


def _require_same(connection: sql.Connection, report: DeviceReport) -> None:
    """Raise WrongState or AlreadyExists unless the report that counts in place of this one is the same update."""
    found = connection.execute(_OF_DEVICE, _parameters(report.id, report.device))
    standing = row_mapping.report(found.mappings().one())
    if standing.outcome == "declined":
        raise WrongState(f"{report.device!r} has declined {report.id}")
    if report.outcome != "accepted":
        raise WrongState(f"{report.device!r} has already delivered its update for {report.id}")
    _require_same_update(standing, report.id, report.device, report.blobs)


def _not_participating(report: DeviceReport) -> WrongState:
    """Return the error for an update from a device that shares only the name of the one that the round awaits."""
    return WrongState(
        f"device {report.device!r} does not participate in run {report.id.run!r}", field="device", value=report.device
    )


def _parameters(attempt: AttemptId, device: str) -> dict[str, Any]:
    """Return the parameters of the queries for one device's report."""
    return {**row_mapping.parameters(attempt), "of_device": device}


def _require_same_update(standing: DeviceReport, attempt: AttemptId, device: str, blobs: Mapping[str, BlobRef]) -> None:
    if dict(standing.blobs) != dict(blobs):
        raise AlreadyExists(
            f"a different update of {device!r} already counts in {attempt}", field="update", value=device
        )


def _problem(work: Callable[[sql.Connection, T], None], connection: sql.Connection, item: T) -> MoonfedError | None:
    """Return the MoonfedError that the work raises, if any."""
    try:
        work(connection, item)
    except MoonfedError as problem:
        return problem
    return None
