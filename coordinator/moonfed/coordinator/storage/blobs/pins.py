"""Pins, which protect a blob from garbage collection between its arrival and the commit that refers to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Hashable

import sqlalchemy as sql

from moonfed.blobs.store import DIGEST
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.clock import NOW
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.coordinator.storage.db.upsert import insert_or_replace

_log = logging.getLogger(__name__)
PIN_SECONDS = 3600.0  # for which the pin of a coordinator that died still counts
_columns = tables.pins.c


class SharedPins:
    """The pins of all coordinators on one database. PostgreSQL only. Blocking."""

    def __init__(self, transactions: Transactions, replica: str, seconds: float = PIN_SECONDS) -> None:
        self._transactions = transactions
        self._replica = replica
        self._seconds = seconds

    def add(self, digests: Collection[str]) -> None:
        """Pin blobs for this replica, after any deletion of one of them that is in progress on any replica."""
        with self._transactions.write() as connection:
            for sha256 in sorted(digests):
                connection.execute(sql.select(sql.func.pg_advisory_xact_lock_shared(_lock_of(sha256))))
            until = connection.execute(sql.select(NOW + self._seconds)).scalar_one()
            connection.execute(sql.delete(tables.pins).where(_columns.until <= NOW))
            rows = [{"replica": self._replica, "sha256": sha256, "until": until} for sha256 in sorted(digests)]
            insert_or_replace(connection, tables.pins, rows)

    def drop(self, digests: Collection[str]) -> None:
        """Remove this replica's pins; if the database is unreachable, they expire."""
        ours = sql.and_(_columns.replica == self._replica, _columns.sha256.in_(sorted(digests)))
        try:
            with self._transactions.write() as connection:
                connection.execute(sql.delete(tables.pins).where(ours))
        except sql.exc.OperationalError as error:
            _log.warning("blobs stay for up to %g s longer than needed: %s", self._seconds, error.orig)

    def unless_pinned(self, sha256: str, work: Callable[[], None]) -> None:
        """Call `work` unless the blob is pinned, and prevent pinning meanwhile."""
        pinned = sql.select(_columns.sha256).where(_columns.sha256 == sha256, _columns.until > NOW)
        with self._transactions.write() as connection:
            connection.execute(sql.select(sql.func.pg_advisory_xact_lock(_lock_of(sha256))))
            if connection.execute(pinned).first() is None:
                work()


class Pins:
    """The pinned blobs of this process, by owner; with `shared`, other coordinators see them, too."""

    def __init__(self, shared: SharedPins | None = None) -> None:
        self._shared, self._lock = shared, threading.Lock()
        self._pinned: dict[Hashable, set[str]] = {}

    def add(self, owner: Hashable, digests: Collection[str]) -> None:
        """Pin blobs; call this before storing them or checking that they exist."""
        named = {sha256 for sha256 in digests if DIGEST.fullmatch(sha256)}  # a caller's other words name no blob
        with self._lock:
            self._pinned.setdefault(owner, set()).update(named)
            if self._shared:
                self._shared.add(named)

    def drop(self, owner: Hashable) -> None:
        """Remove an owner's pins, once it refers to its blobs or never will."""
        with self._lock:
            ended = self._pinned.pop(owner, set()).difference(*self._pinned.values())
            if self._shared and ended:
                self._shared.drop(ended)

    def unless_pinned(self, sha256: str, work: Callable[[], None]) -> None:
        """Call `work` unless the blob is pinned, and prevent pinning meanwhile."""
        with self._lock:
            if any(sha256 in digests for digests in self._pinned.values()):
                return
            if self._shared:
                self._shared.unless_pinned(sha256, work)
            else:
                work()


def _lock_of(sha256: str) -> int:
    """Return the advisory lock's number for a blob: 60 bits of its sha256; a collision only costs waiting."""
    return int(sha256[:15], 16)
