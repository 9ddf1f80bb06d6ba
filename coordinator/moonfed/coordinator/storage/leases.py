"""Whose runs are whose, where several coordinators share one database: leases, by the database's clock.

SQLite's database belongs to one process, by the state directory's lock, so there every run is ours.
"""

from __future__ import annotations

from collections.abc import Set

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql

from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.clock import NOW
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.errors import Unavailable

LEASE_SECONDS = 15.0  # after which a run whose holder has died goes on elsewhere
_columns = tables.leases.c


class LeaseLost(Unavailable):
    """Another coordinator drives the run now, or may soon; this one must change nothing of it."""


class Leases:
    """The leases of one coordinator; `holder` is its name, None if nobody shares the database."""

    def __init__(self, transactions: Transactions, holder: str | None) -> None:
        self._transactions, self.holder = transactions, holder

    @property
    def shared(self) -> bool:
        """Whether other coordinators may hold runs."""
        return self.holder is not None

    def take(self, run: str, seconds: float = LEASE_SECONDS) -> bool:
        """Takes or prolongs the lease of a run, unless another coordinator holds it."""
        with self._transactions.write() as connection:
            return self.take_in(connection, run, seconds)

    def take_in(self, connection: sql.Connection, run: str, seconds: float = LEASE_SECONDS) -> bool:
        """The same as a part of a transaction."""
        if self.holder is None:
            return True
        new = postgresql.insert(tables.leases).values(run=run, holder=self.holder, expires=NOW + seconds)
        free = sql.or_(_columns.holder == self.holder, _columns.expires <= NOW)
        changes = {"holder": new.excluded.holder, "expires": new.excluded.expires}
        taking = new.on_conflict_do_update(index_elements=[_columns.run], set_=changes, where=free)
        return connection.execute(taking.returning(_columns.run)).first() is not None

    def prolong(self, seconds: float) -> Set[str]:
        """Prolongs the leases of our running runs that nobody has taken meanwhile; those runs."""
        running = sql.select(tables.runs.c.run).where(tables.runs.c.status == "running")
        which = sql.and_(_columns.holder == self.holder, _columns.run.in_(running))
        ours = sql.update(tables.leases).where(which).values(expires=NOW + seconds)
        with self._transactions.write() as connection:
            return set(connection.execute(ours.returning(_columns.run)).scalars())

    def held(self) -> Set[str]:
        """The runs whose lease is ours, and not over."""
        query = sql.select(_columns.run).where(_columns.holder == self.holder, _columns.expires > NOW)
        with self._transactions.read() as connection:
            return set(connection.execute(query).scalars())

    def release(self) -> None:
        """Gives all leases back, so that another coordinator need not wait for their end."""
        if self.holder is not None:
            with self._transactions.write() as connection:
                connection.execute(sql.delete(tables.leases).where(_columns.holder == self.holder))

    def inherit_in(self, connection: sql.Connection, holder: str, seconds: float = LEASE_SECONDS) -> None:
        """Takes over the leases of a coordinator that has ended, as a part of a transaction."""
        theirs = sql.update(tables.leases).where(_columns.holder == holder)
        connection.execute(theirs.values(holder=self.holder, expires=NOW + seconds))

    def require(self, connection: sql.Connection, run: str) -> None:
        """Raises LeaseLost unless the run is ours until the connection's transaction has ended."""
        if self.holder is None:
            return
        ours = sql.select(_columns.run).where(
            _columns.run == run, _columns.holder == self.holder, _columns.expires > NOW
        )
        if connection.execute(ours.with_for_update(read=True)).first() is None:
            raise LeaseLost(f"run {run!r} is another coordinator's now; nothing of it was changed here")
