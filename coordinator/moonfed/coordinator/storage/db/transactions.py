"""Reading and writing transactions on one database."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import sqlalchemy as sql

from moonfed.coordinator.observer import SILENT, Observer

WRITES = "moonfed_writes"  # execution option of connections that `write` begins a transaction on


class Transactions:
    """Any number of readers. SQLite allows one writer at a time: one process owns the database, so writers queue here.

    PostgreSQL's writers run concurrently (READ COMMITTED) and lock the rows that their decisions depend on.
    """

    def __init__(self, engine: sql.Engine) -> None:
        self.shared = shared = engine.dialect.name == "postgresql"  # with other coordinators
        self._engine = engine
        self.observer: Observer = SILENT
        self._reading = engine.execution_options(isolation_level="REPEATABLE READ") if shared else engine
        self._changing = engine.execution_options(**{WRITES: True})
        # A lock of our own, rather than fail on the database's.
        self._writing: AbstractContextManager[object] = nullcontext() if shared else threading.Lock()

    def read(self) -> AbstractContextManager[sql.Connection]:
        """Begin a transaction that reads one snapshot of the database."""
        return self._reading.connect()

    @contextmanager
    def write(self) -> Iterator[sql.Connection]:
        """Begin a transaction that is durable when the context ends, or rolled back on an error."""
        with self._writing:
            began = time.perf_counter()
            with self._changing.begin() as connection:
                yield connection
            self.observer.wrote(time.perf_counter() - began)

    def close(self) -> None:
        """Close the database's files or connections."""
        self._engine.dispose()
