"""The schema version: an empty database gets the tables, and one with another release's schema is rejected."""

from __future__ import annotations

import sqlalchemy as sql

from moonfed.coordinator.storage.blobs.ownership import name_database
from moonfed.coordinator.storage.db import tables
from moonfed.errors import VersionMismatch


def is_new(connection: sql.Connection) -> bool:
    """Return True if the database has none of our tables."""
    return not sql.inspect(connection).has_table(tables.schema.name)


def prepare(connection: sql.Connection, database: str) -> None:
    """Create the tables in an empty database, or check their version, within the connection's transaction.

    `database` is its name in errors. Raises VersionMismatch, having changed nothing.
    """
    if is_new(connection):
        tables.metadata.create_all(connection, checkfirst=False)  # a table of another program's is an error
        connection.execute(sql.insert(tables.schema).values(version=tables.SCHEMA_VERSION))
        connection.execute(sql.insert(tables.registry_version).values(version=0))
        connection.execute(sql.insert(tables.deployments_version).values(version=0))
        name_database(connection)
    version = connection.execute(sql.select(tables.schema.c.version)).scalar_one()
    if version != tables.SCHEMA_VERSION:
        raise VersionMismatch(
            f"{database} has schema version {version}; this release of moonfed reads version {tables.SCHEMA_VERSION}; "
            "use the release that wrote it, or start afresh with another state directory and database",
            field="schema version",
            value=version,
        )
