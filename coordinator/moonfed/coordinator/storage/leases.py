"""Run leases: which coordinator may change a run. `Store` chooses the kind once, by its database."""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql

from moonfed.coordinator.rounds.state import ACTIVE
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.clock import NOW
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.errors import Unavailable

LEASE_SECONDS = 15.0  # after which another coordinator resumes a run whose holder has died
_columns = tables.leases.c


class LeaseLost(Unavailable):
    """Another coordinator drives the run now, or may soon; this one must change nothing of it."""


class Leases(Protocol):
    """The leases of one coordinator. Methods ending in `_in` are part of the caller's transaction."""

    @property
    def holder(self) -> str | None:
        """This coordinator's name in leases; None if no other coordinator shares the database."""

    def acquire(self, run: str, seconds: float = LEASE_SECONDS) -> bool:
        """Acquire or renew a run's lease; False if another coordinator holds it."""

    def acquire_in(self, connection: sql.Connection, run: str, seconds: float = LEASE_SECONDS) -> bool:
        """Do what `acquire` does."""

    def renew(self, seconds: float) -> Set[str]:
        """Renew the leases of our running runs that nobody has acquired meanwhile; return those runs."""

    def held(self) -> Set[str]:
        """Return the runs whose unexpired lease is ours."""

    def held_elsewhere(self, run: str) -> bool:
        """Return True if another coordinator holds the run's unexpired lease."""

    def release(self) -> None:
        """Release all leases, so that other coordinators need not wait until they expire."""

    def inherit_in(self, connection: sql.Connection, holder: str, seconds: float = LEASE_SECONDS) -> None:
        """Take over the leases of a coordinator that has ended."""

    def require(self, connection: sql.Connection, run: str) -> None:
        """Raise LeaseLost unless the run is ours until the connection's transaction ends."""


class ExclusiveLeases:
    """Every run is ours: SQLite's database belongs to one process, by the state directory's lock."""

    holder: None = None

    def acquire(self, run: str, seconds: float = LEASE_SECONDS) -> bool:
        """Return True."""
        return True

    def acquire_in(self, connection: sql.Connection, run: str, seconds: float = LEASE_SECONDS) -> bool:
        """Return True."""
        return True

    def renew(self, seconds: float) -> Set[str]:
        """Return the empty set: nothing expires."""
        return frozenset()

    def held(self) -> Set[str]:
        """Return the empty set: no leases are recorded."""
        return frozenset()

    def held_elsewhere(self, run: str) -> bool:
        """Return False."""
        return False

    def release(self) -> None:
        """Do nothing."""

    def inherit_in(self, connection: sql.Connection, holder: str, seconds: float = LEASE_SECONDS) -> None:
        """Do nothing."""

    def require(self, connection: sql.Connection, run: str) -> None:
        """Accept every run."""


class SharedLeases:
    """Leases in PostgreSQL, by the database's clock. `holder`: this coordinator's name in them."""

    def __init__(self, transactions: Transactions, holder: str) -> None:
        self._transactions, self.holder = transactions, holder

    def acquire(self, run: str, seconds: float = LEASE_SECONDS) -> bool:
        """Acquire or renew a run's lease; False if another coordinator holds it."""
        with self._transactions.write() as connection:
            return self.acquire_in(connection, run, seconds)

    def acquire_in(self, connection: sql.Connection, run: str, seconds: float = LEASE_SECONDS) -> bool:
        """Do what `acquire` does."""
        new = postgresql.insert(tables.leases).values(run=run, holder=self.holder, expires=NOW + seconds)
        free = sql.or_(_columns.holder == self.holder, _columns.expires <= NOW)
        changes = {"holder": new.excluded.holder, "expires": new.excluded.expires}
        upsert = new.on_conflict_do_update(index_elements=[_columns.run], set_=changes, where=free)
        return connection.execute(upsert.returning(_columns.run)).first() is not None

    def renew(self, seconds: float) -> Set[str]:
        """Renew the leases of our running runs that nobody has acquired meanwhile; return those runs."""
        running = sql.select(tables.runs.c.run).where(tables.runs.c.status.in_(ACTIVE))
        which = sql.and_(_columns.holder == self.holder, _columns.run.in_(running))
        ours = sql.update(tables.leases).where(which).values(expires=NOW + seconds)
        with self._transactions.write() as connection:
            return set(connection.execute(ours.returning(_columns.run)).scalars())

    def held(self) -> Set[str]:
        """Return the runs whose unexpired lease is ours."""
        query = sql.select(_columns.run).where(_columns.holder == self.holder, _columns.expires > NOW)
        with self._transactions.read() as connection:
            return set(connection.execute(query).scalars())

    def held_elsewhere(self, run: str) -> bool:
        """Return True if another coordinator holds the run's unexpired lease."""
        query = sql.select(_columns.run).where(
            _columns.run == run, _columns.holder != self.holder, _columns.expires > NOW
        )
        with self._transactions.read() as connection:
            return connection.execute(query).first() is not None

    def release(self) -> None:
        """Release all leases, so that other coordinators need not wait until they expire."""
        with self._transactions.write() as connection:
            connection.execute(sql.delete(tables.leases).where(_columns.holder == self.holder))

    def inherit_in(self, connection: sql.Connection, holder: str, seconds: float = LEASE_SECONDS) -> None:
        """Take over the leases of a coordinator that has ended."""
        theirs = sql.update(tables.leases).where(_columns.holder == holder)
        connection.execute(theirs.values(holder=self.holder, expires=NOW + seconds))

    def require(self, connection: sql.Connection, run: str) -> None:
        """Raise LeaseLost unless the run is ours until the connection's transaction ends."""
        ours = sql.select(_columns.run).where(
            _columns.run == run, _columns.holder == self.holder, _columns.expires > NOW
        )
        if connection.execute(ours.with_for_update(read=True)).first() is None:
            raise LeaseLost(f"run {run!r} is now held by another coordinator; nothing was changed here")
