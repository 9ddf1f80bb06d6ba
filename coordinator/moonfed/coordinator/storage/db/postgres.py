"""The coordinator's database on a PostgreSQL server, which several coordinators may share."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from moonfed.coordinator.storage.db.migration import RELEASED, Migration, Migrations
from moonfed.coordinator.storage.db.schema import announcement, changes_of, is_new, migrate, prepare
from moonfed.coordinator.storage.db.tables import NAME
from moonfed.coordinator.storage.store import Store
from moonfed.errors import Corrupt, InvalidInput, MoonfedError, Unavailable, WrongState
from moonfed.files import read_regular
from moonfed.validate import require

_log = logging.getLogger(__name__)
CONNECT_SECONDS = 10
_LOCK_SECONDS = 10  # for which a migration waits for other replicas' transactions, while theirs wait for it
PASSWORD_FILE = "PGPASSWORD_FILE"  # noqa: S105 - the variable that names a file with it, such as a container's secret
_MAX_PASSWORD = 4096  # bytes
_PREPARING = 0x6D6F6F6E  # an advisory lock, because two coordinators may start at the same time
_DURABLE = (  # an acknowledged update survives a power loss, whatever the server's default is
    "SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') IN ('off', 'local')"
)


def open_store(url: str, *, used_before: bool, backed_up: bool = False, migrations: Migrations = RELEASED) -> Store:
    """Open the store in a PostgreSQL database, creating the tables in an empty one, or migrating them.

    `used_before`: True if the tables must exist. `backed_up`: True if they may be migrated; otherwise, a
    contraction is left to a later start. Raises InvalidInput for a URL of something else, Unavailable if the server
    cannot be reached or the tables cannot be created or migrated, Corrupt if the tables are missing, VersionMismatch
    for a schema that this release cannot use, and WrongState for one that it may not migrate, or not yet. No error
    reveals a password.
    """
    address = parse_url(url)
    shown = address.render_as_string(hide_password=True).replace("+psycopg", "")
    connecting = {"connect_timeout": CONNECT_SECONDS, **_password()}
    engine = sql.create_engine(address, pool_pre_ping=True, hide_parameters=True, connect_args=connecting)
    sql.event.listen(engine, "connect", _configure)
    try:
        with engine.begin() as connection:
            connection.execute(sql.select(sql.func.pg_advisory_xact_lock(_PREPARING)))
            if used_before and is_new(connection):
                raise Corrupt(
                    f"{shown} has none of moonfed's tables, though the state directory was in use: restore the "
                    "database from a backup, or start afresh with another --state",
                    field="tables",
                )
            if pending := prepare(connection, shown, migrations):
                _migrate(connection, shown, pending, backed_up=backed_up)
    except sql.exc.DatabaseError as error:  # such as a missing right, or rows that cannot be migrated
        engine.dispose()
        raise Unavailable(f"the database {shown} cannot be used: {_reason(error.orig)}") from None
    except BaseException:
        engine.dispose()
        raise
    return Store(engine, schema=migrations.newest, holder=_holder())


def _migrate(connection: sql.Connection, shown: str, pending: Sequence[Migration], *, backed_up: bool) -> None:
    """Migrate within the connection's transaction; without a backup, leave contractions to a later start."""
    if not backed_up:
        if all(migration.contracts for migration in pending):
            _log.info("%s is used as it is; a start with --i-have-a-backup will %s", shown, changes_of(pending))
            return
        raise WrongState(
            f"{announcement(shown, pending)}; nothing was changed: back it up, with pg_dump, then start with "
            "--i-have-a-backup",
            field="schema",
            value=pending[-1].number,
        )
    _log.info("%s", announcement(shown, pending))
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
    migrate(connection, shown, pending)


def parse_url(url: str) -> sql.URL:
    """Parse the URL of a PostgreSQL database; raises InvalidInput, which never contains a password."""
    try:
        address = sql.make_url(url)
    except sql.exc.ArgumentError:
        raise InvalidInput(
            "database is not a URL; it must be like postgresql://USER@HOST/NAME", field="database"
        ) from None
    if address.drivername != "postgresql":
        shown = address.render_as_string(hide_password=True)
        raise InvalidInput(field="database", value=shown, allowed="like postgresql://USER@HOST/NAME")
    if find_spec("psycopg") is None:
        raise InvalidInput("database is a PostgreSQL URL, which needs psycopg; run pip install 'moonfed[postgres]'")
    return address.set(drivername="postgresql+psycopg")


def _reason(error: Any) -> str:  # noqa: ANN401 - a DBAPI error
    """Return the server's sentence without the statement that it rejects, or why there is no connection."""
    message = error.diag.message_primary or str(error)
    return "; ".join(line.strip() for line in message.splitlines() if line.strip())


def _password() -> dict[str, str]:
    """Return the password in the file that the environment names, if it names one; InvalidInput if it has none."""
    name = os.environ.get(PASSWORD_FILE)
    if not name:
        return {}
    try:
        password = read_regular(Path(name), _MAX_PASSWORD).decode().rstrip("\r\n")
    except (OSError, MoonfedError, UnicodeDecodeError):
        password = ""
    require(bool(password), PASSWORD_FILE, name, "a readable file with the database's password")
    return {"password": password}


def _configure(connection: Any, _record: object) -> None:  # noqa: ANN401 - a DBAPI connection
    connection.execute(_DURABLE)
    connection.commit()


def _holder() -> str:
    """Return a readable lease holder name, unique to this start."""
    tail = f"-{os.getpid()}-{secrets.token_hex(4)}"
    return socket.gethostname()[: NAME - len(tail)] + tail
