"""The schema's version: tables are made in an empty database, an earlier release's are migrated, others are refused."""

from __future__ import annotations

import sqlalchemy as sql

from moonfed.coordinator.storage.blobs.ownership import name_database
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.migration import migrate
from moonfed.errors import VersionMismatch


def is_new(connection: sql.Connection) -> bool:
    """Whether the database has none of our tables."""
    return not sql.inspect(connection).has_table(tables.schema.name)


def prepare(connection: sql.Connection, database: str) -> None:
    """Sees to it that the tables are there, of this release, in the transaction of the connection.

    `database`: what to call it. Raises VersionMismatch, and then changes nothing.
    """
    if is_new(connection):
        tables.metadata.create_all(connection)
        connection.execute(sql.insert(tables.schema).values(version=tables.SCHEMA_VERSION))
        name_database(connection)
    version = migrate(connection, connection.execute(sql.select(tables.schema.c.version)).scalar_one())
    if version != tables.SCHEMA_VERSION:
        raise VersionMismatch(
            f"{database} has schema version {version}; this release of moonfed reads version {tables.SCHEMA_VERSION}; "
            "use the release that wrote it, or move the whole state directory away to start anew"
        )
