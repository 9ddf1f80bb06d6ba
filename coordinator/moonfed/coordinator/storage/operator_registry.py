"""The registry of operators' certificates."""

from __future__ import annotations

import time
from dataclasses import asdict

import sqlalchemy as sql

from moonfed.control.codec import from_values
from moonfed.control.operators import Operator
from moonfed.coordinator.records import OperatorRecord
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.coordinator.storage.db.upsert import insert_or_ignore
from moonfed.coordinator.storage.registry_view import count_change
from moonfed.errors import AlreadyExists, NotFound

_OPERATORS = 0x6D6F6F6F  # a lock of the server's: two admins may create an operator at the same time
_columns = tables.operators.c


class OperatorRegistry:
    """Operators' certificates; every method is one transaction and returns when it is durable."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def operators(self) -> list[Operator]:
        """Return all certificates, by the operators' names, oldest first."""
        query = sql.select(tables.operators).order_by(_columns.operator, _columns.created, _columns.serial)
        with self._transactions.read() as connection:
            return [from_values(Operator, row) for row in connection.execute(query).mappings()]

    def revoked(self) -> frozenset[str]:
        """Return the serial numbers of the certificates that are no longer accepted."""
        with self._transactions.read() as connection:
            return frozenset(connection.execute(sql.select(_columns.serial).where(_columns.revoked > 0)).scalars())

    def create(self, record: OperatorRecord) -> None:
        """Record the certificate of a new operator.

        An operator may request another certificate for the same key and role, since a reply may be lost. Raises
        AlreadyExists if an operator of that name has any other valid certificate.
        """
        query = sql.select(_columns.operator).where(
            _columns.operator == record.operator,
            _columns.revoked == 0,
            _columns.expires > time.time(),
            sql.or_(_columns.public_key_sha256 != record.public_key_sha256, _columns.role != record.role),
        )
        with self._transactions.write() as connection:
            if self._transactions.shared:
                connection.execute(sql.select(sql.func.pg_advisory_xact_lock(_OPERATORS)))
            if connection.execute(query).first():
                raise AlreadyExists(
                    f"there is already an operator {record.operator!r}; revoke it first, or give another name",
                    field="operator",
                    value=record.operator,
                )
            connection.execute(sql.insert(tables.operators).values(asdict(record)))

    def adopt(self, record: OperatorRecord) -> None:
        """Record a certificate that the coordinator has issued to itself, unless it is known."""
        with self._transactions.write() as connection:
            insert_or_ignore(connection, tables.operators, [asdict(record)])

    def revoke(self, operator: str) -> list[Operator]:
        """Reject an operator's certificates from now on; return those that were valid. Raises NotFound."""
        now, of_operator = time.time(), _columns.operator == operator
        valid = sql.and_(of_operator, _columns.revoked == 0)
        with self._transactions.write() as connection:
            if not connection.execute(sql.select(_columns.serial).where(of_operator)).first():
                raise NotFound(f"there is no operator {operator!r}", field="operator", value=operator)
            count_change(connection)
            revoking = sql.update(tables.operators).where(valid).values(revoked=now).returning(*_columns)
            return [from_values(Operator, row) for row in connection.execute(revoking).mappings()]
