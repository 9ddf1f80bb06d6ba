"""The audit trail: operators' changes, devices' enrolments and renewals, and denied calls."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass

import sqlalchemy as sql

from moonfed.control.codec import from_values
from moonfed.control.operators import AuditOutcome, AuditRecord
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.transport.identity import ROLES

KEPT = 100_000  # newest records of each kind that devices and strangers cause, and of operators' denied calls
PRUNED_EVERY = 1000  # records
_AUDIT = 0x6D6F6F75  # a lock of the server's: records are committed in the order of their numbers
_columns = tables.audit_records.c


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """A choice of audit records; an empty value selects all."""

    name: str = ""
    call: str = ""
    denied: bool = False
    since: float = 0.0  # seconds since the epoch

    @property
    def condition(self) -> sql.ColumnElement[bool]:
        """The SQL condition."""
        conditions = [_columns.name == self.name] if self.name else []
        conditions += [_columns.call == self.call] if self.call else []
        conditions += [_columns.outcome == "denied"] if self.denied else []
        return sql.and_(_columns.time >= self.since, *conditions)


class AuditTrail:
    """Audit records; every method is one transaction and returns when it is durable.

    Operators' changes are kept forever. Of everything else the newest KEPT records of each kind are kept, so that
    nobody can fill the disk or displace records of another kind.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def add(self, record: AuditRecord) -> int:
        """Record a call; return the record's number."""
        row = asdict(record) | {"time": record.time.timestamp()}
        del row["number"]
        with self._transactions.write() as connection:
            if self._transactions.shared:
                connection.execute(sql.select(sql.func.pg_advisory_xact_lock(_AUDIT)))
            inserted = connection.execute(sql.insert(tables.audit_records).values(row).returning(_columns.number))
            number: int = inserted.scalar_one()
            if number % PRUNED_EVERY == 0:
                _prune(connection)
        return number

    def finish(self, number: int, outcome: AuditOutcome, details: str, reason: str) -> None:
        """Complete the record of a pending change."""
        changes = {"outcome": outcome, "details": details, "reason": reason}
        with self._transactions.write() as connection:
            connection.execute(sql.update(tables.audit_records).where(_columns.number == number).values(changes))

    def page(self, chosen: AuditFilter, after: int, limit: int, also: Collection[int] = ()) -> list[AuditRecord]:
        """Return the next `limit` records after number `after`, and those with the numbers `also`, oldest first."""
        numbers = sql.or_(_columns.number > after, _columns.number.in_(also))
        query = sql.select(tables.audit_records).where(numbers, chosen.condition).order_by(_columns.number)
        with self._transactions.read() as connection:
            return [from_values(AuditRecord, row) for row in connection.execute(query.limit(limit)).mappings()]

    def before_newest(self, chosen: AuditFilter, records: int) -> int:
        """Return the number after which the newest `records` chosen records follow."""
        query = sql.select(_columns.number).where(chosen.condition).order_by(_columns.number.desc())
        with self._transactions.read() as connection:
            found: int | None = connection.execute(query.offset(records).limit(1)).scalar()
        return found or 0


def _prune(connection: sql.Connection) -> None:
    of_operators, denied = _columns.role.in_(ROLES), _columns.outcome == "denied"
    others = [sql.and_(_columns.role == role, which) for role in ("device", "") for which in (denied, sql.not_(denied))]
    for kind in (sql.and_(of_operators, denied), *others):
        newest = sql.select(_columns.number).where(kind).order_by(_columns.number.desc()).offset(KEPT).limit(1)
        connection.execute(sql.delete(tables.audit_records).where(kind, _columns.number <= newest.scalar_subquery()))
