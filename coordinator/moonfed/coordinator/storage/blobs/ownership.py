"""Blob ownership: a blob location and its database name each other, so that no coordinator runs on mismatched state.

A second coordinator on a database would not find the models in its own directory, and one on another database
would delete blobs that it does not know.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol
from uuid import uuid4

import sqlalchemy as sql

from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.errors import NotFound, WrongState
from moonfed.files import write_durably

_NAME = "database"  # of the file or object next to the blobs


class BlobLocation(Protocol):
    """A location of blobs, with a note of the database that they belong to."""

    where: str  # for messages

    def read(self) -> str | None:
        """Return the recorded name; None if there is none."""

    def write(self, text: str) -> None:
        """Write durably."""


class DirectoryLocation:
    """A local directory."""

    def __init__(self, directory: Path) -> None:
        self.where, self._file = f"the directory {directory}", directory / _NAME

    def read(self) -> str | None:
        """Return the recorded name; None if there is none."""
        return self._file.read_text() if self._file.is_file() else None

    def write(self, text: str) -> None:
        """Write durably."""
        write_durably(self._file, text.encode())


class ObjectLocation:
    """An object store."""

    def __init__(self, objects: ObjectClient) -> None:
        self.where, self._objects = objects.url, objects

    def read(self) -> str | None:
        """Return the recorded name; None if there is none."""
        try:
            return self._objects.read(_NAME).decode(errors="replace")
        except NotFound:
            return None

    def write(self, text: str) -> None:
        """Write durably."""
        self._objects.write(text.encode(), _NAME)


def name_database(connection: sql.Connection) -> None:
    """Give a new database a unique name, within the caller's transaction."""
    connection.execute(sql.insert(tables.blob_ownership).values(database=uuid4().hex, claimed=False))


def claim(transactions: Transactions, location: BlobLocation) -> None:
    """Claim the blob location for the database on first use, and check on later starts that the two belong together.

    Raises WrongState if the database's blobs are elsewhere, or the location is another database's.
    """
    with transactions.write() as connection:
        row = connection.execute(sql.select(tables.blob_ownership).with_for_update()).one()
        ours, found = f"what the moonfed coordinators on database {row.database} keep\n", location.read()
        if found is None and not row.claimed:
            location.write(ours)  # a kill before the commit: it is found again
        elif found not in (None, ours) and not row.claimed:
            raise WrongState(
                f"{location.where} holds the blobs of another database: give another --blobs",
                field="blobs",
                value=location.where,
            )
        elif found != ours:
            raise WrongState(
                f"the blobs of this database are not in {location.where}: give all coordinators on one database the "
                "same --blobs, which must be an object store if there are several"
            )
        if not row.claimed:
            connection.execute(sql.update(tables.blob_ownership).values(claimed=True))
