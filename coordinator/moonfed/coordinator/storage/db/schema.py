"""The schema's revision: an empty database gets the tables, an older one migrations, and a newer one may be refused.

Alembic's table `alembic_version` has the revision; `schema` the oldest revision whose release can use the database.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sql

from moonfed.coordinator.storage.blobs.ownership import name_database
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.clock import NOW
from moonfed.coordinator.storage.db.migration import Migration, Migrations, applicable, apply, oldest_readable
from moonfed.errors import VersionMismatch
from moonfed.version import RELEASE

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """The revision of a database. `release`: of moonfed, which made it."""

    revision: int
    readable_from: int
    release: str


def is_new(connection: sql.Connection) -> bool:
    """Return True if the database has none of our tables."""
    return not sql.inspect(connection).has_table(tables.schema.name)


def prepare(connection: sql.Connection, database: str, migrations: Migrations) -> Sequence[Migration]:
    """Create the tables in an empty database, within the connection's transaction; else return the migrations to apply.

    `database` is its name in errors. Raises VersionMismatch if this release cannot use it, and WrongState if a replica
    of an older release is in the way, having changed nothing.
    """
    if is_new(connection):
        _create(connection, migrations.newest)
        return ()
    found = _read(connection, database)
    require_readable(found, database, migrations.newest)
    pending = migrations.after(found.revision)
    now = applicable(pending, _replicas(connection) if pending else {})
    if waiting := pending[len(now) :]:
        _log.info(
            "%s: a replica of an older release is alive; the next start without one will %s",
            database,
            changes_of(waiting),
        )
    if found.revision > migrations.newest:
        _log.info("%s has schema %d, of moonfed %s, and is used as it is", database, found.revision, found.release)
    return now


def migrate(connection: sql.Connection, database: str, migrations: Sequence[Migration]) -> None:
    """Apply migrations within the connection's transaction."""
    apply(connection, migrations)
    changes: dict[str, object] = {"release": RELEASE}
    if readable_from := oldest_readable(migrations):
        changes["readable_from"] = readable_from
    connection.execute(sql.update(tables.schema).values(changes))
    connection.execute(sql.update(tables.alembic_version).values(version_num=migrations[-1].revision))
    _log.info("%s was migrated to schema %d", database, migrations[-1].number)


def changes_of(migrations: Sequence[Migration]) -> str:
    """Return what migrations do, as words after "will"."""
    return ", ".join(f"{each.summary[0].lower()}{each.summary[1:]} ({each.revision})" for each in migrations)


def announcement(database: str, migrations: Sequence[Migration]) -> str:
    """Return a sentence, without its full stop, about what migrations will do, and what going back then needs."""
    going_back = "needs no restore"
    if readable_from := oldest_readable(migrations):
        going_back = f"to a release of a schema below {readable_from} then needs a restore"
    return (
        f"{database} must be migrated to schema {migrations[-1].number} for moonfed {RELEASE}: "
        f"{changes_of(migrations)}; going back {going_back}"
    )


def require_readable(found: SchemaVersion, database: str, newest: int) -> None:
    """Raise VersionMismatch unless a release whose newest revision is `newest` can use the database."""
    if found.readable_from > newest:
        raise VersionMismatch(
            f"{database} has schema {found.revision}, of moonfed {found.release}, which releases can use from schema "
            f"{found.readable_from} on; this is moonfed {RELEASE}, of schema {newest}: start the newer release, or "
            "restore the backup from before the upgrade",
            field="schema",
            value=found.revision,
        )


def read_version(connection: sql.Connection) -> SchemaVersion:
    """Return the revision of a database with tables; on PostgreSQL, it stays until the transaction ends."""
    row = connection.execute(sql.select(tables.schema).with_for_update(read=True)).one()
    revision = connection.execute(sql.select(tables.alembic_version.c.version_num)).scalar_one()
    return SchemaVersion(revision=int(revision), readable_from=row.readable_from, release=row.release)


def _create(connection: sql.Connection, revision: int) -> None:
    tables.metadata.create_all(connection, checkfirst=False)  # a table of another program's is an error
    connection.execute(sql.insert(tables.alembic_version).values(version_num=f"{revision:04}"))
    connection.execute(sql.insert(tables.schema).values(readable_from=revision, release=RELEASE))
    connection.execute(sql.insert(tables.registry_version).values(version=0))
    connection.execute(sql.insert(tables.deployments_version).values(version=0))
    name_database(connection)


def _read(connection: sql.Connection, database: str) -> SchemaVersion:
    if not sql.inspect(connection).has_table(tables.alembic_version.name):
        raise VersionMismatch(
            f"{database} was made before moonfed's first release, and cannot be read; this is moonfed {RELEASE}: start "
            "afresh with another state directory and database",
            field="schema",
            value=0,
        )
    return read_version(connection)


def _replicas(connection: sql.Connection) -> Mapping[str, int]:
    """Return the schema revision of each live replica's release, and permit no heartbeat until the transaction ends."""
    if connection.dialect.name != "postgresql":
        return {}
    connection.execute(sql.select(tables.schema).with_for_update())
    alive = sql.select(tables.replicas.c.replica, tables.replicas.c.schema).where(tables.replicas.c.expires > NOW)
    return dict(connection.execute(alive).tuples().all())
