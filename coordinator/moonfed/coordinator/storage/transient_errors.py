"""Classification of transient errors: a full disk, and an unreachable server."""

from __future__ import annotations

import errno
import sqlite3

import sqlalchemy as sql

from moonfed.errors import MoonfedError, ResourceExhausted, Unavailable

_POSTGRES_FULL = "53100"
_SQLITE_FULL = "database or disk is full"  # sqlite3 has error codes only from Python 3.11 on


def as_transient(error: Exception) -> MoonfedError | None:
    """Return the error to report if its cause is transient or can be resolved by freeing space; else None."""
    known = error if isinstance(error, (ResourceExhausted, Unavailable)) else None
    return as_full_disk(error) or known or as_unreachable(error)


def as_full_disk(error: Exception) -> ResourceExhausted | None:
    """Return the error to report if a disk or quota of the coordinator or its database server is full; else None."""
    cause = error.__cause__ if isinstance(error, ResourceExhausted) else error  # the contract's blobs report their own
    if isinstance(cause, sql.exc.OperationalError) and _sqlstate(cause) == _POSTGRES_FULL:
        return ResourceExhausted("the disk of the coordinator's database server is full")
    file_failed = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
    database_failed = isinstance(cause, sql.exc.OperationalError) and str(cause.orig) == _SQLITE_FULL
    return ResourceExhausted("the coordinator's disk is full") if file_failed or database_failed else None


def as_unreachable(error: Exception) -> Unavailable | None:
    """Return the error to report if the database server is unreachable; else None."""
    if not isinstance(error, sql.exc.OperationalError) or isinstance(error.orig, sqlite3.Error):
        return None
    unreachable = error.connection_invalidated or _sqlstate(error) is None
    return Unavailable("the coordinator's database cannot be reached", field="database") if unreachable else None


def _sqlstate(error: sql.exc.DBAPIError) -> str | None:
    """Return PostgreSQL's error code; None if the server sent none."""
    return getattr(error.orig, "sqlstate", None)
