"""Reading and writing transactions on one database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import sqlalchemy as sql


class Transactions:
    """Any number of readers, and one writer at a time: one process owns the database, so writers queue here."""

    def __init__(self, engine: sql.Engine) -> None:
        self._engine = engine
        self._writing = threading.Lock()  # rather than fail on the database's own lock

    def read(self) -> AbstractContextManager[sql.Connection]:
        """A transaction that sees one state of the database."""
        return self._engine.connect()

    @contextmanager
    def write(self) -> Iterator[sql.Connection]:
        """A transaction that is durable when the context ends, or that never was."""
        with self._writing, self._engine.begin() as connection:
            yield connection

    def close(self) -> None:
        """Gives the database's files back."""
        self._engine.dispose()
