"""Tells a full disk from every other trouble, whether it met a file or the database."""

from __future__ import annotations

import errno

import sqlalchemy as sql

from moonfed.errors import ResourceExhausted

_SQLITE_FULL = "database or disk is full"  # its error code is told from Python 3.11 on only


def as_full_disk(error: Exception) -> ResourceExhausted | None:
    """The error to tell a caller if a disk or a quota is full, who may try again later; else None."""
    file_failed = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    database_failed = isinstance(error, sql.exc.OperationalError) and str(error.orig) == _SQLITE_FULL
    return ResourceExhausted("the disk is full") if file_failed or database_failed else None
